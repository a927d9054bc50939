"""Loads into a table whose bucket count changes between attempts, or while partitions are made."""

from __future__ import annotations

import collections
import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from fluss_client import FlussConnection, Schema, TableDescriptor, TablePath
from fluss_orchestrate import load_rows
from fluss_orchestrate.core.incremental import IncrementalScan
from fluss_orchestrate.core.loading import PlacedElsewhereError, sending
from tests.faults.recording import KILLS_PER_PART, FaultRecorder, parts_of
from tests.orchestrate.incremental.test_crashes import KILLED, Crashers
from tests.orchestrate.incremental.test_rescaling import check_placement
from tests.orchestrate.rescaler import Rescaler
from tests.orchestrate.sinks import load_crasher
from tests.orchestrate.sinks.load_crasher import FIELDS

pytestmark = pytest.mark.usefixtures("small_units")
DAYS = ("d0", "d1", "d2")
ROWS = 300
SEED = 20261118
ROUNDS_LONG = 200
COUNT_MAX = 7
KINDS: dict[str, dict[str, Any]] = {
    "log in turns": {},
    "log by key": {"bucket_keys": ["id"]},
    "key table": {"bucket_keys": ["id"], "primary_keys": ["id", "day"]},
}


def make_table(connection: FlussConnection, path: TablePath, kind: str) -> Rescaler:
    options = dict(KINDS[kind])
    keys = options.pop("primary_keys", None)
    descriptor = TableDescriptor(
        Schema(FIELDS, primary_keys=keys), bucket_count=3, partition_keys=["day"], **options
    )
    admin = connection.get_admin().result()
    admin.create_table(path, descriptor).result()
    admin.create_partition(path, {"day": "d0"}).result()
    return Rescaler(connection, path, "d0")


def rows(days: tuple[str, ...] = DAYS) -> pa.Table:
    columns = {
        "id": list(range(ROWS)),
        "day": [days[n % len(days)] for n in range(ROWS)],
        "text": [f"row {n}" for n in range(ROWS)],
    }
    return pa.table(columns, schema=FIELDS)


def ids(connection: FlussConnection, path: TablePath) -> list[int]:
    """The ids in the log, and by it the number of times that each was written."""
    with IncrementalScan(connection, path, str(path), settle_ms=0).run("all") as run:
        found: list[int] = run.to_arrow()["id"].to_pylist()
    return sorted(found)


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_load_goes_on_after_a_rescale(
    sink_connection: FlussConnection, sink_database: str, kind: str
) -> None:
    path = TablePath(sink_database, "t")
    rescaler = make_table(sink_connection, path, kind)
    whole = rows()

    def breaks() -> Iterator[pa.RecordBatch]:
        # The first units know two of the partitions only.
        yield from whole.slice(0, 200).to_batches()
        raise OSError("the file is gone")

    broken = pa.RecordBatchReader.from_batches(whole.schema, breaks())
    with pytest.raises(OSError, match="the file is gone"):
        load_rows(sink_connection, path, broken, "one", create_partitions=True)
    assert 0 < len(ids(sink_connection, path)) < ROWS
    rescaler.rescale(5)
    receipt = load_rows(sink_connection, path, whole, "one", create_partitions=True)
    assert receipt.rows == ROWS
    admin = sink_connection.get_admin().result()
    if kind == "key table":
        found = sink_connection.get_table(path).result()
        lookuper = found.new_lookup().create_lookuper()
        for n in range(0, ROWS, 17):
            row = lookuper.lookup({"id": n, "day": DAYS[n % 3]}).result()
            assert row is not None
            assert row["text"] == f"row {n}"
    with IncrementalScan(sink_connection, path, f"again {path}", settle_ms=0).run("all") as run:
        assert sorted(run.to_arrow()["id"].to_pylist()) == list(range(ROWS))
    assert len(admin.list_partition_infos(path).result()) == len(DAYS)


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_partition_that_gets_another_count_than_was_known(
    sink_connection: FlussConnection,
    sink_database: str,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between placing the rows and creating their partition, the table is rescaled."""
    path = TablePath(sink_database, "t")
    rescaler = make_table(sink_connection, path, kind)
    original = sending.partition_id_of
    backend = sink_connection.backend

    async def late(of: Any, info: Any, name: str, create: bool) -> int:
        if name == "d1" and rescaler.can_rescale:
            from fluss_client.backend.contract import TableChange

            await backend.alter_table(path, TableChange(bucket_count=7), False)
        return await original(of, info, name, create)

    monkeypatch.setattr(sending, "partition_id_of", late)
    if rescaler.can_rescale:
        with pytest.raises(PlacedElsewhereError) as caught:
            load_rows(sink_connection, path, rows(), "one", create_partitions=True)
        assert (caught.value.retriable, caught.value.bucket_count) == (True, 3)
    assert load_rows(sink_connection, path, rows(), "one", create_partitions=True).rows == ROWS
    assert ids(sink_connection, path) == list(range(ROWS))


@pytest.fixture(scope="module")
def crashers() -> Iterator[Crashers]:
    made = Crashers("tests.orchestrate.sinks.load_crasher")
    yield made
    made.close()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", parts_of(ROUNDS_LONG))
@pytest.mark.parametrize("fluss_kind", ["embedded"], indirect=True)
@pytest.mark.parametrize("kind", list(KINDS))
def test_every_row_once_through_kills_and_rescales(
    sink_connection: FlussConnection,
    sink_database: str,
    fluss_address: str,
    fluss_kind: str,
    crashers: Crashers,
    kind: str,
    part: int,
    long_form: bool,
    record_fault: FaultRecorder,
) -> None:
    """Only the embedded engine can change the bucket count of a table."""
    path = TablePath(sink_database, "t")
    rescaler = make_table(sink_connection, path, kind)
    seed = SEED + part
    chance = random.Random(seed)
    stages = load_crasher.STAGES
    kills: collections.Counter[str] = collections.Counter()
    rounds = KILLS_PER_PART if long_form else len(stages)
    for number in range(rounds):
        stage = stages[number % len(stages)]
        # The load creates the newest partition, before or after the rescale.
        newest = 1 + (number // 8 if long_form else number)
        days = [f"d{newest}", f"d{chance.randrange(newest)}"]
        spec = {
            "config": {"bootstrap.servers": fluss_address},
            "table": str(path),
            "load": number,
            "days": days,
        }
        run = spec | {"run_key": f"{number}", "stage": stage, "seed": chance.random()}
        code = crashers.run(run)
        assert code in (0, KILLED), stage
        kills[stage] += code == KILLED
        # Between the kill and the call that goes on.
        rescaler.rescale(chance.randrange(1, COUNT_MAX))
        assert crashers.run(run | {"run_key": f"{number} again", "stage": ""}) == 0
    found = collections.Counter(ids(sink_connection, path))
    count = rounds * load_crasher.ROWS
    record_fault(
        f"kill -9 of loads through rescales ({kind})",
        sum(kills.values()),
        lost=len(set(range(count)) - found.keys()),
        doubled=found.total() - len(found),
        seed=seed,
        stages=kills,
    )
    assert sum(kills.values()) == rounds
    assert sorted(found.elements()) == list(range(count))
    check_places(sink_connection, path, kind)


def check_places(connection: FlussConnection, path: TablePath, kind: str) -> None:
    """Every row is in the bucket of its key; rows in turns are in every bucket."""
    with IncrementalScan(
        connection, path, f"places {path}", settle_ms=0, metadata_columns=["_bucket"]
    ).run("all") as run:
        rows = run.to_arrow()
    admin = connection.get_admin().result()
    info = admin.get_table_info(path).result()
    listed = admin.list_partition_infos(path).result()
    counts = {p.partition_name: info.bucket_count_of(p) for p in listed}
    assert len(set(counts.values())) > 1
    for batch in rows.combine_chunks().to_batches():
        if info.bucket_keys:
            check_placement(info, batch, batch.column("_bucket"), counts)
        else:
            for row in batch.select(["day", "_bucket"]).to_pylist():
                assert row["_bucket"] < counts[row["day"]]
