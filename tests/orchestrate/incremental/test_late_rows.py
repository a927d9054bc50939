"""Rows of expired partitions are in a system partition: they are read, noted, or refused.

Servers before 1.0 have no such partition. So one partition of a table plays it here: it has the
name of the system partition, is left out of the usual lists, and the table has the option that
makes a 1.0 server take late rows. `tests/fluss1/test_system_partitions.py` tests the request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from fluss_client import FlussTable, PartitionInfo
from fluss_client.engine import HISTORICAL_PARTITION
from fluss_client.errors import UnsupportedByServerError
from fluss_orchestrate.core.checkpoints.report import checkpoint_lag
from fluss_orchestrate.core.errors import LateRowsError
from fluss_orchestrate.core.incremental import IncrementalScan
from tests.orchestrate.incremental.events import EventTables, rows

MakeScan = Callable[..., IncrementalScan]
HISTORICAL_ENABLED = "table.datalake.historical-partition.enabled"
STAND_IN = "late"


class LateTable:
    """A table with a partition `day` and one for late rows."""

    def __init__(
        self, tables: EventTables, table: FlussTable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.table = table
        self._tables = tables
        backend = tables.connection.backend
        listed, described = backend.list_partitions, backend.get_table_info

        def renamed(info: PartitionInfo) -> PartitionInfo:
            return replace(info, partition_name=HISTORICAL_PARTITION)

        async def ordinary(path: Any, spec: Any) -> list[PartitionInfo]:
            # Asked for by its values, it is found: writers look for partitions so.
            found = await listed(path, spec)
            return [p for p in found if spec is not None or p.partition_name != STAND_IN]

        async def system(path: Any) -> list[PartitionInfo]:
            return [renamed(p) for p in await listed(path, None) if p.partition_name == STAND_IN]

        async def with_option(path: Any) -> Any:
            info = await described(path)
            return replace(info, properties={**info.properties, HISTORICAL_ENABLED: "true"})

        monkeypatch.setattr(backend, "list_partitions", ordinary, raising=False)
        monkeypatch.setattr(backend, "system_partitions", system, raising=False)
        monkeypatch.setattr(backend, "get_table_info", with_option, raising=False)

    def append(self, first: int, stop: int, day: str) -> None:
        self._tables.append(self.table, rows(range(first, stop), day))


@pytest.fixture
def late(tables: EventTables, monkeypatch: pytest.MonkeyPatch) -> LateTable:
    return LateTable(tables, tables.days("d1", STAND_IN), monkeypatch)


def ids(found: pa.Table) -> list[int]:
    return sorted(found["id"].to_pylist())


def test_late_rows_are_read(tables: EventTables, late: LateTable, make_scan: MakeScan) -> None:
    scan = make_scan(late.table, metadata_columns=("_partition",))
    late.append(0, 10, "d1")
    late.append(10, 25, STAND_IN)
    with scan.run("one") as run:
        found = run.to_arrow()
    assert ids(found) == list(range(25))
    assert set(found["_partition"].to_pylist()) == {"d1", HISTORICAL_PARTITION}
    late.append(25, 40, STAND_IN)
    assert checkpoint_lag(tables.connection, scan.store, scan.settings.name).offsets == 15
    with scan.run("two") as run:
        assert ids(run.to_arrow()) == list(range(25, 40))
        assert "late_rows" not in run.plan.to_json()
    with pytest.raises(LateRowsError, match="earlier plans"):
        make_scan(late.table, metadata_columns=("_partition",), on_late_rows="note").plan("three")


def test_a_plan_says_that_it_does_not_cover_them(late: LateTable, make_scan: MakeScan) -> None:
    scan = make_scan(late.table, on_late_rows="note")
    late.append(0, 10, "d1")
    late.append(10, 25, STAND_IN)
    with scan.run("one") as run:
        assert ids(run.to_arrow()) == list(range(10))
    assert run.receipt.details["late_rows"] == "not covered"
    # Those that were left out come when they are asked for.
    with make_scan(late.table).run("two") as run:
        assert ids(run.to_arrow()) == list(range(10, 25))
    assert "late_rows" not in run.receipt.details


def test_they_are_refused(
    tables: EventTables, late: LateTable, make_scan: MakeScan, monkeypatch: pytest.MonkeyPatch
) -> None:
    late.append(0, 10, STAND_IN)
    with pytest.raises(LateRowsError, match="on_late_rows='fail'"):
        make_scan(late.table, name="one", on_late_rows="fail").plan("a")
    with pytest.raises(LateRowsError, match="one by one"):
        make_scan(late.table, name="two", on_partition_gone="delete").plan("a")

    async def old(path: Any) -> list[PartitionInfo]:
        raise UnsupportedByServerError(f"{path}: it needs Fluss 1.0")

    monkeypatch.setattr(tables.connection.backend, "system_partitions", old)
    with pytest.raises(LateRowsError, match=r"needs Fluss 1\.0"):
        make_scan(late.table, name="three").plan("a")


def test_a_state_begins_after_the_late_rows_there_are(
    tables: EventTables, monkeypatch: pytest.MonkeyPatch, make_scan: MakeScan
) -> None:
    columns = {"id": pa.int64(), "day": pa.string()}
    made = tables.sure(
        columns,
        ["id", "day"],
        buckets=1,
        partition_keys=["day"],
        partitions=[{"day": "d1"}, {"day": STAND_IN}],
    )
    late = LateTable(tables, made, monkeypatch)
    tables.upsert(made, pa.table({"id": [1, 2], "day": ["d1", STAND_IN]}))
    scan = make_scan(late.table, start="state")
    with scan.run("one") as run:
        assert ids(run.to_arrow()) == [1]
    tables.upsert(made, pa.table({"id": [3], "day": [STAND_IN]}))
    with scan.run("two") as run:
        assert ids(run.to_arrow()) == [3]
