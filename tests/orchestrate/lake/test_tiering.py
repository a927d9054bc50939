"""Tiering: every row of the log once in the lake, whoever dies or races, and all readers agree."""

from __future__ import annotations

import asyncio
import importlib
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from fluss_client import Config, FlussConnection, TablePath
from fluss_orchestrate.core.lake import (
    NoLakeError,
    TieringNotAllowedError,
    TieringVerifyError,
    lake_covers,
    lake_status,
    tier_table,
    tiering,
    tiering_files,
)
from tests import forked
from tests.faults.recording import FaultRecorder
from tests.orchestrate.lake.tables import (
    LAYOUTS,
    append,
    as_rows,
    batch,
    full_scan,
    lake_rows,
    lake_table,
)

NewTable = Callable[..., TablePath]


def load_extensions(duck: duckdb.DuckDBPyConnection) -> None:
    """Load what the extension wheels bring; nothing is fetched."""
    for name in ("avro", "iceberg"):
        package = importlib.import_module(f"duckdb_extension_{name}")
        folder = Path(str(package.__file__)).parent / "extensions"
        (file,) = folder.rglob(f"{name}.duckdb_extension")
        duck.execute(f"LOAD '{file}'")
    duck.execute("SET TimeZone = 'UTC'")


def snapshot_of(connection: FlussConnection, path: TablePath) -> Any:
    return connection.get_admin().result().get_latest_lake_snapshot(path).result()


@pytest.mark.parametrize("layout", list(LAYOUTS))
def test_the_lake_holds_what_a_full_scan_gives(
    connection: FlussConnection, new_table: NewTable, layout: str
) -> None:
    path = new_table(layout=layout)
    append(connection, path, 0, 500)
    first = tier_table(connection, path, allow_tiering=True)
    assert (first.kind, first.rows) == ("tier", 500)
    append(connection, path, 500, 800)
    second = tier_table(connection, path, allow_tiering=True)
    assert second.rows == 300
    assert tier_table(connection, path, allow_tiering=True).rows == 0

    scanned = as_rows(full_scan(connection, path))
    assert scanned.num_rows == 800
    assert lake_rows(connection, path) == scanned
    assert snapshot_of(connection, path).snapshot_id == second.snapshot_id
    assert lake_covers(connection, path, "latest")
    assert lake_covers(connection, path, second)


@pytest.mark.parametrize("layout", ["turns", "both"])
def test_places_and_partition_tuples(
    connection: FlussConnection, new_table: NewTable, layout: str
) -> None:
    path = new_table(layout=layout)
    append(connection, path, 0, 200)
    receipt = tier_table(connection, path, allow_tiering=True)
    table = lake_table(connection, path)
    found = table.scan().to_arrow()
    offsets = {
        (day, bucket): sorted(
            row["__offset"]
            for row in found.select(["day", "__bucket", "__offset"]).to_pylist()
            if row["__bucket"] == bucket and day in (None, row["day"])
        )
        for day, bucket in {(r.partition, r.bucket) for r in receipt.ranges}
    }
    for part in receipt.ranges:
        assert offsets[part.partition, part.bucket] == list(range(part.start, part.stop))
    for file in table.inspect.files().to_pylist():
        assert file["record_count"] > 0
    tuples = {
        tuple(entry["partition"].values()) for entry in table.inspect.partitions().to_pylist()
    }
    wanted = {(*([r.partition] if r.partition else []), r.bucket) for r in receipt.ranges}
    assert tuples == wanted


def test_duckdb_reads_the_same_rows(connection: FlussConnection, new_table: NewTable) -> None:
    path = new_table(layout="partitioned")
    append(connection, path, 0, 300)
    tier_table(connection, path, allow_tiering=True)
    table = lake_table(connection, path)
    with duckdb.connect() as duck:
        load_extensions(duck)
        found = duck.execute(
            f"SELECT * FROM iceberg_scan('{table.metadata_location}')"
        ).to_arrow_table()
    assert as_rows(found) == as_rows(full_scan(connection, path))


@pytest.mark.parametrize("lake_kind", ["cluster"], indirect=True)  # all that it can reach
def test_the_official_client_agrees(
    connection: FlussConnection, new_table: NewTable, lake_kind: str, lake_address: str
) -> None:
    import fluss

    path = new_table(layout="partitioned")
    append(connection, path, 0, 100)
    receipt = tier_table(connection, path, allow_tiering=True)

    async def ask() -> Any:
        official = await fluss.FlussConnection.create(
            fluss.Config({"bootstrap.servers": lake_address.split(",")[0]})
        )
        place = fluss.TablePath(path.database_name, path.table_name)
        return await official.get_admin().get_latest_lake_snapshot(place)

    theirs = asyncio.run(ask())
    ours = snapshot_of(connection, path)
    assert theirs.snapshot_id == ours.snapshot_id == receipt.snapshot_id
    assert {
        (b.table_id, b.partition_id, b.bucket_id): o for b, o in theirs.table_buckets_offset.items()
    } == {
        (b.table_id, b.partition_id, b.bucket_id): o for b, o in ours.table_buckets_offset.items()
    }


def test_while_writers_run(connection: FlussConnection, new_table: NewTable) -> None:
    path = new_table(layout="keyed")
    stop = threading.Event()
    written = [0]

    def write() -> None:
        writer = connection.get_table(path).result().new_append().create_writer()
        while not stop.is_set():
            writer.write_arrow_batch(batch(written[0], written[0] + 50))
            writer.flush().result()
            written[0] += 50

    producer = threading.Thread(target=write)
    producer.start()
    try:
        for _ in range(5):
            tier_table(connection, path, allow_tiering=True)
    finally:
        stop.set()
        producer.join()
    tier_table(connection, path, allow_tiering=True)
    assert lake_rows(connection, path) == as_rows(full_scan(connection, path))
    assert lake_rows(connection, path).num_rows == written[0] > 0


KILLS_LONG = 25
PLACES = {"before-iceberg": "before Iceberg's commit", "between": "between the two commits"}
KILLED = """
import os, signal, sys
from fluss_client import Config, FlussConnection
from fluss_orchestrate.core.lake import tiering
stage, address, table = sys.argv[1:]
die = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
if stage == "before-iceberg":
    tiering.commit_append = die
elif stage == "between":
    tiering.TieringRound._tell_fluss = die
with FlussConnection.create(Config({"bootstrap.servers": address})).result() as connection:
    tiering.tier_table(connection, table, allow_tiering=True)
"""


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("stage", ["before-iceberg", "between"])
def test_killed_around_the_commits(
    connection: FlussConnection,
    new_table: NewTable,
    lake_address: str,
    stage: str,
    long_form: bool,
    record_fault: FaultRecorder,
) -> None:
    path = new_table(layout="partitioned")
    append(connection, path, 0, 100)
    tier_table(connection, path, allow_tiering=True)
    kills = KILLS_LONG if long_form else 1
    for number in range(kills):
        first = 100 + 150 * number
        append(connection, path, first, first + 100)
        assert forked.run_program(KILLED, stage, lake_address, str(path)) == -9
        assert lake_status(connection, path).lag_offsets == 100
        in_iceberg = lake_table(connection, path).scan().to_arrow().num_rows
        assert in_iceberg == first + (100 if stage == "between" else 0)

        append(connection, path, first + 100, first + 150)
        receipt = tier_table(connection, path, allow_tiering=True)
        assert receipt.rows == (50 if stage == "between" else 150)
        assert lake_status(connection, path).lag_offsets == 0
    written = full_scan(connection, path)
    found = lake_rows(connection, path)
    kind = "embedded" if lake_address.startswith("embedded:") else "cluster"
    record_fault(
        f"kill -9 of tiering, {PLACES[stage]} ({kind})",
        kills,
        lost=max(0, written.num_rows - found.num_rows),
        doubled=max(0, found.num_rows - written.num_rows),
    )
    assert found == as_rows(written)


@pytest.mark.timeout(300)
def test_killed_in_the_first_round(
    connection: FlussConnection, new_table: NewTable, lake_address: str
) -> None:
    path = new_table()
    append(connection, path, 0, 100)
    assert forked.run_program(KILLED, "between", lake_address, str(path)) == -9
    assert tier_table(connection, path, allow_tiering=True).rows == 0
    assert lake_rows(connection, path).num_rows == 100
    assert lake_covers(connection, path, "latest")


def _tier_often(address: str, table: str, rounds: int, barrier: Any) -> None:
    with FlussConnection.create(Config({"bootstrap.servers": address})).result() as connected:
        barrier.wait()
        for _ in range(rounds):
            tier_table(connected, table, allow_tiering=True)


@pytest.mark.timeout(300)
def test_two_at_once(connection: FlussConnection, new_table: NewTable, lake_address: str) -> None:
    path = new_table(layout="keyed")
    append(connection, path, 0, 100)
    barrier = forked.context.Barrier(3)
    rivals = [forked.start(_tier_often, lake_address, str(path), 6, barrier) for _ in range(2)]
    barrier.wait()
    for at in range(100, 400, 50):
        append(connection, path, at, at + 50)
    for rival in rivals:
        rival.join()
    assert [rival.exitcode for rival in rivals] == [0, 0]
    tier_table(connection, path, allow_tiering=True)
    assert lake_rows(connection, path) == as_rows(full_scan(connection, path))
    assert lake_rows(connection, path).num_rows == 400


def test_a_column_that_iceberg_lacks(connection: FlussConnection, new_table: NewTable) -> None:
    # Servers up to 0.9.1 take no new columns on lake tables; later ones do.
    path = new_table()
    with lake_table(connection, path).update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("tiny")
    append(connection, path, 0, 20)
    assert tier_table(connection, path, allow_tiering=True).rows == 20
    names = [f.name for f in lake_table(connection, path).schema().fields]
    assert names[-4:] == ["tiny", "__bucket", "__offset", "__timestamp"]
    assert lake_rows(connection, path) == as_rows(full_scan(connection, path))


def test_a_round_begins_again_with_the_newest_schema(
    connection: FlussConnection, new_table: NewTable
) -> None:
    """Servers up to 0.9.1 refuse new columns on lake tables, so the older schema is made up."""
    path = new_table()
    append(connection, path, 0, 20)
    newest = connection.get_table(path).result().get_table_info()
    older = replace(newest, schema_id=newest.schema_id - 1)
    written_with = []
    real = tiering.write_ranges

    def write(core: Any, info: Any, *rest: Any) -> Any:
        written_with.append(info.schema_id)
        return real(core, info, *rest)

    assert tiering.TieringRound(connection, older, write=write).run().rows == 20
    assert written_with == [newest.schema_id]
    assert lake_rows(connection, path) == as_rows(full_scan(connection, path))


def test_nothing_is_committed_when_the_count_is_wrong(
    connection: FlussConnection, new_table: NewTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = new_table(buckets=1)
    append(connection, path, 0, 40)
    real = tiering_files.read_batches

    def loses_some(*args: Any) -> Any:
        yield from list(real(*args))[1:]

    monkeypatch.setattr(tiering_files, "read_batches", loses_some)
    with pytest.raises(TieringVerifyError, match="was expected"):
        tier_table(connection, path, allow_tiering=True)
    monkeypatch.undo()
    assert lake_table(connection, path).current_snapshot() is None
    assert tier_table(connection, path, allow_tiering=True).rows == 40


def test_too_many_rows_in_iceberg_are_not_told_to_fluss(
    connection: FlussConnection, new_table: NewTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = new_table(buckets=1)
    append(connection, path, 0, 40)
    real = tiering.commit_append
    monkeypatch.setattr(tiering, "commit_append", lambda table, files, more: real(table, [], more))
    with pytest.raises(TieringVerifyError, match="nothing was committed to Fluss"):
        tier_table(connection, path, allow_tiering=True)
    assert lake_status(connection, path).snapshot_id is None


def test_off_unless_asked_for(connection: FlussConnection, new_table: NewTable) -> None:
    with pytest.raises(TieringNotAllowedError, match="allow_tiering"):
        tier_table(connection, new_table())


def test_without_a_lake(connection: FlussConnection, new_table: NewTable) -> None:
    path = new_table(properties={"table.datalake.enabled": "false"})
    with pytest.raises(NoLakeError, match=r"table\.datalake\.enabled"):
        tier_table(connection, path, allow_tiering=True)
