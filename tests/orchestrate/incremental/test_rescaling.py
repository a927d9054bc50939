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
import sqlalchemy as sa

from fluss_client import (
    ChangeType,
    FlussTable,
    OffsetSpec,
    RecordBatch,
    TableInfo,
    TablePath,
)
from fluss_client.aio.offsets import bucket_offsets
from fluss_client.engine import (
    Placement,
    all_buckets,
    async_connection,
    read_ranges,
    run_blocking,
)
from fluss_orchestrate.core.checkpoints.report import checkpoint_lag
from fluss_orchestrate.core.incremental import IncrementalScan
from tests.faults.recording import KILLS_PER_PART, FaultRecorder, parts_of
from tests.orchestrate.incremental.crasher import STAGES
from tests.orchestrate.incremental.events import COLUMNS, EventTables, rows
from tests.orchestrate.incremental.test_crashes import (
    KILLED,
    Crashers,
    _iceberg_files,
    _parquet_files,
    crashers,
)
from tests.orchestrate.rescaler import Rescaler

__all__ = ["crashers"]
SEED = 20261118
SINKS = ("parquet", "iceberg", "sql", "fluss log", "fluss keys")
ROUNDS_SHORT, ROUNDS_LONG = 8, 200
ROUNDS_OTHERS = 4
"""The rounds of the short form for the other sinks than Parquet."""
ROUNDS_WITHOUT = 3
"""Where nothing can be rescaled, only partitions are added."""
COUNT_MAX = 7
MakeScan = Callable[..., IncrementalScan]
Counts = dict[str, int]
"""The bucket counts of partitions by name."""


class Writer:
    """Appends rows to random partitions through a table that was opened before any rescale."""

    def __init__(self, tables: EventTables, table: FlussTable, days: list[str], seed: int) -> None:
        self.count = 0
        self.seed = seed
        self.days = days
        self._tables = tables
        self._table = table
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        rng = random.Random(self.seed)
        while not self._over.wait(0.02):
            size = rng.randrange(1, 20)
            found = rows(range(self.count, self.count + size), rng.choice(self.days))
            self._tables.append(self._table, found)
            self.count += size

    def stop(self) -> int:
        self._over.set()
        self._thread.join()
        return self.count


def check_placement(info: TableInfo, batch: pa.RecordBatch, buckets: Any, counts: Counts) -> None:
    """Every row is in the bucket that its key has by the count of its partition."""
    for day, count in counts.items():
        mine = pc.equal(batch.column("day"), day)
        found = pc.filter(buckets, mine).to_numpy(zero_copy_only=False)
        wanted = Placement(info).buckets(batch.filter(mine).select(info.get_column_names()), count)
        assert np.array_equal(found, np.zeros(len(found)) if wanted is None else wanted)


class Target:
    """The sink of the runs, and what is in it."""

    def __init__(self, tables: EventTables, kind: str, folder: Path) -> None:
        self.kind = kind
        self.tables = tables
        self.place = f"sqlite:///{folder}/sink.db" if kind == "sql" else str(folder)
        self.spec: dict[str, Any] = {"sink": kind}
        self.rescaler: Rescaler | None = None
        if kind.startswith("fluss"):
            keys = ["id", "day"] if kind == "fluss keys" else None
            table = tables.create(
                COLUMNS,
                keys,
                buckets=2,
                bucket_keys=["id"],
                partition_keys=["day"],
                partitions=[{"day": "d0"}],
            )
            self.path = table.get_table_path()
            self.place = str(self.path)
            self.rescaler = Rescaler(tables.connection, self.path, "d0")
            self.spec["metadata"] = []
        self.spec["folder"] = self.place

    def rescale(self, chance: random.Random) -> None:
        """Partitions that the sink creates from now on get another count."""
        if self.rescaler is not None:
            self.rescaler.rescale(chance.randrange(1, COUNT_MAX))

    def rows(self) -> pa.Table:
        """The rows, with the place that each was read from or is in."""
        if self.kind == "parquet":
            return pa.concat_tables(_parquet_files(Path(self.place)))
        if self.kind == "iceberg":
            return pa.concat_tables(_iceberg_files(Path(self.place)))
        if self.kind == "sql":
            engine = sa.create_engine(self.place)
            with engine.connect() as opened:
                found = opened.execute(sa.text("SELECT * FROM events")).mappings().all()
            engine.dispose()
            return pa.Table.from_pylist([dict(row) for row in found])
        return self._log()

    def _log(self) -> pa.Table:
        core = async_connection(self.tables.connection)
        info = self.tables.admin.get_table_info(self.path).result()

        async def read() -> list[RecordBatch]:
            places = await all_buckets(core.backend, info)
            ends = await bucket_offsets(core.backend, info, places, OffsetSpec.latest())
            ranges = {place: (0, ends[place]) for place in places}
            reading = read_ranges(core.backend, info, ranges, config=core.config)
            return [batch async for batch in reading]

        parts = []
        for batch in run_blocking(read()):
            if batch.change_types is not None:
                # Rows that were sent again would be updates.
                assert set(batch.change_types.to_pylist()) == {int(ChangeType.Insert)}
            buckets = pa.array([batch.bucket.bucket_id] * batch.batch.num_rows, pa.int32())
            parts.append(batch.batch.append_column("_bucket", buckets))
        return pa.Table.from_batches(parts)

    def check(self, source: TablePath, rows: pa.Table, counts: Counts) -> None:
        """Nothing is misplaced: in the source, or in the table that the sink writes."""
        path = source
        if self.rescaler is not None:
            path = self.path
            listed = self.tables.admin.list_partition_infos(path).result()
            info = self.tables.admin.get_table_info(path).result()
            counts = {p.partition_name: info.bucket_count_of(p) for p in listed}
        info = self.tables.admin.get_table_info(path).result()
        for batch in rows.combine_chunks().to_batches():
            check_placement(info, batch, batch.column("_bucket"), counts)
        if self.rescaler is None:
            check_offsets(rows)
        assert len(set(counts.values())) > 1 or not self._can_rescale

    @property
    def _can_rescale(self) -> bool:
        return self.tables.connection.backend.capabilities.rescaling


def check_offsets(rows: pa.Table) -> None:
    """The offsets of each place follow each other without a gap."""
    offsets: dict[Any, list[int]] = collections.defaultdict(list)
    for row in rows.select(["_partition", "_bucket", "_offset"]).to_pylist():
        offsets[row["_partition"], row["_bucket"]].append(row["_offset"])
    for mine in offsets.values():
        assert sorted(mine) == list(range(len(mine)))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", parts_of(ROUNDS_LONG))
@pytest.mark.parametrize(
    ("backend_kind", "sink"),
    [("plain", "parquet"), *(("embedded", sink) for sink in SINKS)],
    indirect=["backend_kind"],
)
def test_every_row_once_through_kills_and_rescales(
    tables: EventTables,
    settings: dict[str, Any],
    scan_database: str,
    crashers: Crashers,
    tmp_path: Path,
    long_form: bool,
    backend_kind: str,
    sink: str,
    part: int,
    record_fault: FaultRecorder,
) -> None:
    seed = SEED + part
    table = tables.days("d0", buckets=2)
    path = table.get_table_path()
    rescaler = Rescaler(tables.connection, path, "d0")
    target = Target(tables, sink, tmp_path)
    rng = random.Random(seed)
    spec = {
        "config": settings,
        "table": str(path),
        "database": scan_database,
        "store_table": "rescales",
        "name": f"rescales-{backend_kind}-{sink.replace(' ', '-')}",
        **target.spec,
    }
    writer = Writer(tables, table, ["d0"], seed)
    kills: collections.Counter[str] = collections.Counter()
    rounds = KILLS_PER_PART if long_form else ROUNDS_SHORT if sink == "parquet" else ROUNDS_OTHERS
    if not rescaler.can_rescale:
        rounds = ROUNDS_WITHOUT
    # In the short form the other sinks die at the stages that concern them.
    stages = STAGES if rounds >= ROUNDS_SHORT or not rescaler.can_rescale else STAGES[3:]
    try:
        for number in range(rounds):
            stage = stages[number % len(stages)]
            run = spec | {"run_key": f"run-{number}", "stage": stage, "seed": rng.random()}
            if rng.random() < 0.3:
                run["max_offsets"] = rng.randrange(1, 60)
            code = crashers.run(run)
            assert code in (0, KILLED), stage
            kills[stage] += code == KILLED
            # Between the kill and whoever adopts the plan and commits it.
            rescaler.rescale(rng.randrange(1, COUNT_MAX))
            target.rescale(rng)
            if number % 4 == 0 or not long_form:
                day = f"d{number + 1}"
                rescaler.add(day)
                writer.days.append(day)
            if rng.random() < 0.3:
                assert crashers.run(run | {"stage": "", "seed": 0}) == 0
    finally:
        count = writer.stop()
    assert crashers.run(spec | {"run_key": "last", "stage": "", "seed": 0}) == 0
    rows = target.rows()
    ids = collections.Counter(rows["id"].to_pylist())
    record_fault(
        f"kill -9 of incremental jobs through rescales ({sink}, {backend_kind})",
        sum(kills.values()),
        lost=len(set(range(count)) - ids.keys()),
        doubled=ids.total() - len(ids),
        seed=seed,
        stages=kills,
    )
    assert sorted(ids.elements()) == list(range(count))
    target.check(path, rows, rescaler.counts)


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
