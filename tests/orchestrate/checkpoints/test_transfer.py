"""Checkpoints that move from store to store."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fluss_client.errors import CorruptDataError
from fluss_orchestrate.core.checkpoints import (
    CheckpointStore,
    SqlCheckpointStore,
    compact,
    export_checkpoints,
    import_checkpoints,
)
from fluss_orchestrate.core.errors import (
    CheckpointConflictError,
    CheckpointNotFoundError,
    CheckpointRetiredError,
)
from tests.orchestrate.checkpoints.memory_log import MemoryEventLog
from tests.orchestrate.checkpoints.plans import receipt, step, take

Opener = Callable[[], CheckpointStore]


def filled(name: str) -> CheckpointStore:
    store = CheckpointStore(MemoryEventLog())
    for n in range(10):
        step(store, name, f"run-{n}")
    take(store, name, "run-10")
    return store


def test_an_export_goes_into_any_store(open_store: Opener, name: str) -> None:
    source, target = filled(name), open_store()
    exported = json.loads(json.dumps(export_checkpoints(source, [name], keep=7)))
    assert import_checkpoints(target, exported) == [name]
    assert import_checkpoints(open_store(), exported) == [name]
    head = open_store().require(name)
    assert head.sequence == source.require(name).sequence == 20
    pending = head.state.pending
    assert pending == source.require(name).state.pending
    assert pending is not None
    other = open_store()
    assert other.plan_of(name, "run-9", other.head(name)) == source.plan_of(
        name, "run-9", source.head(name)
    )
    assert other.plan_of(name, "run-1", other.head(name)) is None
    other.commit(pending, receipt(pending))
    assert other.commit(pending, receipt(pending)).run_key == "run-10"
    assert step(open_store(), name, "run-11").sequence == 22
    assert name in open_store().names()


def test_an_import_over_another_history_is_refused(open_store: Opener, name: str) -> None:
    target = open_store()
    step(target, name, "other")
    before = target.require(name)
    for keep in (3, 100):
        with pytest.raises(CheckpointConflictError, match="another history"):
            import_checkpoints(target, export_checkpoints(filled(name), keep=keep))
    assert target.require(name) == before


@pytest.mark.parametrize("damage", ["gap", "empty", "version", "nonsense"])
def test_damaged_exports_are_refused(damage: str) -> None:
    exported = export_checkpoints(filled("orders"))
    if damage == "gap":
        del exported["checkpoints"]["orders"][3]
    elif damage == "empty":
        exported["checkpoints"]["orders"] = []
    elif damage == "version":
        exported["version"] = 99
    else:
        exported = {"what": 1}
    target = CheckpointStore(MemoryEventLog())
    with pytest.raises(CorruptDataError):
        import_checkpoints(target, exported)
    assert target.names() == []


def test_an_export_of_an_unknown_name_is_an_error(store: CheckpointStore) -> None:
    with pytest.raises(CheckpointNotFoundError):
        export_checkpoints(store, ["nobody"])


def test_compaction_moves_heads_and_fences_the_old_store(
    open_store: Opener, tmp_path: Path
) -> None:
    source = SqlCheckpointStore(f"sqlite:///{tmp_path / 'old.db'}")
    for name in ("a", "b", "c"):
        for n in range(6):
            step(source, f"{tmp_path}{name}", f"run-{n}")
    a, b, c = (f"{tmp_path}{name}" for name in ("a", "b", "c"))
    pending = take(source, b, "run-6")
    source.retire(c, "done with it")
    target = open_store()
    assert compact(source, target, keep=4) == [a, b]
    assert compact(source, open_store(), keep=4) == [a, b]
    assert target.head(c) is None
    with pytest.raises(CheckpointRetiredError):
        source.commit(pending, receipt(pending))
    with pytest.raises(CheckpointRetiredError):
        take(source, a, "run-9")
    assert target.commit(pending, receipt(pending)).run_key == "run-6"
    assert [e.sequence for e in open_store().history(a)] == [11, 10, 9, 8]
    made = step(open_store(), a, "run-6")
    assert (made.sequence, made.ranges[0].start) == (12, 30)
    source.close()
