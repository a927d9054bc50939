"""Key tables in the lake: whatever was written and tiered, every reader equals the model."""

from __future__ import annotations

import itertools
import operator
import random
from collections import Counter
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from fluss_client import (
    AggFunction,
    Column,
    Config,
    DataTypes,
    FlussConnection,
    Schema,
    TableDescriptor,
    TablePath,
)
from fluss_client.errors import ConfigError
from fluss_orchestrate.core import last_images
from fluss_orchestrate.core.lake import (
    EqualityDeleteError,
    LakeRangeError,
    MaintenanceSettings,
    NoLakeError,
    RowDeltaError,
    equality_deletes,
    file_scan,
    key_reader,
    known_lake,
    lake_covers,
    lake_status,
    maintain_lake,
    read_table,
    tier_table,
    tiering_keys,
)
from tests import forked
from tests.faults.recording import KILLS_PER_PART, FaultRecorder, parts_of
from tests.orchestrate.lake.key_killer import MAINTAIN, STAGES, TIER, TIERING, begin, died
from tests.orchestrate.lake.key_programs import (
    DAYS,
    VARIANTS,
    KeyTable,
    make_key_table,
    run_program,
)
from tests.orchestrate.lake.test_tiering import load_extensions

PROGRAMS_LONG, PROGRAMS_PER_PART = 300, 50
KILLS_LONG = 100
SEED = 22
TRIES_PER_TABLE = 12
PARTITIONED = VARIANTS["partitioned"]
NOW = MaintenanceSettings(snapshot_age_ms=0, keep_snapshots=1)


def maintain(table: KeyTable) -> None:
    maintain_lake(table.connection, table.path, settings=NOW)


@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    "first",
    [
        pytest.param(seed, marks=pytest.mark.long if seed else ())
        for seed in range(0, PROGRAMS_LONG, PROGRAMS_PER_PART)
    ],
)
def test_random_programs(
    connection: FlussConnection,
    database: str,
    long_form: bool,
    first: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Writes, deletes, rounds and maintenance in any order: union = state = model.

    Every other program reads its files as large ones are read: in parts, with dictionaries.
    """
    variants = list(VARIANTS.values())
    for seed in range(first, first + (PROGRAMS_PER_PART if long_form else len(variants))):
        options = variants[seed % len(variants)]
        table = make_key_table(connection, database, f"s{seed}_", **options)
        with monkeypatch.context() as patched:
            if (seed + seed // len(variants)) % 2:
                patched.setattr(file_scan, "SMALL_FILE_BYTES", 0)
                patched.setattr(file_scan, "PLAIN_BYTES_MIN", 1 << 20)
            run_program(table, seed, steps=12 if long_form else 7, maintain=maintain)
        connection.get_admin().result().drop_table(table.path).result()


def test_the_first_round_comes_from_the_state(connection: FlussConnection, database: str) -> None:
    table = make_key_table(connection, database)
    table.upsert([1, 2, 3, 1, 2])
    table.delete([3])
    receipt = table.tier()
    assert receipt.rows == 2
    assert lake_covers(connection, table.path, "latest")
    found = table.iceberg().scan().to_arrow()
    assert set(found.column("__offset").to_pylist()) == {-1}
    assert table.tier().rows == 0
    table.upsert([1, 7])
    table.delete([2])
    receipt = table.tier()
    assert receipt.details["rows_written"] == 2
    assert receipt.details["keys_deleted"] == 2, "key 7 was not there before"
    summary = table.iceberg().current_snapshot().summary
    assert summary["commit-user"] == "__fluss_lake_tiering"
    assert summary.operation.value == "overwrite"
    table.check()


@pytest.mark.parametrize("lake_kind", ["cluster"], indirect=True)  # the only one that has them
@pytest.mark.parametrize("engine", ["versioned", "aggregation"])
def test_merge_engines(connection: FlussConnection, database: str, engine: str) -> None:
    """The server merges rows; the first round and later ones bring what it made of them."""
    path = TablePath(database, engine)
    total = AggFunction("sum") if engine == "aggregation" else None
    columns = [
        Column("id", DataTypes.int()),
        Column("number", DataTypes.bigint(), agg_function=total),
    ]
    properties = {"table.datalake.enabled": "true", "table.merge-engine": engine}
    if engine == "versioned":
        properties["table.merge-engine.versioned.ver-column"] = "number"
    descriptor = TableDescriptor(
        Schema.of(columns, ["id"]), bucket_count=2, bucket_keys=["id"], properties=properties
    )
    connection.get_admin().result().create_table(path, descriptor).result()
    merge = max if engine == "versioned" else operator.add
    choose, model = random.Random(5), dict[int, int]()
    for _ in range(3):
        for read in ("lake", "union", "current"):
            if read != "lake" or model:
                found = read_table(connection, path, read=read).read_all().to_pylist()
                assert {row["id"]: row["number"] for row in found} == model
                assert len(found) == len(model)
        ids = [choose.randrange(20) for _ in range(30)]
        numbers = [choose.randrange(100) for _ in ids]
        rows = {"id": pa.array(ids, pa.int32()), "number": pa.array(numbers, pa.int64())}
        writer = connection.get_table(path).result().new_upsert().create_writer()
        writer.write_arrow_batch(pa.RecordBatch.from_pydict(rows))
        writer.flush().result()
        for key, number in zip(ids, numbers, strict=True):
            model[key] = merge(model[key], number) if key in model else number
        found = read_table(connection, path, read="union").read_all().to_pylist()
        assert {row["id"]: row["number"] for row in found} == model
        tier_table(connection, path, allow_tiering=True)


def test_changes_that_leave_nothing(connection: FlussConnection, database: str) -> None:
    """Keys that come and go between two rounds: the offsets advance without any file."""
    table = make_key_table(connection, database)
    table.upsert([1])
    table.tier()
    table.upsert([2])
    table.delete([2])
    receipt = table.tier()
    assert (receipt.rows, receipt.details["rows_written"]) == (2, 0)
    assert lake_status(connection, table.path).lag_offsets == 0
    table.check()
    table.delete([1])
    table.tier()
    table.check()
    assert not table.in_lake


def test_a_partition_that_was_dropped_and_made_again(
    connection: FlussConnection, database: str
) -> None:
    """Rows of the earlier partition do not come back."""
    table = make_key_table(connection, database, partitioned=True)
    table.upsert([0, 1, 2, 3])
    table.tier()
    admin = connection.get_admin().result()
    admin.drop_partition(table.path, {"day": DAYS[0]}).result()
    admin.create_partition(table.path, {"day": DAYS[0]}).result()
    for key in [k for k in table.model if k[0] == DAYS[0]]:
        del table.model[key]
    table.upsert([4])
    assert table.rows(read="union") == table.model
    table.tier()
    table.check()


def test_more_changes_than_fit_into_memory(
    connection: FlussConnection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spilled changes and keys in groups give the same rows."""
    monkeypatch.setattr(tiering_keys, "CHANGES_BYTES", 300)
    monkeypatch.setattr(key_reader, "TAIL_BYTES", 300)
    monkeypatch.setattr(key_reader, "KEYS_AT_ONCE_MAX", 3)
    monkeypatch.setattr(equality_deletes, "GATHER_BYTES", 200)
    monkeypatch.setattr(last_images, "HASH_PARTITIONS", 3)
    table = make_key_table(connection, database, buckets=1)
    run_program(table, 5, steps=6)


def test_schema_evolution(connection: FlussConnection, database: str) -> None:
    """Servers up to 0.9.1 take no new columns on lake tables, so Iceberg lacks an old one."""
    table = make_key_table(connection, database)
    with table.iceberg().update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("small")
    table.upsert([1, 2])
    assert table.rows(read="union") == table.model
    table.tier()
    table.check()


@pytest.mark.parametrize("partitioned", [False, True])
def test_duckdb_reads_the_same_rows(
    connection: FlussConnection, database: str, partitioned: bool
) -> None:
    """DuckDB 1.5 fails at equality deletes of a partitioned table; a compaction removes them."""
    table = make_key_table(connection, database, partitioned=partitioned)
    table.upsert(list(range(20)))
    table.tier()
    table.upsert(list(range(10, 24)))
    table.delete([0, 1, 12])
    table.tier()
    for compacted in (False, True):
        if compacted:
            maintain(table)
        elif partitioned:
            continue
        with duckdb.connect() as duck:
            load_extensions(duck)
            metadata = table.iceberg().metadata_location
            found = duck.execute(f"SELECT id, name FROM iceberg_scan('{metadata}')").fetchall()
        assert sorted(found) == sorted((row[0], row[2]) for row in table.model.values())


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", parts_of(KILLS_LONG))
def test_killed_at_any_stage(
    connection: FlussConnection,
    database: str,
    lake_address: str,
    long_form: bool,
    part: int,
    record_fault: FaultRecorder,
) -> None:
    """After any kill the lake equals the table at the offsets that Fluss knows, and goes on.

    In the long form, every other process that dies has a rival, which tiers or maintains the same
    table at the same time, and the first rounds of new tables are killed too.
    """
    seed = SEED + part
    choose = random.Random(seed)
    variants = itertools.cycle(list(VARIANTS.values()) if long_form else [PARTITIONED])
    for _ in range(part):
        next(variants)
    stages = itertools.cycle(STAGES if long_form else ["between"])
    kills: Counter[str] = Counter()
    tries = wrong = 0
    while kills.total() < (KILLS_PER_PART if long_form else 1):
        if tries % TRIES_PER_TABLE == 0:
            table = make_key_table(connection, database, f"k{tries}_", **next(variants))
        stage = next(stages)
        tries += 1
        table.upsert([choose.randrange(24) for _ in range(12)])
        table.delete(sorted({choose.randrange(24) for _ in range(3)}))
        if stage not in TIERING:
            table.tier()
            table.upsert([choose.randrange(24) for _ in range(3)])
        rival = choose.choice([TIER, MAINTAIN]) if long_form and tries % 2 else None
        wrong += one_kill(table, stage, rival, lake_address, kills)
    kind = "embedded" if lake_address.startswith("embedded:") else "cluster"
    hit = {stage: kills[stage] for stage in (STAGES if long_form else kills)}
    fault = f"kill -9 of tiering and maintenance of a key table ({kind})"
    record_fault(fault, kills.total(), lost=wrong, seed=seed, stages=hit)


def one_kill(
    table: KeyTable, stage: str, rival: str | None, address: str, kills: Counter[str]
) -> int:
    """Let a process die, and return how many reads were wrong afterwards."""
    possible = [dict(table.in_lake), dict(table.model)]
    begun = [begin(one, address, str(table.path)) for one in (stage, rival) if one is not None]
    ended = [died(process) for process in begun]
    assert not any(ended[1:])
    kills[stage] += ended[0]
    status = lake_status(table.connection, table.path)
    if status.snapshot_id is None:
        wrong = 0
    elif status.lag_offsets == 0:
        wrong = int(table.rows(read="lake") != table.model)
    else:
        wrong = int(table.rows(read="lake") not in possible)
    wrong += table.rows(read="union") != table.model
    table.upsert([kills.total() % 24])
    table.tier()
    wrong += table.rows(read="lake") != table.model
    wrong += table.rows() != table.model
    if wrong:
        print("wrong after", stage, rival, kills)
    return wrong


def _tier_often(address: str, table: str, rounds: int, barrier: Any) -> None:
    with FlussConnection.create(Config({"bootstrap.servers": address})).result() as connected:
        barrier.wait()
        for _ in range(rounds):
            tier_table(connected, table, allow_tiering=True)
            maintain_lake(connected, table, settings=MaintenanceSettings(expire=False))


@pytest.mark.timeout(600)
@pytest.mark.long
def test_two_at_once(connection: FlussConnection, database: str, lake_address: str) -> None:
    table = make_key_table(connection, database)
    table.upsert(list(range(10)))
    barrier = forked.context.Barrier(3)
    address = (lake_address, str(table.path))
    rivals = [forked.start(_tier_often, *address, 6, barrier) for _ in range(2)]
    barrier.wait()
    for at in range(12):
        table.upsert([at, at + 3, at])
        table.delete([at + 1])
    for rival in rivals:
        rival.join()
    assert [rival.exitcode for rival in rivals] == [0, 0]
    table.tier()
    table.check()


def test_what_cannot_be_read_is_an_error(
    connection: FlussConnection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_key_table(connection, database)
    with pytest.raises(LakeRangeError, match="nothing of it is in the lake yet"):
        table.rows(read="lake")
    with pytest.raises(ConfigError, match="read takes one of"):
        read_table(connection, table.path, read="everything")
    with pytest.raises(ConfigError, match="as_of"):
        read_table(connection, table.path, read="lake", as_of="latest")
    table.upsert([1, 2])
    assert table.rows(read="union") == table.model, "from the state, without a lake snapshot"
    table.tier()
    table.upsert([1])
    table.tier()

    def refuse(*_: object) -> bool:
        return False

    with monkeypatch.context() as patched:
        patched.setattr(equality_deletes, "has_exact_equality", refuse)
        for read in ("lake", "union"):
            with pytest.raises(EqualityDeleteError, match="exact equality"):
                table.rows(read=read)


def test_keys_that_iceberg_would_mix_up(connection: FlussConnection, database: str) -> None:
    """Two moments that differ by a nanosecond are two keys in Fluss and one in Iceberg."""
    path = TablePath(database, "moments")
    columns = pa.schema(
        [pa.field("id", pa.int32(), False), pa.field("at", pa.timestamp("ns"), False)]
    )
    descriptor = TableDescriptor(
        Schema(columns, primary_keys=["id", "at"]),
        bucket_count=1,
        bucket_keys=["id"],
        properties={"table.datalake.enabled": "true"},
    )
    connection.get_admin().result().create_table(path, descriptor).result()
    writer = connection.get_table(path).result().new_upsert().create_writer()
    writer.write_arrow_batch(
        pa.RecordBatch.from_arrays(
            [pa.array([1, 1], pa.int32()), pa.array([1, 2], pa.timestamp("ns"))], schema=columns
        )
    )
    writer.flush().result()
    with pytest.raises(RowDeltaError, match="below a microsecond"):
        tier_table(connection, path, allow_tiering=True)


def test_without_a_lake(connection: FlussConnection, database: str) -> None:
    properties = {"table.datalake.enabled": "false"}
    table = make_key_table(connection, database, properties=properties)
    for read in ("lake", "union"):
        with pytest.raises(NoLakeError):
            table.rows(read=read)


def test_snapshots_that_fluss_forgot(
    connection: FlussConnection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An offset before the oldest lake snapshot that Fluss knows is read from the state."""
    monkeypatch.setattr(known_lake, "SNAPSHOTS_KEPT", 2)
    table = make_key_table(connection, database, buckets=1)
    moments = []
    for at in range(5):
        table.upsert([at, at + 1])
        table.tier()
        moments.append(table.moment())
    for target, wanted in moments:
        assert table.rows(read="union", as_of=target) == wanted
