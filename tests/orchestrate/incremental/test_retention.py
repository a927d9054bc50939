"""Retention that passes a checkpoint, and logs that move to remote storage or lose their tail.

On the embedded engine and on a cluster of its own with tiny segments, which retention, remote
storage and a server's crash can work on within seconds.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fluss_client import Config, FlussConnection, FlussTable
from fluss_client.model.cluster import BucketCommit, OffsetSpec
from fluss_client.model.table import TableBucket
from fluss_client.runtime import runtime
from fluss_client.testing import LocalCluster
from fluss_orchestrate.core.checkpoints import CheckpointStore
from fluss_orchestrate.core.errors import (
    LogWentBackwardsError,
    RetentionPassedError,
)
from fluss_orchestrate.core.incremental import IncrementalScan
from fluss_orchestrate.core.job import run_increment
from fluss_orchestrate.core.lake import tier_table
from fluss_orchestrate.core.plan import METADATA_COLUMNS, ScanPlan
from fluss_orchestrate.core.sinks import SqlSink
from tests.fix_cluster import discard
from tests.orchestrate.checkpoints.memory_log import MemoryEventLog
from tests.orchestrate.incremental.events import EventTables
from tests.orchestrate.incremental.test_times import cuts_of, true_cuts
from tests.waiting import moment_between, scaled, wait_until

COLUMNS = {"id": pa.int64(), "text": pa.string()}
BATCH_ROWS = 100
TEXT_BYTES = 600
PATIENCE_S = 90

_numbers = itertools.count()


def expiring_properties() -> dict[str, str]:
    """Rows live for long enough to be read once, also on a busy machine."""
    seconds = math.ceil(scaled(2))
    return {"table.log.ttl": f"{seconds}s", "table.log.tiered.local-segments": "1"}


@pytest.fixture(scope="module")
def short_cluster(
    server_jars: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    """A cluster that rolls, copies and deletes segments quickly."""
    cluster = LocalCluster(
        tmp_path_factory.mktemp("short") / "cluster",
        tablet_servers=1,
        lake="iceberg",
        config={
            "remote.log.task-interval-duration": "1s",
            "log.segment.file-size": "100kb",
            "default.replication.factor": "1",
        },
    )
    cluster.up()
    yield cluster
    discard(cluster)


@pytest.fixture(scope="module", params=["embedded", "short"])
def expiring(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EventTables]:
    """Tables whose rows go away."""
    if request.param == "short":
        address = request.getfixturevalue("short_cluster").info.bootstrap_servers
    else:
        address = f"embedded:{tmp_path_factory.mktemp('expiring')}"
    with FlussConnection.create(Config({"bootstrap.servers": address})).result() as connection:
        admin = connection.get_admin().result()
        admin.create_database("expiring", ignore_if_exists=True).result()
        yield EventTables(connection, admin, "expiring")


def batch(first: int, count: int = BATCH_ROWS) -> pa.Table:
    numbers = range(first, first + count)
    texts = [os.urandom(TEXT_BYTES // 2).hex() for _ in numbers]
    return pa.table({"id": list(numbers), "text": texts}, schema=pa.schema(list(COLUMNS.items())))


def offset(tables: EventTables, table: FlussTable, spec: OffsetSpec) -> int:
    info = table.get_table_info()
    return runtime().call(tables.connection.backend.list_offsets(info, None, [0], spec))[0]


def earliest(tables: EventTables, table: FlussTable) -> int:
    return offset(tables, table, OffsetSpec.earliest())


def expire_past(tables: EventTables, table: FlussTable, wanted: int, first: int) -> int:
    """Write until retention has passed an offset; gives the next id."""
    position = itertools.count(first, BATCH_ROWS)

    def look() -> int:
        tables.append(table, batch(next(position)))
        return earliest(tables, table)

    wait_until("retention", lambda: look() > wanted, PATIENCE_S, pause_s=0.2)
    return next(position)


def scan_of(tables: EventTables, table: FlussTable, **options: Any) -> IncrementalScan:
    options.setdefault("store", CheckpointStore(MemoryEventLog()))
    options.setdefault("settle_ms", 0)
    name = options.pop("name", f"scan-{next(_numbers)}")
    return IncrementalScan(tables.connection, table.get_table_path(), name, **options)


@pytest.mark.timeout(300)
def test_retention_passes_the_position(expiring: EventTables, tmp_path: Path) -> None:
    table = expiring.sure(COLUMNS, None, properties=expiring_properties())
    store = CheckpointStore(MemoryEventLog())
    scan = scan_of(expiring, table, store=store, name="one")
    expiring.append(table, batch(0))
    sink = SqlSink(f"sqlite:///{tmp_path}/sink.db", "rows")
    positioned = {"store": store, "name": "sql", "on_retention": "earliest"}
    assert run_increment(scan_of(expiring, table, **positioned), sink, "one").rows == BATCH_ROWS
    with scan.run("one") as run:
        assert run.to_arrow().num_rows == BATCH_ROWS
    expiring.append(table, batch(BATCH_ROWS))
    left = scan.plan("two")
    assert scan.read(left).read_all().num_rows == BATCH_ROWS
    expire_past(expiring, table, 2 * BATCH_ROWS, 2 * BATCH_ROWS)
    with pytest.raises(RetentionPassedError) as caught:
        scan.read(left)
    assert caught.value.ranges == left.ranges
    store.abandon("one")
    with pytest.raises(RetentionPassedError, match="on_retention='lake'") as caught:
        scan.plan("three")
    (lost,) = caught.value.ranges
    assert (lost.start, lost.stop) == (
        BATCH_ROWS,
        pytest.approx(earliest(expiring, table), abs=1e6),
    )
    assert lost.stop > 2 * BATCH_ROWS
    tolerant = scan_of(expiring, table, store=store, name="one", on_retention="earliest")
    with tolerant.run("four") as run:
        found = run.to_arrow()["id"].to_pylist()
    assert run.receipt is not None
    (reported,) = run.receipt.details["lost_ranges"]
    assert reported[3] == BATCH_ROWS
    assert found == list(range(reported[4], reported[4] + len(found)))
    assert run.plan.ranges[0].start == reported[4]

    # A sink that keeps a position goes on behind the gap, too.
    after = run_increment(scan_of(expiring, table, **positioned), sink, "two")
    assert after.receipt.details["lost_ranges"]
    assert after.rows > 0
    expiring.append(table, batch(0))
    again = run_increment(scan_of(expiring, table, **positioned), sink, "three")
    assert again.rows > 0


@pytest.mark.timeout(300)
def test_a_new_partition_that_retention_has_reached_is_not_skipped(
    expiring: EventTables,
) -> None:
    table = expiring.sure(
        {**COLUMNS, "day": pa.string()},
        None,
        partition_keys=["day"],
        partitions=[{"day": "d1"}],
        properties=expiring_properties(),
    )
    scan = scan_of(expiring, table, start="latest")
    with scan.run("one") as run:
        assert run.plan.is_empty
    path = table.get_table_path()
    expiring.admin.create_partition(path, {"day": "d2"}).result()
    backend = expiring.connection.backend
    info = table.get_table_info()
    partition = runtime().call(backend.partition_id(info, "d2"))
    number = itertools.count(0, BATCH_ROWS)

    def look() -> int:
        data = batch(next(number))
        expiring.append(table, data.append_column("day", pa.array(["d2"] * data.num_rows)))
        return runtime().call(backend.list_offsets(info, partition, [0], OffsetSpec.earliest()))[0]

    wait_until("retention", lambda: look() > 0, PATIENCE_S, pause_s=0.2)
    with pytest.raises(RetentionPassedError) as caught:
        scan.plan("two")
    (lost,) = caught.value.ranges
    assert (lost.partition, lost.start) == ("d2", 0)


@pytest.mark.timeout(300)
def test_the_lake_gives_what_retention_took(expiring: EventTables) -> None:
    """The lost range comes from the reader of the lake, the rest from the log, in one stream."""
    table = expiring.sure(COLUMNS, None, properties=expiring_properties())
    kept = scan_of(expiring, table, metadata_columns=["_offset"])
    store = CheckpointStore(MemoryEventLog())
    first = scan_of(expiring, table, store=store, name="lake", metadata_columns=["_offset"])
    with first.run("one") as run:
        assert run.plan.is_empty
    copies: list[pa.Table] = []
    number = itertools.count(0, BATCH_ROWS)

    def look() -> int:
        expiring.append(table, batch(next(number)))
        with kept.run(f"copy-{len(copies)}") as run:
            copies.append(run.to_arrow())
        return earliest(expiring, table)

    wait_until("retention", lambda: look() > 150, PATIENCE_S, pause_s=0.2)
    everything = pa.concat_tables(copies)
    asked: list[ScanPlan] = []

    def from_lake(plan: ScanPlan) -> Iterator[pa.RecordBatch]:
        asked.append(plan)
        (part,) = plan.ranges
        yield from everything.slice(part.start, part.count).to_batches()

    def lake_scan(reader: Any) -> IncrementalScan:
        return scan_of(
            expiring,
            table,
            store=store,
            name="lake",
            metadata_columns=["_offset"],
            on_retention="lake",
            lake_reader=reader,
        )

    for reader in (None, from_lake):
        with pytest.raises(RetentionPassedError, match="does not hold it either"):
            lake_scan(reader).plan("two")
    tier_offsets(expiring, table, everything.num_rows)
    scan = lake_scan(from_lake)
    plan = scan.plan("two")
    assert plan.ranges[0].start == 0
    found = scan.read(plan).read_all()
    assert found["_offset"].to_pylist() == list(range(plan.ranges[0].stop))
    assert asked[0].ranges[0].start == 0
    short = lake_scan(lambda plan: list(from_lake(plan))[:-1])
    with pytest.raises(Exception, match="the lake gave"):
        short.read(plan).read_all()
    assert scan.commit(plan).rows == found.num_rows


@pytest.mark.timeout(300)
def test_a_tiered_table_is_read_whole_after_retention(expiring: EventTables) -> None:
    """From Iceberg what the log has lost, from the log the rest; and ends at a lake snapshot."""
    table = expiring.sure(
        COLUMNS, None, properties=expiring_properties() | {"table.datalake.enabled": "true"}
    )
    path = table.get_table_path()
    store = CheckpointStore(MemoryEventLog())
    scan = scan_of(expiring, table, store=store, name="tiered", on_retention="lake")
    with scan.run("one") as run:
        assert run.plan.is_empty
    expiring.append(table, batch(0))
    expiring.append(table, batch(BATCH_ROWS))
    tier_table(expiring.connection, path, allow_tiering=True)
    follower = scan_of(expiring, table, name="follower")
    expiring.append(table, batch(2 * BATCH_ROWS))
    with follower.run("one", until="lake") as run:
        assert run.to_arrow()["id"].to_pylist() == list(range(2 * BATCH_ROWS))
    number = itertools.count(3 * BATCH_ROWS, BATCH_ROWS)

    def look() -> int:
        expiring.append(table, batch(next(number)))
        tier_table(expiring.connection, path, allow_tiering=True)
        return earliest(expiring, table)

    wait_until("retention", lambda: look() > BATCH_ROWS, PATIENCE_S, pause_s=0.2)
    plan = scan.plan("two")
    assert plan.ranges[0].start == 0
    first = scan.read(plan).read_all()
    assert first["id"].to_pylist() == list(range(plan.ranges[0].stop))
    expiring.append(table, batch(next(number)))
    assert scan.read(plan).read_all().equals(first)
    receipt = scan.commit(plan)
    assert receipt.rows == first.num_rows
    assert receipt.details["lake_ranges"][0][3] == 0
    with scan.run("three") as run:
        assert run.to_arrow().num_rows == BATCH_ROWS


def tier_offsets(tables: EventTables, table: FlussTable, stop: int) -> None:
    """Say that the lake holds everything below an offset; nobody checks that."""
    backend, info = tables.connection.backend, table.get_table_info()
    bucket = TableBucket(info.table_id, 0)

    async def tier() -> None:
        path = await backend.prepare_lake_snapshot(info, {bucket: stop}, False)
        await backend.commit_lake_snapshot(info, 1, path, [BucketCommit(bucket, stop)], None)

    runtime().call(tier())


@pytest.mark.cluster
@pytest.mark.timeout(300)
def test_a_time_cuts_alike_before_and_after_segments_went_to_remote_storage(
    short_cluster: LocalCluster,
) -> None:
    config = Config({"bootstrap.servers": short_cluster.info.bootstrap_servers})
    with FlussConnection.create(config).result() as connection:
        admin = connection.get_admin().result()
        admin.create_database("remote", ignore_if_exists=True).result()
        tables = EventTables(connection, admin, "remote")
        table = tables.sure(COLUMNS, None, properties={"table.log.tiered.local-segments": "1"})
        for number in range(8):
            tables.append(table, batch(number * BATCH_ROWS))
            moment_between()
        scan = scan_of(tables, table, metadata_columns=METADATA_COLUMNS)
        everything = scan.read(scan.plan("x")).read_all()
        times = sorted(set(everything["_timestamp"].cast(pa.int64()).to_pylist()))
        wanted = [*times, *(t + 1 for t in times)]
        expected = {when: true_cuts(everything, 1, when) for when in wanted}
        assert {when: cuts_of(connection, table, when) for when in wanted} == expected
        remote = Path(short_cluster.info.dir) / "remote" / "log" / "remote"
        name = table.get_table_path().table_name

        def copied() -> int:
            return len(list(remote.glob(f"{name}-*/**/*.log")))

        for number in range(8, 14):
            tables.append(table, batch(number * BATCH_ROWS))
        wait_until("the copies", lambda: copied() >= 4, PATIENCE_S)
        hints = {when: offset(tables, table, OffsetSpec.timestamp(when)) for when in wanted}
        assert {when: cuts_of(connection, table, when) for when in wanted} == expected, hints


@pytest.mark.cluster
@pytest.mark.timeout(300)
def test_a_server_that_lost_rows_is_noticed(short_cluster: LocalCluster) -> None:
    """The server is killed, the end of its log cut off, and new rows take the same offsets."""
    config = Config({"bootstrap.servers": short_cluster.info.bootstrap_servers})
    with FlussConnection.create(config).result() as connection:
        admin = connection.get_admin().result()
        admin.create_database("losing", ignore_if_exists=True).result()
        tables = EventTables(connection, admin, "losing")
        table = tables.sure(COLUMNS, None)
        store = CheckpointStore(MemoryEventLog())
        scan = scan_of(tables, table, store=store, name="one", backwards_wait_ms=500)
        tables.append(table, batch(0, 10))
        data = Path(short_cluster.info.dir) / "data"
        name = table.get_table_path().table_name
        (segment,) = data.glob(f"*/losing/{name}-*/log-0/*.log")
        whole = segment.stat().st_size
        tables.append(table, batch(10, 20))
        with scan.run("one") as run:
            assert run.to_arrow().num_rows == 30
        short_cluster.kill("tablet-1")
        with segment.open("r+b") as file:
            file.truncate(whole)
        short_cluster.start("tablet-1")
        with pytest.raises(LogWentBackwardsError, match="ends before") as caught:
            scan.plan("two")
        assert caught.value.ranges[0].stop == 30
        tables.append(table, batch(1000, 25))
        tables.append(table, batch(1025, 25))
        plan = scan.plan("two")
        with pytest.raises(LogWentBackwardsError, match="committed at"):
            scan.read(plan).read_all()
        scan.reset("earliest", "the server lost rows", abandon_pending=True)
        with scan.run("three") as run:
            assert run.to_arrow()["id"].to_pylist()[-50:] == list(range(1000, 1050))
