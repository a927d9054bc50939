"""What people are shown of checkpoints."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from fluss_client import FlussConnection
from fluss_orchestrate.core.checkpoints import CheckpointStore
from fluss_orchestrate.core.checkpoints.report import (
    checkpoint_lag,
    list_checkpoints,
    show_checkpoint,
)
from fluss_orchestrate.core.errors import CheckpointNotFoundError, TableIdentityChangedError
from fluss_orchestrate.core.incremental import IncrementalScan
from tests.orchestrate.incremental.events import EventTables, rows

DAY_MS = 86_400_000


def test_list_show_and_lag(
    connection: FlussConnection,
    tables: EventTables,
    make_scan: Callable[..., IncrementalScan],
    store: CheckpointStore,
) -> None:
    table = tables.days("d1", "d2", buckets=1)
    tables.append(table, rows(range(10), "d1"))
    scan = make_scan(table, name="loads")
    with scan.run("one") as run:
        run.to_arrow()
        run.details["file"] = "x.parquet"
    assert checkpoint_lag(connection, store, "loads").places == ()
    tables.append(table, rows(range(7), "d2"))
    plan = scan.plan("two")
    (line,) = list_checkpoints(store)
    assert (line.name, line.sequence, line.last_event) == ("loads", 2, "plan")
    assert (line.pending_run_key, line.pending_plan_id) == ("two", plan.plan_id)
    assert line.table == plan.table.uri
    newest, commit, first = show_checkpoint(store, "loads")
    assert [e.kind for e in (newest, commit, first)] == ["plan", "commit", "plan"]
    assert (commit.rows, commit.offsets, commit.run_key) == (10, 10, "one")
    assert commit.details["file"] == "x.parquet"
    assert newest.details["until"] == "latest"
    lag = checkpoint_lag(connection, store, "loads")
    (place,) = lag.places
    assert (place.partition, place.offsets, place.position, place.lost) == ("d2", 7, 0, 0)
    assert 0 <= lag.age_ms < 60_000
    assert lag.expires_in_ms is not None
    assert 6 * DAY_MS < lag.expires_in_ms <= 7 * DAY_MS
    json.dumps([line.to_json(), newest.to_json(), commit.to_json(), lag.to_json()])
    tables.recreate(table)
    with pytest.raises(TableIdentityChangedError):
        checkpoint_lag(connection, store, "loads")
    with pytest.raises(CheckpointNotFoundError):
        show_checkpoint(store, "nobody")
