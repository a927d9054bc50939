"""What this release wrote is read by every later one; what a newer one wrote is refused.

The golden files are never made anew: a change that cannot read them needs a new version number.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fluss_client.errors import CorruptDataError
from fluss_orchestrate.core.checkpoints import SqlCheckpointStore
from fluss_orchestrate.core.checkpoints.events import EVENT_VERSION, event_from_json
from fluss_orchestrate.core.checkpoints.position import TablePosition
from fluss_orchestrate.core.checkpoints.transfer import export_checkpoints, import_checkpoints
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.receipts import Receipt
from fluss_orchestrate.core.spark_submit.load_spec import BulkLoadSpec
from fluss_orchestrate.dagster.sensors.ticks import read_cursor
from tests.faults.specimens import (
    EVENT,
    LATER_EVENT,
    LATER_PLAN,
    LATER_RECEIPT,
    LOAD,
    MIRROR_PLAN,
    PLAN,
    POSITION,
    RECEIPT,
    event_in,
)

GOLDEN = Path(__file__).parent / "golden"


def golden(name: str) -> Any:
    return json.loads((GOLDEN / f"{name}.json").read_text())


def _event(value: Any) -> Any:
    return replace(event_from_json(value), nonce=EVENT.nonce)


def _load(value: Any) -> BulkLoadSpec:
    return BulkLoadSpec.from_json(json.dumps(value))


VERSIONED: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "plan": (ScanPlan.from_json, PLAN),
    "receipt": (Receipt.from_json, RECEIPT),
    "event": (_event, EVENT),
    "load-spec": (_load, LOAD),
    "plan-2": (ScanPlan.from_json, LATER_PLAN),
    "plan-3": (ScanPlan.from_json, MIRROR_PLAN),
    "receipt-moved": (Receipt.from_json, LATER_RECEIPT),
    "event-2": (_event, LATER_EVENT),
}


@pytest.mark.parametrize("name", sorted(VERSIONED))
def test_what_was_written_is_read(name: str) -> None:
    reader, expected = VERSIONED[name]
    assert reader(golden(name)) == expected


@pytest.mark.parametrize("name", sorted(VERSIONED))
@pytest.mark.parametrize("version", [EVENT_VERSION + 1, 99])
def test_what_a_newer_release_wrote_is_refused(name: str, version: int) -> None:
    with pytest.raises(CorruptDataError, match=r"newer fluss-orchestrate.*upgrade this one"):
        VERSIONED[name][0]({**golden(name), "version": version})


def test_positions_and_bodies_of_events_are_read() -> None:
    assert TablePosition.from_json(golden("position")) == POSITION
    kept = golden("event-body")
    assert event_in(kept["columns"], base64.b64decode(kept["body"])) == EVENT


def test_an_export_is_taken_in(tmp_path: Path) -> None:
    exported = golden("export")
    with SqlCheckpointStore(f"sqlite:///{tmp_path / 'store'}") as store:
        with pytest.raises(CorruptDataError, match="newer"):
            import_checkpoints(store, {**exported, "version": 2})
        assert store.names() == []
        assert import_checkpoints(store, exported) == [EVENT.name]
        assert export_checkpoints(store) == exported


def test_a_sensors_cursor_of_another_version_is_begun_anew() -> None:
    kept = golden("sensor-cursor")
    assert read_cursor(json.dumps(kept), "offsets") == {"0": 120}
    assert read_cursor(json.dumps({**kept, "version": 2}), "offsets") == {}
    assert read_cursor(json.dumps(kept), "another") == {}
