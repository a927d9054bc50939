"""Key tables by Spark: mirrors in Iceberg, tiering into the lake, reading lake and changelog."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fluss_client import Config, FlussConnection
from fluss_orchestrate import MaintenanceSettings, maintain_lake, tier_table, verify_mirror
from fluss_orchestrate.core.checkpoints import CheckpointStore
from fluss_orchestrate.core.clusters import ClusterRef
from fluss_orchestrate.core.lake.catalog import open_catalog
from fluss_orchestrate.core.lake.equality_deletes import live_files
from fluss_orchestrate.core.lake.maintenance import compaction
from fluss_orchestrate.core.lake.maintenance import run as maintenance
from fluss_orchestrate.core.mirror.table import mirror_scan, mirror_table
from fluss_orchestrate.core.sinks import ParquetSink, SinkFormError
from fluss_orchestrate.core.sinks.contract import ContractSink
from fluss_orchestrate.spark.iceberg import SparkIcebergSink, SparkRangeWriter
from fluss_orchestrate.spark.lake_maintenance import SparkGroupWriter
from fluss_orchestrate.spark.source.options import offsets_json
from tests.fix_either import own_database
from tests.orchestrate.checkpoints.memory_log import MemoryEventLog
from tests.orchestrate.lake.key_programs import KeyTable, make_key_table
from tests.orchestrate.mirror.iceberg_source import (
    TABLE,
    Duck,
    Source,
    catalog_properties,
    without_nulls,
)
from tests.spark.conftest import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(400)

SEED = 20261118
CHECKPOINT = "by spark"


def spark_sink(spark: SparkSession, place: Place, folder: Path, **more: Any) -> SparkIcebergSink:
    catalog = open_catalog(catalog_properties(folder))
    given = {"form": "mirror", "schema_policy": "add_columns", "tasks": 3, **more}
    return SparkIcebergSink(spark, place.ref, catalog, TABLE, **given)


def test_a_mirror_whose_files_executors_write(
    spark: SparkSession, place: Place, tmp_path: Path
) -> None:
    """State, changes, a new column, a crash before the commit, a rebuild: equal after each."""
    chance, duck = random.Random(SEED), Duck()
    with own_database(place.connection, "sparkmirror") as database:
        source = Source(place.connection, database, partitioned=False, buckets=3)
        sink = spark_sink(spark, place, tmp_path, partition_by=["bucket(2, id)"])
        store = CheckpointStore(MemoryEventLog())

        def run(key: str) -> Any:
            return mirror_table(
                place.connection,
                source.path,
                sink,
                key,
                checkpoint=CHECKPOINT,
                store=store,
                scan_options={"settle_ms": 0},
            )

        def check() -> None:
            assert duck.rows(tmp_path) == without_nulls(source.model)
            found = verify_mirror(place.connection, source.path, sink, CHECKPOINT, store=store)
            assert found.equal, str(found)

        source.change(chance, 30)
        run("1")
        check()
        source.add_column("more")
        source.change(chance, 30)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(CheckpointStore, "commit", interrupted)
            with pytest.raises(KeyboardInterrupt):
                run("2")
        check()
        source.change(chance, 10)
        run("2")
        run("3")
        check()
        scan = mirror_scan(place.connection, source.path, CHECKPOINT, store=store)
        scan.reset("start", "a rebuild")
        run("4")
        check()
    duck.close()


def interrupted(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_what_executors_cannot_do_is_refused(
    spark: SparkSession, place: Place, tmp_path: Path
) -> None:
    with own_database(place.connection, "sparkmirror") as database:
        source = Source(place.connection, database, partitioned=False)
        source.change(random.Random(SEED), 5)
        sink = spark_sink(spark, place, tmp_path, write_mode="copy_on_write")
        with pytest.raises(SinkFormError, match="write_mode='equality'"):
            mirror_table(
                place.connection,
                source.path,
                sink,
                "1",
                checkpoint=CHECKPOINT,
                store=CheckpointStore(MemoryEventLog()),
            )
    bad = ParquetSink(str(tmp_path / "bad"))
    sink = spark_sink(spark, place, tmp_path)
    with pytest.raises(SinkFormError, match="no rule could keep rows out"):
        ContractSink(sink, ["id > 0"], "quarantine", bad)
    assert ContractSink(sink, ["id > 0"]).identity == sink.identity


@pytest.fixture(scope="module")
def lake_place(lake_address: str) -> Iterator[Place]:
    config = Config({"bootstrap.servers": lake_address, "cluster.alias": "default"})
    with (
        FlussConnection.create(config).result() as connection,
        own_database(connection, "sparkkeys") as name,
    ):
        yield Place(lake_address, connection, name)


@pytest.mark.parametrize("partitioned", [False, True])
def test_tiering_and_reading_a_key_table(
    spark: SparkSession, lake_place: Place, partitioned: bool
) -> None:
    """Executors write data and deletes of each bucket; union and lake are read by executors."""
    table = make_key_table(
        lake_place.connection,
        lake_place.database,
        "parts" if partitioned else "plain",
        partitioned=partitioned,
    )
    write = SparkRangeWriter(spark, lake_place.ref, tasks=2)
    chance = random.Random(SEED)
    for _ in range(3):
        table.upsert([chance.randrange(24) for _ in range(14)])
        table.delete(sorted({chance.randrange(24) for _ in range(4)}))
        tier_table(lake_place.connection, table.path, allow_tiering=True, write=write)
        table.in_lake = dict(table.model)
        table.check()
    table.upsert([chance.randrange(24) for _ in range(6)])
    table.delete([chance.randrange(24)])
    assert by_spark(spark, lake_place, table, "lake") == table.in_lake
    assert by_spark(spark, lake_place, table, "union") == table.model
    assert by_spark(spark, lake_place, table, "current") == table.model
    target, then = table.moment()
    at = json.dumps(offsets_json(target.offsets))
    table.upsert([chance.randrange(24) for _ in range(6)])
    for read in ("union", "current"):
        assert by_spark(spark, lake_place, table, read, as_of=at) == then
    with pytest.raises(Exception, match="lake snapshot is read as it is"):
        by_spark(spark, lake_place, table, "lake", as_of=at)


def test_maintenance_by_executors(
    spark: SparkSession, lake_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors write the files anew; the driver commits them, again after tiering came first."""
    monkeypatch.setattr(compaction, "write_compacted", not_here)
    table = make_key_table(
        lake_place.connection, lake_place.database, "maintained", partitioned=True
    )
    write = SparkGroupWriter(spark, lake_place.ref, tasks=3)
    settings = MaintenanceSettings(snapshot_age_ms=0, keep_snapshots=1)
    chance = random.Random(SEED)

    def rounds(count: int) -> None:
        for _ in range(count):
            table.upsert([chance.randrange(24) for _ in range(12)])
            table.delete([chance.randrange(24)])
            table.tier()

    real, calls = maintenance.commit_rewrite, []

    def late(*args: Any, **more: Any) -> int:
        calls.append(args)
        if len(calls) == 1:
            rounds(1)
        return real(*args, **more)

    monkeypatch.setattr(maintenance, "commit_rewrite", late)
    rounds(2)
    done = maintain_lake(lake_place.connection, table.path, settings=settings, write=write)
    assert len(calls) == 2, "the first commit lost against tiering, and was made again"
    assert done.files_rewritten > 4
    table.check()
    done = maintain_lake(lake_place.connection, table.path, settings=settings, write=write)
    live = live_files(table.iceberg())
    assert len(live) == done.files_after == 4, "two partitions of two buckets"
    assert not any(file.positions or file.equalities for file in live)
    table.check()
    assert by_spark(spark, lake_place, table, "lake") == table.in_lake
    again = maintain_lake(lake_place.connection, table.path, settings=settings, write=write)
    assert again.files_rewritten == 0


def not_here(*_: Any) -> None:
    raise AssertionError("the driver writes no files")


def test_a_job_that_fails_commits_nothing(
    spark: SparkSession, lake_place: Place, tmp_path: Path
) -> None:
    """Executors that do not find the cluster: the table is as before, and the next run is right."""
    table = make_key_table(lake_place.connection, lake_place.database, "failed")
    for _ in range(2):
        table.upsert([1, 2, 3, 4])
        table.tier()
    before = table.iceberg().current_snapshot().snapshot_id
    nowhere = ClusterRef("default", {"bootstrap.servers": f"file://{tmp_path}/nowhere"})
    with pytest.raises(Exception, match="nowhere"):
        maintain_lake(
            lake_place.connection, table.path, write=SparkGroupWriter(spark, nowhere, tasks=1)
        )
    assert table.iceberg().current_snapshot().snapshot_id == before
    table.check()
    write = SparkGroupWriter(spark, lake_place.ref)
    assert maintain_lake(lake_place.connection, table.path, write=write).files_rewritten > 1
    table.check()


def by_spark(spark: SparkSession, place: Place, table: KeyTable, read: str, **more: str) -> Any:
    options = place.options(str(table.path), read=read, **more)
    frame = spark.read.format("fluss").options(**options).load()
    return table.by_key(frame.toArrow())
