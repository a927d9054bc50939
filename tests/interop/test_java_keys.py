"""Keys, buckets, partitions and descriptions: this client and Java's must agree on every place."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import fluss_client as fluss
from tests.contract.tables import Tables, done
from tests.interop.java_peer import JavaPeer, JavaTable

InJava = Callable[[fluss.FlussTable], JavaTable]
BUCKETS = 5
# Integers with bytes from 0x80 on in their encoding are among them: other clients have placed
# those in other buckets than Java does.
KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int32(), [0, 1, -1, 127, 128, 300, 1_000_000, 2**31 - 1, -(2**31), *range(40)]),
    "bigint": (pa.int64(), [0, -1, 128, 2**40 + 129, 2**63 - 1, -(2**63), *range(40)]),
    "string": (pa.string(), ["a", "ü", "\U0001f600", "x" * 37, *(f"key-{i}" for i in range(40))]),
    "bytes": (
        pa.binary(),
        [b"\x00", b"\x80", b"\xff" * 9, *(bytes([i, 255 - i]) for i in range(40))],
    ),
    "date": (pa.date32(), [dt.date(1970, 1, 1), dt.date(1901, 2, 3), dt.date(2999, 12, 31)]),
    "time": (pa.time32("ms"), [dt.time(0, 0), dt.time(23, 59, 59, 999000), dt.time(1, 2, 3)]),
    "timestamp_3": (pa.timestamp("ms"), [dt.datetime(1969, 1, 2, 3), dt.datetime(2024, 1, 2, 3)]),
    "timestamp_6": (
        pa.timestamp("us"),
        [dt.datetime(1969, 1, 2, 3, 4, 5, 678901), dt.datetime(2024, 1, 2, 3, 4, 5, 1)],
    ),
    "decimal": (pa.decimal128(10, 2), [Decimal("1.25"), Decimal("-1.25"), Decimal("99999999.99")]),
    "large decimal": (pa.decimal128(30, 2), [Decimal("1.25"), Decimal(-(10**27)), Decimal(10**20)]),
    "double": (pa.float64(), [0.5, -0.5, 1e300]),
}


@pytest.mark.supports("Key placement as the Java client's")
@pytest.mark.parametrize("kind", KEYS)
def test_both_place_a_key_in_the_same_bucket(tables: Tables, in_java: InJava, kind: str) -> None:
    arrow, values = KEYS[kind]
    schema = {"k": arrow, "v": pa.int32()}
    ours = tables.create(schema, ["k"], buckets=BUCKETS)
    theirs = tables.create(schema, ["k"], buckets=BUCKETS)
    keys = list(dict.fromkeys(values))
    rows = [{"k": key, "v": at} for at, key in enumerate(keys)]
    half = len(rows) // 2
    tables.upsert(ours, rows[:half])
    tables.upsert(ours, pa.Table.from_pylist(rows[half:], ours.arrow_schema))
    in_java(theirs).upsert(rows)
    peer = in_java(ours)

    def places(table: fluss.FlussTable) -> dict[Any, int]:
        with done(table.new_scan().create_record_batch_log_scanner()) as scanner:
            tables.subscribe(scanner, table)
            found: dict[Any, int] = {}
            while len(found) < len(rows):
                for part in scanner.poll_record_batch(5_000):
                    for key in part.batch["k"].to_pylist():
                        found[key] = part.bucket.bucket_id
        return found

    assert places(ours) == places(theirs)
    assert len(set(places(ours).values())) > 1 or len(rows) < 4
    # Each finds by key what the other has written.
    assert [found[0][1] for found in peer.lookup(rows)] == list(range(len(rows)))
    lookuper = theirs.new_lookup().create_lookuper()
    assert [done(lookuper.lookup((key,)))["v"] for key in keys] == list(range(len(rows)))
    assert [row["v"] for row in done(lookuper.lookup_many([(key,) for key in keys]))] == list(
        range(len(rows))
    )
    peer.delete(rows[:1])
    assert tables.lookup(ours, (keys[0],)) is None


@pytest.mark.supports("Key placement as the Java client's")
def test_log_rows_go_where_java_puts_them(tables: Tables, in_java: InJava) -> None:
    schema = {"id": pa.int32(), "v": pa.string()}
    rows = [{"id": i * 37, "v": str(i)} for i in range(200)]
    placed = []
    for write in (
        lambda table: tables.append(table, rows),
        lambda table: tables.append(table, pa.Table.from_pylist(rows, table.arrow_schema)),
        lambda table: in_java(table).append(rows),
    ):
        table = tables.create(schema, buckets=16, bucket_keys=["id"])
        write(table)
        placed.append({record[3][0]: record[0] for record in in_java(table).scan()})
    assert len(placed[0]) == len(rows)
    assert placed[0] == placed[1] == placed[2]


def test_a_composite_key_and_its_prefix(
    tables: Tables, in_java: InJava, request: pytest.FixtureRequest
) -> None:
    schema = {"a": pa.string(), "b": pa.int64(), "v": pa.string()}
    table = tables.create(schema, ["a", "b"], bucket_keys=["a"], buckets=BUCKETS)
    peer = in_java(table)
    ours = [{"a": f"a{i % 7}", "b": i, "v": "ours"} for i in range(40)]
    theirs = [{"a": f"a{i % 7}", "b": i, "v": "java"} for i in range(40, 80)]
    tables.upsert(table, ours)
    peer.upsert(theirs)
    lookuper = table.new_lookup().create_lookuper()
    assert [done(lookuper.lookup((r["a"], r["b"]))) for r in theirs] == theirs
    assert [found[0] for found in peer.lookup(ours)] == [peer.form(row) for row in ours]
    prefix = table.new_lookup().lookup_by(["a"]).create_lookuper()
    for name in ("a0", "a6", "none"):
        mine = sorted(row["b"] for row in done(prefix.lookup((name,))))
        other = sorted(int(values[1]) for values in peer.lookup([{"a": name}], ["a"])[0])
        assert mine == other
        assert len(mine) == (0 if name == "none" else len(range(int(name[1]), 80, 7)))


def test_partitions_that_either_has_made(tables: Tables, in_java: InJava) -> None:
    table = tables.create(
        {"id": pa.int32(), "day": pa.string(), "v": pa.string()},
        ["id", "day"],
        partition_keys=["day"],
        partitions=[{"day": "monday"}],
        buckets=2,
    )
    peer = in_java(table)
    tables.upsert(table, [(1, "monday", "ours")])
    peer.upsert([{"id": 1, "day": "tuesday", "v": "java"}])  # Java makes the partition itself
    assert tables.lookup(table, (1, "tuesday")) == {"id": 1, "day": "tuesday", "v": "java"}
    found = peer.lookup([{"id": 1, "day": "monday"}, {"id": 1, "day": "tuesday"}])
    assert [values[0][2] for values in found] == ["ours", "java"]
    names = [
        i.partition_name for i in done(tables.admin.list_partition_infos(table.get_table_path()))
    ]
    assert sorted(names) == ["monday", "tuesday"]


PARTITION_VALUES: dict[str, tuple[pa.DataType, Any]] = {
    "boolean": (pa.bool_(), True),
    "int": (pa.int32(), -70_000),
    "bytes": (pa.binary(), b"\x0a\xff"),
    "date": (pa.date32(), dt.date(2024, 2, 29)),
    "time": (pa.time32("ms"), dt.time(1, 2, 3, 4000)),
    "float": (pa.float32(), 1.5),
    "double": (pa.float64(), -0.25),
    "timestamp": (pa.timestamp("us"), dt.datetime(2024, 2, 29, 1, 2, 3, 450000)),
    "ltz": (pa.timestamp("ms", "UTC"), dt.datetime(2024, 2, 29, 1, 2, 3, 450000, dt.UTC)),
}


def test_values_name_partitions_as_java_names_them(tables: Tables, in_java: InJava) -> None:
    for kind, (arrow, value) in PARTITION_VALUES.items():
        table = tables.create({"id": pa.int32(), "p": arrow}, partition_keys=["p"])
        in_java(table).append([{"id": 1, "p": value}])  # Java makes the partition
        tables.append(table, [(2, value)])  # and here it must be found by the same name
        tables.append(
            table, pa.table({"id": pa.array([3], pa.int32()), "p": pa.array([value], arrow)})
        )
        assert sorted(tables.log(table)["id"].to_pylist()) == [1, 2, 3], kind


def test_a_table_that_java_has_made(
    tables: Tables, each_java_peer: JavaPeer, address: dict[str, str]
) -> None:
    path = tables.path()
    each_java_peer.call(
        address,
        "create",
        str(path),
        columns=[["id", "INT"], ["day", "STRING"], ["v", "ROW<a INT, b ARRAY<STRING>>"]],
        primary_keys=["id", "day"],
        partition_keys=["day"],
        bucket_keys=["id"],
        buckets=3,
        comment="made by Java",
        properties={"table.log.ttl": "3 d"},
    )
    info = tables.open(path).get_table_info()
    assert info.comment == "made by Java"
    assert (info.get_primary_keys(), info.get_partition_keys()) == (["id", "day"], ["day"])
    assert (info.get_bucket_keys(), info.num_buckets) == (["id"], 3)
    assert info.get_schema().get_column_types() == [
        "int NOT NULL",
        "string NOT NULL",
        "row<a: int, b: array<string>>",
    ]
    done(tables.admin.create_partition(path, {"day": "d"}))
    table = tables.open(path)
    row = {"id": 1, "day": "d", "v": {"a": 1, "b": ["x", None]}}
    tables.upsert(table, [row])
    assert tables.lookup(table, (1, "d")) == row
    peer = JavaTable(each_java_peer, address, table)
    assert peer.lookup([row]) == [[peer.form(row)]]
