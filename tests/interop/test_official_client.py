"""Rows between this client and the official Python client, both ways, where it follows the server.

Keys whose encoding has bytes from 0x80 on are left out: that client looks for them in other
buckets than Java's and the servers' own (`test_java_keys.py` holds ours to Java's). It has no
INDEXED rows, and takes no moment before 1970 that has microseconds.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import importlib
from collections.abc import Awaitable, Callable
from decimal import Decimal
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

import fluss_client as fluss
from tests.contract.tables import Tables, done
from tests.needs import unavailable

TYPES = pa.schema(
    [
        ("k", pa.int32()),
        ("boolean", pa.bool_()),
        ("tinyint", pa.int8()),
        ("smallint", pa.int16()),
        ("bigint", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("string", pa.string()),
        ("bytes", pa.binary()),
        ("decimal", pa.decimal128(20, 3)),
        ("date", pa.date32()),
        ("time", pa.time32("ms")),
        ("timestamp", pa.timestamp("us")),
        ("ltz", pa.timestamp("us", "UTC")),
        ("array", pa.list_(pa.int32())),
    ]
)
ROWS: list[dict[str, Any]] = [
    {
        "k": 1,
        "boolean": True,
        "tinyint": -128,
        "smallint": 32767,
        "bigint": -(2**63),
        "float": 0.5,
        "double": 1e300,
        "string": "ü \U0001f600",
        "bytes": b"\x00\xff",
        "decimal": Decimal("12345678901234567.891"),
        "date": dt.date(1901, 2, 3),
        "time": dt.time(23, 59, 59, 999000),
        "timestamp": dt.datetime(2024, 12, 31, 23, 59, 59, 999999),
        "ltz": dt.datetime(2024, 2, 29, 1, 2, 3, 456789, dt.UTC),
        "array": [1, None, -1],
    },
    {"k": 2} | dict.fromkeys(TYPES.names[1:]),
]
CODECS = ("NONE", "LZ4_FRAME", "ZSTD")


@pytest.fixture(scope="module")
def official() -> ModuleType:
    """The official client; where it is absent nothing of this can be said."""
    try:
        return importlib.import_module("fluss")
    except ImportError:
        unavailable("the official client (pyfluss 1.0.0)")


@pytest.fixture
def with_theirs(
    official: ModuleType, address: dict[str, str]
) -> Callable[[fluss.FlussTable, Callable[[Any], Awaitable[Any]]], Any]:
    """Run a coroutine function on the same table, opened by the official client."""

    def run(table: fluss.FlussTable, work: Callable[[Any], Awaitable[Any]]) -> Any:
        async def main() -> Any:
            connection = await official.FlussConnection.create(official.Config(address))
            path = table.get_table_path()
            theirs = await connection.get_table(
                official.TablePath(path.database_name, path.table_name)
            )
            try:
                return await work(theirs)
            finally:
                await connection.close()

        return asyncio.run(main())

    return run


WithTheirs = Callable[[fluss.FlussTable, Callable[[Any], Awaitable[Any]]], Any]


async def _their_records(table: Any, count: int, columns: list[str] | None = None) -> list[Any]:
    scan = table.new_scan() if columns is None else table.new_scan().project_by_name(columns)
    scanner = await scan.create_log_scanner()
    scanner.subscribe(0, -2)
    found: list[Any] = []
    while len(found) < count:
        records = await scanner.poll(5_000)
        assert not records.is_empty()
        found += [(r.change_type.short_string(), r.row) for r in records]
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_logs_both_ways(tables: Tables, with_theirs: WithTheirs, codec: str) -> None:
    table = tables.create(TYPES, properties={"table.log.arrow.compression.type": codec})
    tables.append(table, ROWS)
    tables.append(table, pa.Table.from_pylist(ROWS, TYPES))

    async def work(theirs: Any) -> Any:
        writer = theirs.new_append().create_writer()
        for row in ROWS:
            writer.append(row)
        writer.write_arrow(pa.Table.from_pylist(ROWS, TYPES))
        await writer.flush()
        projected = await _their_records(theirs, 8, ["ltz", "k"])
        return await _their_records(theirs, 8), projected

    whole, projected = with_theirs(table, work)
    assert whole == [("+A", row) for row in ROWS * 4]
    assert projected == [("+A", {"ltz": r["ltz"], "k": r["k"]}) for r in ROWS * 4]
    assert tables.log(table).to_pylist() == ROWS * 4
    assert tables.log(table, ["array", "k"]).to_pylist() == [
        {"array": row["array"], "k": row["k"]} for row in ROWS * 4
    ]


def test_key_state_both_ways(tables: Tables, with_theirs: WithTheirs) -> None:
    table = tables.create(TYPES, ["k"])
    tables.upsert(table, ROWS)
    others = [row | {"k": row["k"] + 10} for row in ROWS]

    async def work(theirs: Any) -> Any:
        lookuper = theirs.new_lookup().create_lookuper()
        found = [await lookuper.lookup({"k": row["k"]}) for row in ROWS]
        writer = theirs.new_upsert().create_writer()
        for row in others:
            writer.upsert(row)
        await writer.flush()
        return found

    assert with_theirs(table, work) == ROWS
    assert [tables.lookup(table, (row["k"],)) for row in others] == others


def test_a_changelog_that_both_have_written(tables: Tables, with_theirs: WithTheirs) -> None:
    table = tables.create({"id": pa.int32(), "a": pa.string(), "b": pa.int64()}, ["id"])
    tables.upsert(table, [(1, "ours", 1), (2, "ours", 2)])

    async def work(theirs: Any) -> Any:
        writer = theirs.new_upsert().create_writer()
        await writer.upsert({"id": 1, "a": "theirs", "b": 10}).wait()
        partial = theirs.new_upsert().partial_update_by_name(["id", "b"]).create_writer()
        await partial.upsert({"id": 2, "b": 20}).wait()
        await writer.delete({"id": 1}).wait()
        return await _their_records(theirs, 7)

    def row(id_: int, a: str, b: int) -> dict[str, Any]:
        return {"id": id_, "a": a, "b": b}

    expected = [
        ("+I", row(1, "ours", 1)),
        ("+I", row(2, "ours", 2)),
        ("-U", row(1, "ours", 1)),
        ("+U", row(1, "theirs", 10)),
        ("-U", row(2, "ours", 2)),
        ("+U", row(2, "ours", 20)),
        ("-D", row(1, "theirs", 10)),
    ]
    assert with_theirs(table, work) == expected
    assert tables.changes(table, 7) == expected


def test_prefixes_partitions_and_limits(tables: Tables, with_theirs: WithTheirs) -> None:
    table = tables.create(
        {"day": pa.string(), "a": pa.string(), "b": pa.int32()},
        ["day", "a", "b"],
        partition_keys=["day"],
        bucket_keys=["a"],
        partitions=[{"day": "1"}],
    )
    tables.upsert(table, [("1", "x", 1), ("1", "x", 2), ("1", "y", 3)])

    async def work(theirs: Any) -> Any:
        writer = theirs.new_upsert().create_writer()
        await writer.upsert({"day": "1", "a": "x", "b": 4}).wait()
        prefix = theirs.new_lookup().lookup_by(["day", "a"]).create_lookuper()
        return sorted(row["b"] for row in await prefix.lookup({"day": "1", "a": "x"}))

    assert with_theirs(table, work) == [1, 2, 4]
    prefix = table.new_lookup().lookup_by(["day", "a"]).create_lookuper()
    assert sorted(row["b"] for row in done(prefix.lookup(("1", "x")))) == [1, 2, 4]


def test_descriptions_agree(tables: Tables, official: ModuleType, address: dict[str, str]) -> None:
    table = tables.create(
        TYPES, ["k"], buckets=3, comment="both read this", custom_properties={"owner": "us"}
    )
    info = table.get_table_info()

    async def main() -> Any:
        connection = await official.FlussConnection.create(official.Config(address))
        path = official.TablePath(info.table_path.database_name, info.table_path.table_name)
        theirs = await connection.get_admin().get_table_info(path)
        await connection.close()
        return theirs

    theirs = asyncio.run(main())
    for name in ("table_id", "schema_id", "num_buckets", "comment", "created_time"):
        assert getattr(info, name) == getattr(theirs, name), name
    for name in (
        "get_primary_keys",
        "get_bucket_keys",
        "get_partition_keys",
        "has_primary_key",
        "is_partitioned",
        "get_custom_properties",
        "get_column_names",
        "get_column_count",
    ):
        assert getattr(info, name)() == getattr(theirs, name)(), name
    assert info.get_schema().get_column_names() == theirs.get_schema().get_column_names()
