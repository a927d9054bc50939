"""Every type and precision, with extremes and nulls, through every way that rows can take."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import fluss_client as fluss
from tests.contract import all_types
from tests.contract.tables import Tables, done

TYPES = pytest.mark.supports(*(f"Type {root}" for root in all_types.ROOTS))
LOGS: dict[str, dict[str, Any]] = {
    "ARROW-NONE": {"properties": {"table.log.arrow.compression.type": "NONE"}},
    "ARROW-LZ4_FRAME": {"properties": {"table.log.arrow.compression.type": "LZ4_FRAME"}},
    "ARROW-ZSTD": {
        "properties": {
            "table.log.arrow.compression.type": "ZSTD",
            "table.log.arrow.compression.zstd.level": "9",
        }
    },
    "INDEXED": {"log_format": "INDEXED"},
    "COMPACTED": {"log_format": "COMPACTED"},
}
STATES: dict[str, dict[str, Any]] = {
    "COMPACTED over ARROW": {"kv_format": "COMPACTED", "log_format": "ARROW"},
    "COMPACTED over COMPACTED": {"kv_format": "COMPACTED", "log_format": "COMPACTED"},
    "INDEXED over ARROW": {"kv_format": "INDEXED", "log_format": "ARROW"},
}
# Faults of the server 0.9.1, whichever client writes: it cannot turn BINARY of an INDEXED row into
# its changelog, and cannot write a changelog in INDEXED format at all.
LEFT_OUT = {"INDEXED over ARROW": ("binary",)}


def _sorted(table: pa.Table) -> pa.Table:
    return table.sort_by("k").combine_chunks()


def _assert_same(found: pa.Table, expected: pa.Table) -> None:
    assert found.schema.equals(expected.schema)
    for name in expected.column_names:
        assert found[name].to_pylist() == expected[name].to_pylist(), name


@TYPES
@pytest.mark.supports(
    "Log format ARROW",
    "Log format INDEXED",
    "Log format COMPACTED",
    "Compression NONE",
    "Compression LZ4_FRAME",
    "Compression ZSTD",
)
@pytest.mark.parametrize("kind", LOGS)
def test_a_log_gives_back_what_was_appended(tables: Tables, kind: str) -> None:
    schema = all_types.schema()
    table = tables.create(schema, **LOGS[kind])
    expected = all_types.arrow(schema)
    tables.append(table, expected.slice(0, 2))
    tables.append(table, all_types.rows()[2:])
    _assert_same(_sorted(tables.log(table)), expected)
    records = tables.records(table, expected.num_rows)
    assert [record.row for record in records] == expected.to_pylist()
    assert {record.change_type for record in records} == {fluss.ChangeType.AppendOnly}
    some = ["ltz_9", "k", "array_of_rows", "decimal_38_18"]
    _assert_same(_sorted(tables.log(table, some)), expected.select(some))


@TYPES
@pytest.mark.supports("KV format COMPACTED", "KV format INDEXED", "Upsert", "Scan of a changelog")
@pytest.mark.parametrize("kind", STATES)
def test_key_state_and_changelog_give_back_what_was_upserted(tables: Tables, kind: str) -> None:
    schema = all_types.schema(("k",), without=LEFT_OUT.get(kind, ()))
    table = tables.create(schema, **STATES[kind])
    expected = all_types.arrow(schema)
    tables.upsert(table, expected.slice(0, 2))
    tables.upsert(table, all_types.rows(schema)[2:])
    keys = [(k,) for k in range(expected.num_rows)]
    lookuper = table.new_lookup().create_lookuper()
    wanted = expected.to_pylist()
    assert [done(lookuper.lookup(key)) for key in keys] == wanted
    assert done(lookuper.lookup_many(keys)) == wanted
    found = done(lookuper.lookup_many(pa.table({"k": pa.array(range(len(keys)), pa.int32())})))
    for name in expected.column_names:
        assert found[name].to_pylist() == expected[name].to_pylist(), name

    changes = tables.changes(table, len(keys))
    assert changes == [("+I", row) for row in wanted]
    log = tables.log(table)
    assert log.column_names == [*expected.column_names, "_change_type"]
    _assert_same(_sorted(log.drop_columns("_change_type")), expected)

    limited = (
        table.new_scan()
        .limit(100)
        .create_bucket_batch_scanner(fluss.TableBucket(table.get_table_info().table_id, 0))
    )
    _assert_same(_sorted(limited.to_arrow()), expected)


@pytest.mark.supports("Type DOUBLE", "Type FLOAT")
def test_numbers_that_are_none(tables: Tables) -> None:
    nothing = float("nan")
    log = tables.create({"f": pa.float32(), "d": pa.float64()})
    tables.append(log, [(nothing, nothing)])
    tables.append(log, pa.table({"f": pa.array([nothing], pa.float32()), "d": [nothing]}))
    for row in tables.log(log).to_pylist():
        assert str(row) == "{'f': nan, 'd': nan}"


@pytest.mark.supports("Type STRING", "Compression LZ4_FRAME", "Compression ZSTD")
@pytest.mark.parametrize("codec", ["NONE", "LZ4_FRAME", "ZSTD"])
def test_columns_larger_than_a_compressors_block(tables: Tables, codec: str) -> None:
    """Other readers refuse LZ4 frames whose blocks depend on each other."""
    table = tables.create(
        {"id": pa.int64(), "text": pa.string()},
        properties={"table.log.arrow.compression.type": codec},
    )
    count = 40_000
    expected = pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "text": [f"value {i % 97}" for i in range(count)],
        }
    )
    tables.append(table, expected)
    assert tables.log(table).equals(expected)
    assert tables.log(table, ["text"]).equals(expected.select(["text"]))


@pytest.mark.parametrize("codec", ["NONE", "LZ4_FRAME", "ZSTD"])
def test_columns_without_a_byte(tables: Tables, codec: str) -> None:
    """Servers write the changelog of a key table themselves, with empty buffers of Java's kind."""
    kinds = {"id": pa.int32(), "text": pa.string(), "raw": pa.binary(), "ts": pa.list_(pa.string())}
    table = tables.create(kinds, ["id"], properties={"table.log.arrow.compression.type": codec})
    rows: list[dict[str, Any]] = [
        {"id": i, "text": (None, "")[i % 2], "raw": None, "ts": None} for i in range(4)
    ]
    for some in (rows[:2], rows[2:3], [{**rows[3], "text": "x", "raw": b"", "ts": []}]):
        tables.upsert(table, some)
    expected = [*rows[:3], {**rows[3], "text": "x", "raw": b"", "ts": []}]
    found = tables.log(table)
    assert found.select(list(kinds)).to_pylist() == expected
    assert [row for _, row in tables.changes(table, 4)] == expected
    projected = tables.log(table, ["text", "raw"]).select(["text", "raw"])
    assert projected.to_pylist() == [{"text": r["text"], "raw": r["raw"]} for r in expected]
