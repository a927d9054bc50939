"""A part of a log, read once and without a checkpoint."""

from __future__ import annotations

import pytest

from fluss_client import FlussConnection
from fluss_client.errors import PartitionNotExistError
from fluss_orchestrate.core.incremental.planning.planner import plan_once
from fluss_orchestrate.core.incremental.reading.reader import PlanReading
from tests.orchestrate.incremental.events import EventTables, rows


def test_ranges_columns_and_partitions(connection: FlussConnection, tables: EventTables) -> None:
    table = tables.days("d1", "d2", buckets=1)
    path = table.get_table_path()
    with table.new_append().create_writer() as writer:
        writer.write_arrow(rows(range(5), "d1"))
        writer.write_arrow(rows(range(5, 9), "d2"))
    whole = plan_once(connection, path)
    assert sorted(PlanReading(connection, whole).reader().read_all()["id"].to_pylist()) == [
        *range(9)
    ]
    second = plan_once(
        connection, path, columns=["id"], metadata_columns=["_offset"], partition="d2"
    )
    read = PlanReading(connection, second).reader().read_all()
    assert read.column_names == ["id", "_offset"]
    assert sorted(read["id"].to_pylist()) == [5, 6, 7, 8]
    assert read["_offset"].to_pylist() == [0, 1, 2, 3]
    place = second.ranges[0].place
    part = plan_once(connection, path, start={place: 1}, until={place: 3}, partition="d2")
    assert [(r.start, r.stop) for r in part.ranges] == [(1, 3)]
    with pytest.raises(PartitionNotExistError, match="has no partition 'd3'"):
        plan_once(connection, path, partition="d3")
