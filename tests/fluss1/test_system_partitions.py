"""The system partition with late rows, against a scripted 1.0 server and one of 0.9."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client import errors
from fluss_client.engine import (
    HISTORICAL_PARTITION,
    append_pinned,
    backend_of,
    existing_partitions,
    run_blocking,
    upsert_pinned,
)
from fluss_orchestrate.core.checkpoints import CheckpointStore
from fluss_orchestrate.core.errors import LateRowsError
from fluss_orchestrate.core.incremental import IncrementalScan
from fluss_orchestrate.core.incremental.reading.reader import PlanReading
from fluss_orchestrate.core.lake.state import read_table
from fluss_orchestrate.core.mirror.table import mirror_table
from fluss_orchestrate.core.mirror.verification import verify_mirror
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.receipts import Receipt
from fluss_orchestrate.dagster.io.slices import TableSlice
from fluss_orchestrate.spark.source.options import SourceOptions
from fluss_orchestrate.spark.source.planning import plan_parts
from tests.contract.tables import done
from tests.fluss1.server import ScriptedServer, scripted
from tests.fluss1.test_bucket_counts import KEYED, LOG, PATH, ROWS, opened, write
from tests.orchestrate.checkpoints.memory_log import MemoryEventLog
from tests.orchestrate.mirror.memory_mirror import MemoryMirror

TAKES_LATE_ROWS = {"table.datalake.historical-partition.enabled": "true"}
OLD = ROWS.set_column(2, "day", pa.array(["old"] * ROWS.num_rows))


@pytest.fixture(params=[KEYED, LOG], ids=["keys", "log"])
def server(request: pytest.FixtureRequest) -> Iterator[ScriptedServer]:
    """A server that has a partition with late rows."""
    partitions = {"old": 2, HISTORICAL_PARTITION: 2}
    options: Any = {"bucket_keys": ["id"], "properties": TAKES_LATE_ROWS}
    with scripted(request.param, partitions, **options) as made:
        yield made


def test_system_partitions_are_listed_by_themselves(server: ScriptedServer) -> None:
    with opened(server) as connection:
        backend = backend_of(connection)
        listed = done(done(connection.get_admin()).list_partition_infos(PATH))
        assert [p.partition_name for p in listed] == ["old"]
        found = run_blocking(backend.system_partitions(PATH))
        assert [(p.partition_id, p.partition_name) for p in found] == [(101, HISTORICAL_PARTITION)]
        info = done(connection.get_table(PATH)).get_table_info()
        assert len(run_blocking(existing_partitions(backend, info))) == 2


def test_an_older_server_does_not_list_them() -> None:
    with scripted(LOG, {"old": 2}, old=True) as server, opened(server) as connection:
        with pytest.raises(errors.UnsupportedByServerError, match=r"needs Fluss 1\.0"):
            run_blocking(backend_of(connection).system_partitions(PATH))
        info = done(connection.get_table(PATH)).get_table_info()
        assert len(run_blocking(existing_partitions(backend_of(connection), info))) == 1


def write_late(connection: fluss.FlussConnection, server: ScriptedServer, writer: int = 9) -> None:
    """Write 10 rows of an expired partition, as servers store those of other clients."""
    info = done(connection.get_table(PATH)).get_table_info()
    rows = OLD.slice(0, 10).set_column(2, "day", pa.array(["gone"] * 10)).to_batches()[0]
    late = server.partitions[HISTORICAL_PARTITION]
    place = fluss.TableBucket(info.table_id, 0, partition_id=late)
    backend = backend_of(connection)
    if info.has_primary_key():
        batches = [(rows, None)]
        run_blocking(upsert_pinned(backend, info, place, batches, writer, bucket_count=2))
    else:
        run_blocking(append_pinned(backend, info, place, [rows], writer, bucket_count=2))


def test_a_plan_with_late_rows_is_read_by_another_process() -> None:
    partitions = {"old": 2, HISTORICAL_PARTITION: 2}
    options: Any = {"bucket_keys": ["id"], "properties": TAKES_LATE_ROWS}
    with scripted(LOG, partitions, **options) as server:
        with opened(server) as connection:
            write(done(connection.get_table(PATH)), OLD)
            write_late(connection, server)
            scan = IncrementalScan(
                connection, PATH, "late", store=CheckpointStore(MemoryEventLog()), settle_ms=0
            )
            plan = ScanPlan.from_json(scan.plan("one").to_json())
            assert read_table(connection, PATH).read_all().num_rows == 70
            assert read_table(connection, PATH, on_late_rows="note").read_all().num_rows == 60
            with pytest.raises(LateRowsError, match="on_late_rows='fail'"):
                read_table(connection, PATH, on_late_rows="fail")
        # The other process has listed no partitions yet.
        with opened(server) as connection:
            found = PlanReading(connection, plan).reader().read_all()
        assert found.num_rows == 70
        assert set(found["day"].to_pylist()) == {"old", "gone"}


def test_the_current_rows_of_a_key_table_are_not_those_of_expired_partitions() -> None:
    partitions = {"old": 2, HISTORICAL_PARTITION: 2}
    options: Any = {"bucket_keys": ["id"], "properties": TAKES_LATE_ROWS}
    with scripted(KEYED, partitions, **options) as server, opened(server) as connection:
        write(done(connection.get_table(PATH)), OLD)
        with pytest.raises(LateRowsError, match="cannot be read from Fluss"):
            read_table(connection, PATH)
        assert read_table(connection, PATH, on_late_rows="note").read_all().num_rows == 30
        # A partition that exists has all of its rows.
        assert read_table(connection, PATH, partition="old").read_all().num_rows == 30


@pytest.mark.parametrize("historical", [True, False])
def test_look_ups_in_partitions_that_do_not_exist(historical: bool) -> None:
    options: Any = {"bucket_keys": ["id"], "properties": TAKES_LATE_ROWS if historical else {}}
    with scripted(KEYED, {"old": 2}, **options) as server, opened(server) as connection:
        table = done(connection.get_table(PATH))
        write(table, OLD)
        whole = table.new_lookup().create_lookuper()
        prefix = table.new_lookup().lookup_by(["id", "day"]).create_lookuper()
        keys: list[Any] = [[3, 1, "gone"]] * 9
        if not historical:
            assert done(whole.lookup([3, 1, "gone"])) is None
            assert done(whole.lookup_many(keys)) == [None] * 9
            assert done(prefix.lookup([3, "gone"])) == []
            return
        with pytest.raises(errors.ExpiredPartitionError, match="no partition 'gone'"):
            done(whole.lookup([3, 1, "gone"]))
        with pytest.raises(errors.ExpiredPartitionError, match="query the lake"):
            done(whole.lookup_many(keys))
        with pytest.raises(errors.ExpiredPartitionError):
            done(prefix.lookup([3, "gone"]))
        assert done(whole.lookup([3, 1, "old"])) is not None


def test_a_mirror_has_the_rows_of_partitions_that_exist() -> None:
    partitions = {"old": 2, HISTORICAL_PARTITION: 2}
    options: Any = {"bucket_keys": ["id"], "properties": TAKES_LATE_ROWS}
    with scripted(KEYED, partitions, **options) as server, opened(server) as connection:
        write(done(connection.get_table(PATH)), OLD)
        write_late(connection, server)
        mirror, store = MemoryMirror(), CheckpointStore(MemoryEventLog())

        def run(key: str, **more: str) -> Receipt:
            scan = {"settle_ms": 0, **more}
            job: Any = {"checkpoint": "m", "store": store, "scan_options": scan}
            return mirror_table(connection, PATH, mirror, key, **job).receipt

        with pytest.raises(LateRowsError, match="would get them back one by one"):
            run("none")
        assert run("one", on_late_rows="note").details["late_rows"] == "not covered"
        assert verify_mirror(connection, PATH, mirror, "m", store=store).equal


def spark_parts(server: ScriptedServer, **options: str) -> list[int | None]:
    """The partitions that a frame of Spark reads."""
    given = {"bootstrap.servers": server.bootstrap, "table": str(PATH)}
    asked = SourceOptions.of(given | {k.replace("_", "."): v for k, v in options.items()})
    planned = plan_parts(asked, ["id", "day"], 1)
    return sorted({r.partition_id for parts in planned for p in parts for r in p.plan.ranges})


def test_frames_of_spark(server: ScriptedServer) -> None:
    keyed = bool(server.schema.primary_keys)
    with opened(server) as connection:
        write(done(connection.get_table(PATH)), OLD)
        write_late(connection, server)
    changes = "changelog" if keyed else "log"
    assert spark_parts(server, read=changes) == [100, 101]
    assert spark_parts(server, read=changes, on_late_rows="note") == [100]
    assert spark_parts(server, read="current", on_late_rows="note") == [100]
    assert spark_parts(server, read="current", partition="day=old") == [100]
    with pytest.raises(LateRowsError, match="'day=gone' does not exist"):
        spark_parts(server, read="current", partition="day=gone")
    assert spark_parts(server, partition="day=gone", on_late_rows="note") == []
    if keyed:
        with pytest.raises(LateRowsError, match="cannot be read from Fluss"):
            spark_parts(server, read="current")
    else:
        assert spark_parts(server, read="current") == [100, 101]
    with pytest.raises(errors.ConfigError, match="read, note, fail"):
        spark_parts(server, on_late_rows="ignore")


def test_slices_of_dagster(server: ScriptedServer) -> None:
    with opened(server) as connection:
        write(done(connection.get_table(PATH)), OLD)
        info = done(connection.get_table(PATH)).get_table_info()
        definition = dg.StaticPartitionsDefinition(["old", "gone"])
        gone = TableSlice(info, definition, ("gone",), {"": "day"})
        with pytest.raises(LateRowsError, match="'gone' does not exist"):
            gone.read(connection, None).read_all()
        assert gone.read(connection, None, "note").read_all().num_rows == 0
        old = TableSlice(info, definition, ("old",), {"": "day"})
        assert old.read(connection, None).read_all().num_rows > 0
