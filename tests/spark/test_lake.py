"""Tiering by Spark and reading lake and tail: each row once, also after a kill between commits."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from fluss_client import TablePath
from fluss_client.errors import LakeTableAlreadyExistError, TableNotReadyError
from fluss_orchestrate import lake_status, maintain_lake, tier_table
from fluss_orchestrate.core.lake.tiering import TieringRound
from fluss_orchestrate.core.lake.tiering_worker import TieringWorker
from fluss_orchestrate.spark.iceberg import SparkRangeWriter
from fluss_orchestrate.spark.lake_maintenance import SparkGroupWriter
from tests.orchestrate.lake.tables import (
    append,
    as_rows,
    full_scan,
    lake_rows,
    make_clean,
    make_table,
)
from tests.orchestrate.lake.test_clean_schema import by_offset, lake_ids
from tests.orchestrate.lake.test_worker import work_until
from tests.spark.conftest import CPU_QUIET, Place, open_place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CREATE_ATTEMPTS_MAX = 5
KILLED = f"""
import os, signal, sys
from fluss_orchestrate.core.lake import tiering
from fluss_orchestrate.spark import ClusterRef, SparkRangeWriter, make_session
cluster = ClusterRef(properties={{"bootstrap.servers": sys.argv[1]}})
tiering.TieringRound._tell_fluss = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
spark = make_session("killed", "local[2]", {CPU_QUIET!r})
write = SparkRangeWriter(spark, cluster, tasks=3)
tiering.tier(cluster.connection(), sys.argv[2], allow_tiering=True, write=write)
"""


@pytest.fixture(scope="module")
def place(lake_address: str) -> Iterator[Place]:
    """A database with a lake behind it."""
    with open_place(lake_address) as opened:
        yield opened


def lake_table_of(place: Place, name: str, freshness: str = "1d") -> TablePath:
    for attempt in range(CREATE_ATTEMPTS_MAX):
        path = TablePath(place.database, f"{name}{attempt}")
        try:
            make_table(place.connection, path, layout="partitioned", buckets=2, freshness=freshness)
        except (LakeTableAlreadyExistError, TableNotReadyError):
            # The coordinator missed the table; its Iceberg table is in the way of another try.
            continue
        return path
    raise AssertionError("no lake table could be created")


def die_between_the_commits(place: Place, path: TablePath, write: SparkRangeWriter | None) -> None:
    """Iceberg has the files, and Fluss is not told: by an interrupt here, or by a SIGKILL."""
    if write is None:
        command = [sys.executable, "-c", KILLED, place.address, str(path)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        return

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(TieringRound, "_tell_fluss", interrupt)
        with pytest.raises(KeyboardInterrupt):
            tier_table(place.connection, path, allow_tiering=True, write=write)


def ids(spark: SparkSession, place: Place, path: TablePath, **options: str) -> list[int]:
    given = place.options(str(path), **options)
    frame = spark.read.format("fluss").options(**given).load()
    return sorted(row.id for row in frame.select("id").collect())


@pytest.mark.timeout(300)
def test_tiering_lake_and_tail(spark: SparkSession, place: Place, long_form: bool) -> None:
    """Executors write, the driver commits; one that dies between its commits loses nothing.

    In the long form it is a driver of its own that is killed there.
    """
    connection, write = place.connection, SparkRangeWriter(spark, place.ref, tasks=3)
    path = lake_table_of(place, "events")
    append(connection, path, 0, 100)
    receipt = tier_table(connection, path, allow_tiering=True, write=write)
    assert (receipt.rows, sum(r.count for r in receipt.ranges)) == (100, 100)
    assert receipt.details["files"] > 4, "several tasks have written"

    append(connection, path, 100, 200)
    die_between_the_commits(place, path, None if long_form else write)
    assert lake_status(connection, path).lag_offsets == 100, "Fluss does not know of it yet"
    append(connection, path, 200, 240)
    assert tier_table(connection, path, allow_tiering=True, write=write).rows == 40
    assert lake_rows(connection, path) == as_rows(full_scan(connection, path))
    assert lake_status(connection, path).lag_offsets == 0

    append(connection, path, 240, 300)
    assert ids(spark, place, path) == list(range(300)), "lake and tail"
    assert ids(spark, place, path, read="lake") == list(range(240))
    chosen = {"filter": "price >= 59 and at is not null", "partition": "day=20240102"}
    golden = [i for i in range(300) if i / 4 >= 59 and i % 2 == 1]
    assert ids(spark, place, path, **chosen) == golden
    assert len(ids(spark, place, path, limit="250")) == 250
    given = place.options(str(path))
    shown = spark.read.format("fluss").options(**given).load().toArrow()
    assert as_rows(shown) == as_rows(full_scan(connection, path))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("clean", [False, True])
def test_compaction_keeps_the_order_of_a_log(
    spark: SparkSession, place: Place, clean: bool
) -> None:
    """Executors write the files anew; without system columns, the order of files is the offset."""
    path = lake_table_of(place, "clean" if clean else "ordered")
    if clean:
        make_clean(place.connection, path)
    for at in range(0, 120, 40):
        append(place.connection, path, at, at + 40)
        tier_table(place.connection, path, allow_tiering=True)
    write = SparkGroupWriter(spark, place.ref, tasks=2)
    done = maintain_lake(place.connection, path, write=write)
    assert (done.files_before, done.files_after) == (12, 4), "two partitions of two buckets"
    append(place.connection, path, 120, 140)
    tier_table(place.connection, path, allow_tiering=True)
    for bucket, ids in by_offset(place.connection, path).items():
        assert lake_ids(place.connection, path, bucket, 1, len(ids)) == ids[1:]
    assert lake_rows(place.connection, path) == as_rows(full_scan(place.connection, path))


@pytest.mark.usefixtures("only_tierer")
def test_what_the_coordinator_hands_out(spark: SparkSession, place: Place) -> None:
    """The worker's rounds by Spark, with the lease confirmed before each commit."""
    path = lake_table_of(place, "handed", freshness="1s")
    append(place.connection, path, 0, 50)
    worker = TieringWorker(
        place.connection, allow_tiering=True, write=SparkRangeWriter(spark, place.ref)
    )
    assert work_until(worker, path).rows == 50
    assert lake_rows(place.connection, path).num_rows == 50
