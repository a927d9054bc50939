"""Intervals of a table with many buckets: each row once, and records of what changed."""

from __future__ import annotations

import json
import zlib

import pytest

from fluss_client import FlussConnection
from fluss_orchestrate.core.checkpoints import CheckpointStore
from fluss_orchestrate.core.checkpoints.layers import WHOLE_PLACES_MAX
from fluss_orchestrate.core.incremental import IntervalScan
from tests.orchestrate.checkpoints.memory_log import MemoryEventLog
from tests.orchestrate.incremental.events import EventTables, rows
from tests.waiting import moment_between

DAYS, BUCKETS = 60, 5
INTERVALS, ROWS = 9, 20


@pytest.mark.parametrize("backend_kind", ["embedded"], indirect=True)
def test_each_interval_is_built_upon_the_boundary_where_it_begins(
    tables: EventTables, connection: FlussConnection
) -> None:
    days = [f"d{number}" for number in range(DAYS)]
    table = tables.days(*days, buckets=BUCKETS)
    log = MemoryEventLog()

    def scan() -> IntervalScan:
        """The scan of a task of its own, which knows nothing yet."""
        path = table.get_table_path()
        return IntervalScan(connection, path, "wide", CheckpointStore(log), settle_ms=0)

    bounds = [moment_between()]
    for number in range(INTERVALS):
        first = number * ROWS
        tables.append(table, rows(range(first, first + ROWS), days[number]))
        bounds.append(moment_between())
    read: list[int] = []
    for at in range(INTERVALS):
        since, until = bounds[at : at + 2]
        with scan().run(f"run-{at}", since, until) as run:
            mine = run.to_arrow()["id"].to_pylist()
        assert sorted(mine) == list(range(at * ROWS, (at + 1) * ROWS))
        read += mine
        again = scan().plan("another", since, until)
        assert again.ranges == run.plan.ranges
    assert sorted(read) == list(range(INTERVALS * ROWS))
    assert DAYS * BUCKETS > WHOLE_PLACES_MAX
    versions = [
        json.loads(zlib.decompress(record["body"]))["version"]
        for records in log.records.values()
        for record in records.values()
        if json.loads(zlib.decompress(record["body"]))["state"]["position"] is not None
    ]
    # The first boundary; the others, and a plan and a commit for each interval.
    assert sorted(versions) == [1] + [4] * (3 * INTERVALS)
