"""Mirrors are compared with their tables: every difference is found, and its key is named."""

from __future__ import annotations

import datetime as dt
import decimal
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from fluss_client import FlussConnection, Schema, TableDescriptor, TablePath
from fluss_client.errors import UnsupportedError
from fluss_orchestrate.core.checkpoints import FlussCheckpointStore
from fluss_orchestrate.core.errors import PartitionGoneError
from fluss_orchestrate.core.incremental.planning import planner
from fluss_orchestrate.core.mirror import verification
from fluss_orchestrate.core.mirror.comparison import (
    MirrorAbsentError,
    MirrorDiffersError,
    MirrorMovedError,
)
from fluss_orchestrate.core.mirror.table import mirror_table
from fluss_orchestrate.core.mirror.verification import verify_mirror
from fluss_orchestrate.core.sinks import ParquetSink
from fluss_orchestrate.core.sinks.errors import SinkFormError, SinkSchemaError
from tests.orchestrate.mirror.memory_mirror import MemoryMirror
from tests.orchestrate.sinks.test_loading_again import add_column

SEED = 20261118
COLUMNS = pa.schema(
    [
        pa.field("day", pa.string(), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
        pa.field("region", pa.string(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("score", pa.float64()),
        pa.field("price", pa.decimal128(20, 4)),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("data", pa.binary()),
        pa.field("tags", pa.list_(pa.field("element", pa.string()))),
        pa.field("point", pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.float64())])),
    ]
)
DAYS = ("20260101", "20260102")


def row(n: int, turn: int, chance: random.Random) -> dict[str, Any]:
    """A row whose values hold everything that is easily confused."""
    return {
        "day": DAYS[n % 2],
        "id": n,
        "region": f"r{n % 3}",
        "name": chance.choice([None, "", "a", f"n{turn}", "ü"]),
        "score": chance.choice([None, 0.0, float("nan"), 1e300, float(turn)]),
        "price": chance.choice([None, decimal.Decimal("0.0001"), decimal.Decimal(turn)]),
        "at": chance.choice([None, dt.datetime(2026, 1, 1, 0, turn, 0, 1, dt.UTC)]),
        "data": chance.choice([None, b"", b"\x00", bytes([turn])]),
        "tags": chance.choice([None, [], [None], ["a", "b"], [""]]),
        "point": chance.choice([None, {"x": turn, "y": None}, {"x": None, "y": 0.5}]),
    }


def make_table(
    connection: FlussConnection, path: TablePath, *, partitioned: bool, **properties: str
) -> None:
    keys = ["day", "id", "region"] if partitioned else ["id", "region"]
    descriptor = TableDescriptor(
        Schema(COLUMNS, primary_keys=keys),
        bucket_count=3,
        properties=properties,
        **({"partition_keys": ["day"]} if partitioned else {}),
    )
    admin = connection.get_admin().result()
    admin.create_table(path, descriptor).result()
    if partitioned:
        for day in DAYS:
            admin.create_partition(path, {"day": day}, ignore_if_exists=True).result()


def write_turn(connection: FlussConnection, path: TablePath, turn: int) -> None:
    chance = random.Random(SEED + turn)
    table = connection.get_table(path).result()
    keys = table.get_table_info().primary_keys
    with table.new_upsert().create_writer() as writer:
        for n in chance.sample(range(60), 40):
            writer.upsert(row(n, turn, chance))
        for n in chance.sample(range(60), 8):
            gone = row(n, turn, chance)
            writer.delete({key: gone[key] for key in keys})


def mirrored(
    connection: FlussConnection, database: str, *, partitioned: bool
) -> tuple[TablePath, MemoryMirror]:
    """A table with a history, and its mirror after three runs."""
    path = TablePath(database, "parts" if partitioned else "plain")
    make_table(connection, path, partitioned=partitioned)
    sink = MemoryMirror()
    for turn in range(3):
        write_turn(connection, path, turn)
        mirror_table(connection, path, sink, f"run {turn}", checkpoint=str(path))
    return path, sink


Change = Callable[[list[dict[str, Any]]], tuple[str, tuple[str, ...], dict[str, Any]]]


def flip(
    column: str, give: Callable[[Any], Any], pick: Callable[[Any], bool] | None = None
) -> Change:
    """Another value in one row."""

    def change(rows: list[dict[str, Any]]) -> tuple[str, tuple[str, ...], dict[str, Any]]:
        found = next(r for r in rows if pick is None or pick(r[column]))
        key = dict(found)
        found[column] = give(found[column])
        return "values", (column,), key

    return change


def drop_row(rows: list[dict[str, Any]]) -> tuple[str, tuple[str, ...], dict[str, Any]]:
    return "missing", (), rows.pop(len(rows) // 2)


def extra_row(rows: list[dict[str, Any]]) -> tuple[str, tuple[str, ...], dict[str, Any]]:
    rows.append({**rows[0], "id": 1_000_001})
    return "extra", (), rows[-1]


def same_row_twice(rows: list[dict[str, Any]]) -> tuple[str, tuple[str, ...], dict[str, Any]]:
    rows.append(dict(rows[3]))
    return "extra", (), rows[-1]


def is_nan(value: Any) -> bool:
    return value is not None and value != value


CHANGES: dict[str, Change] = {
    "a missing row": drop_row,
    "an extra row": extra_row,
    "a row twice": same_row_twice,
    "null for an empty text": flip("name", lambda v: None, lambda v: v == ""),
    "an empty text for null": flip("name", lambda v: "", lambda v: v is None),
    "another letter": flip("name", lambda v: "A", lambda v: v == "a"),
    "null for NaN": flip("score", lambda v: None, is_nan),
    "zero for NaN": flip("score", lambda v: 0.0, is_nan),
    "null for zero": flip("score", lambda v: None, lambda v: v == 0.0),
    "the last digit": flip(
        "price", lambda v: v + decimal.Decimal("0.0001"), lambda v: v is not None
    ),
    "a microsecond": flip(
        "at", lambda v: v + dt.timedelta(microseconds=1), lambda v: v is not None
    ),
    "null for no bytes": flip("data", lambda v: None, lambda v: v == b""),
    "another length of zeros": flip("data", lambda v: b"\x00\x00", lambda v: v == b"\x00"),
    "an empty list for null": flip("tags", lambda v: [], lambda v: v is None),
    "a list of null": flip("tags", lambda v: [None], lambda v: v == []),
    "another order": flip("tags", lambda v: ["b", "a"], lambda v: v == ["a", "b"]),
    "a field of a struct": flip(
        "point", lambda v: {**v, "y": 0.0}, lambda v: v is not None and v["y"] is None
    ),
    "a struct of nulls": flip("point", lambda v: {"x": None, "y": None}, lambda v: v is None),
}


@pytest.mark.parametrize("partitioned", [False, True], ids=["plain", "partitioned"])
def test_every_difference_is_found_and_named(
    mirror_connection: FlussConnection, mirror_database: str, fluss_kind: str, partitioned: bool
) -> None:
    path, sink = mirrored(mirror_connection, mirror_database, partitioned=partitioned)
    keys = ["day", "id", "region"] if partitioned else ["id", "region"]

    def verified() -> Any:
        return verify_mirror(mirror_connection, path, sink, str(path))

    comparison = verified()
    assert comparison.equal, str(comparison)
    assert sink.rows is not None
    assert comparison.rows == comparison.mirror_rows == sink.rows.num_rows > 20
    assert {b.partition for b in comparison.buckets} == (set(DAYS) if partitioned else {None})
    comparison.require_equal()
    write_turn(mirror_connection, path, 9)  # what comes after the mirror's offsets does not count
    whole = sink.rows
    for name, change in CHANGES.items():
        if partitioned and fluss_kind == "cluster" and not name.endswith("row"):
            continue  # the values are compared as in the other tests
        rows = whole.to_pylist()
        kind, columns, key = change(rows)
        sink.rows = pa.Table.from_pylist(rows, whole.schema)
        found = verified()
        assert not found.equal, name
        assert len(found.differing) == 1, name
        (difference,) = found.differences
        assert (difference.kind, difference.columns) == (kind, columns), name
        assert difference.key == {k: key[k] for k in keys}, name
        assert difference.bucket == found.differing[0].bucket
        with pytest.raises(MirrorDiffersError, match=str(key["id"])) as raised:
            found.require_equal()
        assert raised.value.comparison is found
        assert found.to_json()["differences"][0]["kind"] == kind
    sink.rows = whole
    mirror_table(mirror_connection, path, sink, "later", checkpoint=str(path))
    assert verified().equal


def test_random_damage_is_always_found(
    mirror_connection: FlussConnection, mirror_database: str, fluss_kind: str
) -> None:
    path, sink = mirrored(mirror_connection, mirror_database, partitioned=False)
    assert sink.rows is not None
    whole, chance = sink.rows.to_pylist(), random.Random(SEED)
    for _ in range(25 if fluss_kind == "embedded" else 4):
        rows = [dict(r) for r in whole]
        damaged: dict[tuple[Any, ...], str] = {}
        for place in chance.sample(range(len(rows)), chance.randint(1, 4)):
            damaged[rows[place]["id"], rows[place]["region"]] = chance.choice(["missing", "values"])
        kept = []
        for r in rows:
            what = damaged.get((r["id"], r["region"]))
            if what == "values":
                r["name"] = f"{r['name']}!"
            if what != "missing":
                kept.append(r)
        chance.shuffle(kept)
        sink.rows = pa.Table.from_pylist(kept, sink.rows.schema)
        found = verify_mirror(mirror_connection, path, sink, str(path))
        named = {(d.key["id"], d.key["region"]): d.kind for d in found.differences}
        assert named == damaged, (SEED, str(found))
        limited = verify_mirror(mirror_connection, path, sink, str(path), keys_shown_max=1)
        assert len(limited.differences) == 1


def test_values_are_compared_in_the_types_of_the_mirror(
    mirror_connection: FlussConnection, mirror_database: str
) -> None:
    path, sink = mirrored(mirror_connection, mirror_database, partitioned=False)
    assert sink.rows is not None
    place = sink.rows.schema.get_field_index("at")
    coarse = sink.rows["at"].cast(pa.timestamp("ms", tz="UTC"), safe=False)
    whole = sink.rows
    sink.rows = whole.set_column(place, "at", coarse)
    assert verify_mirror(mirror_connection, path, sink, str(path)).equal
    place = whole.schema.get_field_index("tags")
    sink.rows = whole.set_column(place, "tags", pa.array([1] * whole.num_rows))
    with pytest.raises(SinkSchemaError, match="tags"):
        verify_mirror(mirror_connection, path, sink, str(path))


def test_columns_that_the_table_got_later_are_not_expected(
    mirror_connection: FlussConnection, mirror_database: str
) -> None:
    path, sink = mirrored(mirror_connection, mirror_database, partitioned=False)
    add_column(mirror_connection, path, "later")
    found = verify_mirror(mirror_connection, path, sink, str(path))
    assert found.equal
    assert "later" not in found.columns
    chosen = verify_mirror(mirror_connection, path, sink, str(path), columns=["name"])
    assert chosen.columns == ("id", "region", "name")
    assert chosen.equal


def test_what_cannot_be_compared_says_why(
    mirror_connection: FlussConnection, mirror_database: str, tmp_path: Any
) -> None:
    path, sink = mirrored(mirror_connection, mirror_database, partitioned=True)
    with pytest.raises(MirrorAbsentError, match="run the mirror first"):
        verify_mirror(mirror_connection, path, MemoryMirror(), str(path))
    with pytest.raises(SinkFormError, match="form='mirror'"):
        verify_mirror(mirror_connection, path, ParquetSink(str(tmp_path)), str(path))
    admin = mirror_connection.get_admin().result()
    admin.drop_partition(path, {"day": DAYS[0]}).result()
    with pytest.raises(PartitionGoneError):
        verify_mirror(mirror_connection, path, sink, str(path))
    mirror_table(mirror_connection, path, sink, "after the drop", checkpoint=str(path))
    found = verify_mirror(mirror_connection, path, sink, str(path))
    assert found.equal
    assert {b.partition for b in found.buckets} == {DAYS[1]}


def test_a_table_without_old_rows_is_compared_where_its_state_is_known(
    mirror_connection: FlussConnection, mirror_database: str, fluss_kind: str
) -> None:
    path, sink = TablePath(mirror_database, "wal"), MemoryMirror()
    make_table(mirror_connection, path, partitioned=False, **{"table.changelog.image": "WAL"})
    for turn in range(2):
        write_turn(mirror_connection, path, turn)
        mirror_table(mirror_connection, path, sink, f"run {turn}", checkpoint="wal")
        assert verify_mirror(mirror_connection, path, sink, "wal").equal
    assert sink.rows is not None
    sink.rows = sink.rows.slice(1)
    assert not verify_mirror(mirror_connection, path, sink, "wal").equal
    write_turn(mirror_connection, path, 2)
    if fluss_kind == "embedded":  # whose state is always the newest one
        with pytest.raises(UnsupportedError, match="old"):
            verify_mirror(mirror_connection, path, sink, "wal")


def test_a_changelog_without_old_rows_and_without_its_beginning_is_refused(
    mirror_connection: FlussConnection, mirror_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = TablePath(mirror_database, "cut")
    make_table(mirror_connection, path, partitioned=False, **{"table.changelog.image": "WAL"})
    write_turn(mirror_connection, path, 0)

    async def later(*given: Any) -> dict[Any, int]:
        view = given[2]
        return dict.fromkeys(view.latest, 1)

    monkeypatch.setattr(planner, "first_starts", later)
    with pytest.raises(SinkFormError, match=r"table\.changelog\.image=FULL"):
        mirror_table(mirror_connection, path, MemoryMirror(), "run", checkpoint="cut")


def test_a_mirror_that_moves_meanwhile_is_compared_again(
    mirror_connection: FlussConnection, mirror_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, sink = mirrored(mirror_connection, mirror_database, partitioned=False)
    assert sink.rows is not None
    sink.rows = sink.rows.slice(1)
    store = FlussCheckpointStore(mirror_connection)
    real, reads = sink.read_mirror, []

    def moving(name: str, schema: pa.Schema) -> Any:
        reads.append(name)
        if len(reads) % 2 == 0:  # between the first pass and the second
            write_turn(mirror_connection, path, len(reads))
            run = f"moved {len(reads)}"
            mirror_table(mirror_connection, path, sink, run, checkpoint=str(path), store=store)
            assert sink.rows is not None
            sink.rows = sink.rows.slice(1)
        return real(name, schema)

    monkeypatch.setattr(sink, "read_mirror", moving)
    with pytest.raises(MirrorMovedError):
        verify_mirror(mirror_connection, path, sink, str(path), store=store)
    assert len(reads) == 2 * verification.ATTEMPTS_MAX


def test_the_plain_values_of_a_comparison_are_bounded(
    mirror_connection: FlussConnection, mirror_database: str
) -> None:
    path, sink = mirrored(mirror_connection, mirror_database, partitioned=False)
    found = verify_mirror(mirror_connection, path, sink, str(path))
    bucket = replace(found.buckets[0], mirror_rows=-1)
    many = replace(found, buckets=(bucket,) * 1000)
    assert len(many.to_json()["differing"]) == 100
    assert many.to_json()["buckets_differing"] == 1000
