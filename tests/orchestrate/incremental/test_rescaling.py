"""Increments of a table whose bucket count is changed: no row is skipped, doubled or misplaced.

Servers before 1.0 refuse to change it. There, the same programs run with one count for all
partitions, after it was checked that the refusal changes nothing. The embedded engine rescales.
"""

from __future__ import annotations

import collections
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fluss_client import FlussTable, TablePath
from fluss_client.engine import Placement
from fluss_orchestrate.core.checkpoints.report import checkpoint_lag
from fluss_orchestrate.core.incremental import IncrementalScan
from tests.faults.recording import FaultRecorder
from tests.orchestrate.incremental.crasher import STAGES
from tests.orchestrate.incremental.events import EventTables, rows
from tests.orchestrate.incremental.test_crashes import (
    KILLED,
    Crashers,
    _parquet_files,
    check_sink,
    crashers,
    sink_ids,
)
from tests.orchestrate.rescaler import Rescaler

__all__ = ["crashers"]
SEED = 20261118
ROUNDS_SHORT, ROUNDS_LONG = 8, 200
ROUNDS_WITHOUT = 3
"""Where nothing can be rescaled, only partitions are added."""
COUNT_MAX = 7
MakeScan = Callable[..., IncrementalScan]


class Writer:
    """Appends rows to random partitions through a table that was opened before any rescale."""

    def __init__(self, tables: EventTables, table: FlussTable, days: list[str]) -> None:
        self.count = 0
        self.days = days
        self._tables = tables
        self._table = table
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        rng = random.Random(SEED)
        while not self._over.wait(0.02):
            size = rng.randrange(1, 20)
            found = rows(range(self.count, self.count + size), rng.choice(self.days))
            self._tables.append(self._table, found)
            self.count += size

    def stop(self) -> int:
        self._over.set()
        self._thread.join()
        return self.count


def check_places(
    tables: EventTables, path: TablePath, folder: Path, counts: dict[str, int]
) -> None:
    """Every row is in the bucket that its key has by the count of its partition."""
    info = tables.admin.get_table_info(path).result(30)
    placement = Placement(info)
    for table in _parquet_files(folder):
        for day, count in counts.items():
            mine = table.filter(pc.equal(table["day"], day))
            for batch in mine.combine_chunks().to_batches():
                found = batch.column("_bucket").to_numpy()
                wanted = placement.buckets(batch.select(["id", "text", "day"]), count)
                assert np.array_equal(found, np.zeros(len(found)) if wanted is None else wanted)


@pytest.mark.timeout(3600)
def test_every_row_once_through_kills_and_rescales(
    tables: EventTables,
    settings: dict[str, Any],
    scan_database: str,
    crashers: Crashers,
    tmp_path: Path,
    long_form: bool,
    backend_kind: str,
    record_fault: FaultRecorder,
) -> None:
    table = tables.days("d0", buckets=2)
    path = table.get_table_path()
    rescaler = Rescaler(tables.connection, path, "d0")
    rng = random.Random(SEED)
    folder = tmp_path / "sink"
    folder.mkdir()
    spec = {
        "config": settings,
        "table": str(path),
        "database": scan_database,
        "store_table": "rescales",
        "name": f"rescales-{backend_kind}",
        "sink": "parquet",
        "folder": str(folder),
    }
    writer = Writer(tables, table, ["d0"])
    kills: collections.Counter[str] = collections.Counter()
    rounds = ROUNDS_LONG if long_form else ROUNDS_SHORT
    if not rescaler.can_rescale:
        rounds = ROUNDS_WITHOUT
    try:
        for number in range(rounds):
            stage = STAGES[number % len(STAGES)]
            run = spec | {"run_key": f"run-{number}", "stage": stage, "seed": rng.random()}
            if rng.random() < 0.3:
                run["max_offsets"] = rng.randrange(1, 60)
            code = crashers.run(run)
            assert code in (0, KILLED), stage
            kills[stage] += code == KILLED
            # Between the kill and whoever adopts the plan and commits it.
            rescaler.rescale(rng.randrange(1, COUNT_MAX))
            if number % 4 == 0 or not long_form:
                day = f"d{number + 1}"
                rescaler.add(day)
                writer.days.append(day)
            if rng.random() < 0.3:
                assert crashers.run(run | {"stage": "", "seed": 0}) == 0
    finally:
        count = writer.stop()
    assert crashers.run(spec | {"run_key": "last", "stage": "", "seed": 0}) == 0
    ids = sink_ids("parquet", folder)
    record_fault(
        f"kill -9 of incremental jobs through rescales ({backend_kind})",
        sum(kills.values()),
        lost=len(set(range(count)) - ids.keys()),
        doubled=ids.total() - len(ids),
        seed=SEED,
        stages=kills,
    )
    check_sink("parquet", folder, count)
    check_places(tables, path, folder, rescaler.counts)
    assert len(set(rescaler.counts.values())) > 1 or not rescaler.can_rescale


def test_a_plan_stays_what_it_is(tables: EventTables, make_scan: MakeScan) -> None:
    table = tables.days("d0", buckets=2)
    rescaler = Rescaler(tables.connection, table.get_table_path(), "d0")
    tables.append(table, rows(range(40), "d0"))
    scan = make_scan(table, metadata_columns=("_partition", "_bucket"))
    plan = scan.plan("one")
    rescaler.rescale(5)
    rescaler.add("d1")
    tables.append(table, rows(range(40, 100), "d1"))
    assert scan.plan("one") == plan
    with scan.run("one") as run:
        first = run.to_arrow()
    assert sorted(first["id"].to_pylist()) == list(range(40))
    with scan.run("two") as run:
        second = run.to_arrow()
    assert sorted(second["id"].to_pylist()) == list(range(40, 100))
    places = set(zip(second["_partition"].to_pylist(), second["_bucket"].to_pylist(), strict=True))
    assert places == {("d1", bucket) for bucket in range(rescaler.counts["d1"])}
    with scan.run("three") as run:
        assert run.to_arrow().num_rows == 0


def test_the_report_counts_every_bucket(tables: EventTables, make_scan: MakeScan) -> None:
    table = tables.days("d0", buckets=2)
    rescaler = Rescaler(tables.connection, table.get_table_path(), "d0")
    scan = make_scan(table)
    with scan.run("one") as run:
        run.to_arrow()
    rescaler.rescale(6)
    rescaler.add("d1")
    tables.append(table, rows(range(80), "d1"))
    found = checkpoint_lag(tables.connection, scan.store, scan.settings.name)
    assert found.offsets == 80


@pytest.mark.parametrize("until", ["latest", "times"])
def test_starts_and_ends_name_every_bucket(
    tables: EventTables, make_scan: MakeScan, until: str
) -> None:
    table = tables.days("d0", buckets=1)
    rescaler = Rescaler(tables.connection, table.get_table_path(), "d0")
    rescaler.rescale(4)
    rescaler.add("d1")
    tables.append(table, rows(range(30), "d0"))
    tables.append(table, rows(range(30, 90), "d1"))
    scan = make_scan(table, start="latest")
    with scan.run("one") as run:
        assert run.to_arrow().num_rows == 0
    tables.append(table, rows(range(90, 150), "d1"))
    with scan.run("two") as run:
        assert sorted(run.to_arrow()["id"].to_pylist()) == list(range(90, 150))
    if until == "times":
        whole = make_scan(table, name="whole")
        ends = {(part.partition_id, part.bucket): part.stop for part in whole.plan("all").ranges}
        again = make_scan(table, name="again")
        with again.run("one", until=ends) as run:
            assert run.to_arrow().num_rows == 150


def test_a_state_has_every_bucket(tables: EventTables, make_scan: MakeScan) -> None:
    table = tables.sure(
        {"id": pa.int64(), "day": pa.string(), "v": pa.int32()},
        ["id", "day"],
        buckets=2,
        partition_keys=["day"],
        partitions=[{"day": "d0"}],
    )
    rescaler = Rescaler(tables.connection, table.get_table_path(), "d0")
    rescaler.rescale(5)
    rescaler.add("d1")
    for day in ("d0", "d1"):
        found = {"id": list(range(50)), "day": [day] * 50, "v": pa.array([1] * 50, pa.int32())}
        tables.upsert(table, pa.table(found))
    scan = make_scan(table, start="state")
    with scan.run("one") as run:
        state = run.to_arrow()
    keys = sorted(zip(state["day"].to_pylist(), state["id"].to_pylist(), strict=True))
    assert keys == [(day, n) for day in ("d0", "d1") for n in range(50)]
