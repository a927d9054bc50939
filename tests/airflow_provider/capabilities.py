"""Tests of what some releases of Airflow lack: there the test of the fallback runs instead.

`version_compat.CAPABILITIES` says what the installed release has. Two markers ask it:

- `airflow_has("task_state", instead="test_other")`: the test of a capability. Where it is lacking,
  `test_other` of the same module must run instead. Without `instead` there is no fallback, which
  only capabilities of `NO_FALLBACK` may say: the test is skipped, and the reason names it.
- `airflow_lacks("task_state")`: a test of the fallback that can run on older releases only.
"""

from __future__ import annotations

import pytest

HAS, LACKS = "airflow_has", "airflow_lacks"
NO_FALLBACK = ("asset_partitions", "sqlalchemy_2")
"""What older releases cannot do at all; `docs/airflow.md` says so."""


def has(capability: str) -> bool:
    """Whether this Airflow has a capability."""
    from fluss_orchestrate.airflow.version_compat import CAPABILITIES

    found: bool = getattr(CAPABILITIES, capability)
    return found


def choose(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests of what is lacking, and tests of fallbacks of what is there."""
    left_out = [item for item in items if not is_for_this_release(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def is_for_this_release(item: pytest.Item) -> bool:
    """Whether the test is of a capability or a fallback that this Airflow has; marks skips."""
    if any(has(name) for mark in item.iter_markers(LACKS) for name in mark.args):
        return False
    for mark in item.iter_markers(HAS):
        (name,) = mark.args
        if has(name):
            continue
        instead = mark.kwargs.get("instead")
        if instead is not None:
            assert hasattr(getattr(item, "module", None), instead), f"{item.nodeid}: no {instead}"
            return False
        assert name in NO_FALLBACK, f"{item.nodeid} names no test of the fallback of {name}"
        item.add_marker(pytest.mark.skip(reason=f"this Airflow cannot: {name}"))
    return True
