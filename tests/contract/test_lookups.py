"""Look-ups: by key, by many keys at once, in partitions, and what is no key."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client import errors
from tests.contract.tables import Tables, done, eventually

USERS = {"id": pa.int32(), "name": pa.string(), "age": pa.int64()}


@pytest.mark.supports("Lookup by primary key")
def test_a_row_is_found_by_its_key_in_any_form(tables: Tables) -> None:
    table = tables.create(USERS, ["id"], buckets=3)
    tables.upsert(table, [(i, f"n{i}", None if i % 2 else i) for i in range(20)])
    lookuper = table.new_lookup().create_lookuper()
    expected = {"id": 7, "name": "n7", "age": None}
    assert done(lookuper.lookup({"id": 7})) == expected
    assert done(lookuper.lookup([7])) == expected
    assert done(lookuper.lookup((7,))) == expected
    assert done(lookuper.lookup({"id": 20})) is None
    handles = [lookuper.lookup({"id": i}) for i in range(20)]
    assert [done(h)["name"] for h in handles] == [f"n{i}" for i in range(20)]


def test_the_builder_is_a_lookuper_and_a_writer_too(tables: Tables) -> None:
    """The older guide writes and looks up with what `new_upsert` and `new_lookup` return."""
    table = tables.create(USERS, ["id"])
    writer = table.new_upsert()
    writer.upsert({"id": 1, "name": "Alice", "age": 25})
    done(writer.flush())
    done(table.new_upsert(columns=["id", "age"]).upsert({"id": 1, "age": 27}).wait())
    assert done(table.new_lookup().lookup({"id": 1})) == {"id": 1, "name": "Alice", "age": 27}


@pytest.mark.supports("Lookup by primary key (composite)")
def test_composite_keys(tables: Tables, key_of_lake: bool) -> None:
    schema = {"a": pa.string(), "v": pa.int32(), "b": pa.int64()}
    if key_of_lake:
        table = tables.create(schema, ["a", "b"])
        for use in (table.new_lookup, lambda: table.new_upsert().create_writer()):
            with pytest.raises(errors.FlussError, match="one column"):
                use()
        return
    table = tables.create(schema, ["a", "b"], buckets=2)
    tables.upsert(table, [("x", i, i * 10) for i in range(10)])
    lookuper = table.new_lookup().create_lookuper()
    assert done(lookuper.lookup({"b": 30, "a": "x"})) == {"a": "x", "v": 3, "b": 30}
    assert done(lookuper.lookup(("x", 90))) == {"a": "x", "v": 9, "b": 90}
    assert done(lookuper.lookup(("y", 90))) is None


@pytest.mark.supports("Lookup by primary key (partitioned)", "Upsert to a partitioned table")
def test_partitioned_keys(tables: Tables) -> None:
    table = tables.create(
        {"id": pa.int32(), "region": pa.string(), "score": pa.int64()},
        ["id", "region"],
        partition_keys=["region"],
        partitions=[{"region": "US"}, {"region": "EU"}],
    )
    tables.upsert(table, [(1, "US", 10), (1, "EU", 20), (2, "EU", 30)])
    lookuper = table.new_lookup().create_lookuper()
    assert done(lookuper.lookup({"id": 1, "region": "US"}))["score"] == 10
    assert done(lookuper.lookup({"id": 1, "region": "EU"}))["score"] == 20
    assert done(lookuper.lookup({"id": 2, "region": "US"})) is None
    assert done(lookuper.lookup({"id": 1, "region": "ASIA"})) is None, "no partition, no row"
    keys = [(1, "US"), (2, "US"), (2, "EU"), (9, "ASIA"), (1, "EU")]
    assert [r and r["score"] for r in done(lookuper.lookup_many(keys))] == [
        10, None, 30, None, 20,
    ]  # fmt: skip


def test_a_partition_made_after_the_lookuper_is_found(tables: Tables) -> None:
    table = tables.create(
        {"id": pa.int32(), "region": pa.string()}, ["id", "region"], partition_keys=["region"]
    )
    path = table.get_table_path()
    lookuper = table.new_lookup().create_lookuper()
    assert done(lookuper.lookup((1, "US"))) is None
    for _ in range(2):
        done(tables.admin.create_partition(path, {"region": "US"}))
        tables.upsert(table, [(1, "US")])
        assert done(lookuper.lookup((1, "US"))) == {"id": 1, "region": "US"}
        assert done(lookuper.lookup_many([(1, "US"), (2, "US")]))[0] is not None
        done(tables.admin.drop_partition(path, {"region": "US"}))
        # Servers drop a partition's data a moment after the partition.
        gone = eventually(lambda: done(lookuper.lookup((1, "US"))), lambda row: row is None)
        assert gone is None
        assert done(lookuper.lookup_many([(1, "US"), (2, "US")])) == [None, None]


@pytest.mark.supports("Lookup of many keys at once")
def test_many_keys_as_a_list_and_as_arrow(tables: Tables) -> None:
    table = tables.create(USERS, ["id"], buckets=3)
    tables.upsert(table, pa.table({"id": [1, 2, 3], "name": ["a", "b", None], "age": [1, 2, 3]}))
    lookuper = table.new_lookup().create_lookuper()
    assert done(lookuper.lookup_many([{"id": 3}, (9,), [1], {"id": 3}])) == [
        {"id": 3, "name": None, "age": 3},
        None,
        {"id": 1, "name": "a", "age": 1},
        {"id": 3, "name": None, "age": 3},
    ]
    keys = pa.table({"other": ["x", "y", "z"], "id": pa.array([2, 9, 1], pa.int64())})
    for given in (keys, keys.to_batches()[0]):
        found = done(lookuper.lookup_many(given))
        assert isinstance(found, pa.Table)
        assert found.column_names == ["id", "name", "age"]
        assert found.to_pylist() == [
            {"id": 2, "name": "b", "age": 2},
            {"id": None, "name": None, "age": None},
            {"id": 1, "name": "a", "age": 1},
        ]
    assert done(lookuper.lookup_many([])) == []
    assert done(lookuper.lookup_many(keys.slice(0, 0))).num_rows == 0


def test_twenty_thousand_keys(tables: Tables) -> None:
    count = 20_000
    table = tables.create(USERS, ["id"], buckets=3)
    ids = pa.array(range(count), pa.int32())
    names = pa.array([f"n{i}" for i in range(count)])
    tables.upsert(table, pa.table({"id": ids, "name": names, "age": ids.cast(pa.int64())}))
    lookuper = table.new_lookup().create_lookuper()
    wanted = pa.table({"id": pa.array(range(count + 100, -1, -1), pa.int32())})
    found = done(lookuper.lookup_many(wanted))
    assert found.num_rows == count + 101
    assert found["id"].null_count == 101
    assert found.slice(101)["id"].to_pylist() == list(range(count - 1, -1, -1))
    assert found.slice(101)["name"].to_pylist() == [f"n{i}" for i in range(count - 1, -1, -1)]


@pytest.mark.supports("Lookup by prefix")
def test_all_rows_of_a_prefix(tables: Tables, key_of_lake: bool) -> None:
    schema = {"a": pa.string(), "b": pa.int32(), "v": pa.string()}
    table = tables.create(schema, ["a", "b"], bucket_keys=["a"], buckets=3)
    rows = [("x", i, f"v{i}") for i in range(5)] + [("xx", 1, "other"), ("y", 1, "y1")]
    tables.upsert(table, rows)
    lookuper = table.new_lookup().lookup_by(["a"]).create_lookuper()
    found = done(lookuper.lookup({"a": "x"}))
    assert sorted((r["b"], r["v"]) for r in found) == [(i, f"v{i}") for i in range(5)]
    assert [r["v"] for r in done(lookuper.lookup(("y",)))] == ["y1"]
    assert done(lookuper.lookup(("none",))) == []
    whole = table.new_lookup().create_lookuper()
    assert done(whole.lookup(("x", 3)))["v"] == "v3"


@pytest.mark.supports("Lookup by prefix")
def test_a_prefix_in_a_partition(tables: Tables) -> None:
    table = tables.create(
        {"day": pa.string(), "a": pa.string(), "b": pa.int32()},
        ["day", "a", "b"],
        partition_keys=["day"],
        bucket_keys=["a"],
        partitions=[{"day": "1"}, {"day": "2"}],
        buckets=2,
    )
    tables.upsert(table, [("1", "x", 1), ("1", "x", 2), ("2", "x", 3)])
    lookuper = table.new_lookup().lookup_by(["day", "a"]).create_lookuper()
    assert sorted(r["b"] for r in done(lookuper.lookup(("1", "x")))) == [1, 2]
    assert [r["b"] for r in done(lookuper.lookup({"a": "x", "day": "2"}))] == [3]
    assert done(lookuper.lookup(("3", "x"))) == []


def test_a_prefix_that_is_none_is_refused(tables: Tables) -> None:
    table = tables.create({"a": pa.string(), "b": pa.int32()}, ["a", "b"], bucket_keys=["a"])
    for columns in (["b"], ["a", "b"], [], ["nope"]):
        # The words that programs written for the official client look for.
        with pytest.raises(errors.UnsupportedError, match=r"prefix lookup .* bucket") as caught:
            table.new_lookup().lookup_by(columns)
        assert ("Unknown column name 'nope'" in str(caught.value)) == (columns == ["nope"])


BAD_KEYS: dict[str, tuple[Any, str]] = {
    "null": ({"id": None}, "id"),
    "text for a number": ({"id": "seven"}, "id"),
    "too large": ({"id": 1 << 40}, "id"),
    "a bool": ({"id": True}, "id"),
    "another column": ({"name": "x"}, "id"),
    "too many columns": ({"id": 1, "name": "x"}, "id"),
    "too many values": ((1, 2), "id"),
    "no values": ((), "id"),
    "not a key": (7, "dict, list or tuple"),
    "a string": ("7", "dict, list or tuple"),
}


@pytest.mark.parametrize("what", BAD_KEYS)
def test_what_is_no_key_is_a_typed_error(
    tables: Tables, users: fluss.FlussTable, what: str
) -> None:
    key, hint = BAD_KEYS[what]
    lookuper = users.new_lookup().create_lookuper()
    with pytest.raises(errors.RowError, match=hint):
        done(lookuper.lookup(key))
    with pytest.raises(errors.RowError, match=hint):
        done(lookuper.lookup_many([{"id": 1}, key]))


@pytest.fixture(scope="module")
def users(connection: fluss.FlussConnection, shared_database: str) -> fluss.FlussTable:
    """A table for tests that change nothing."""
    return Tables(connection, done(connection.get_admin()), shared_database).create(USERS, ["id"])


def test_what_are_no_keys_is_a_typed_error(users: fluss.FlussTable) -> None:
    lookuper = users.new_lookup().create_lookuper()
    bad: list[Any] = [
        {"id": 1},
        "keys",
        pa.table({"name": ["x"]}),
        pa.table({"id": pa.array([1, None], pa.int32())}),
        pa.table({"id": ["x"]}),
        pa.table({"id": pa.array([1 << 40])}),
    ]
    for keys in bad:
        with pytest.raises(errors.RowError):
            done(lookuper.lookup_many(keys))


def test_a_log_table_has_no_keys(tables: Tables) -> None:
    table = tables.create({"id": pa.int32()})
    with pytest.raises(errors.NonPrimaryKeyTableError, match="scan") as raised:
        table.new_lookup()
    assert raised.value.error_code == fluss.ErrorCode.NON_PRIMARY_KEY_TABLE_EXCEPTION


def test_rows_of_an_older_schema_are_found(tables: Tables) -> None:
    first = tables.create(USERS, ["id"], buckets=2)
    tables.upsert(first, [(1, "a", 1), (2, "b", 2)])
    done(
        tables.admin.alter_table(first.get_table_path(), add_columns=[pa.field("x", pa.float64())])
    )
    second = tables.reopen(first)
    tables.upsert(second, [(2, "bb", 2, 0.5), (3, "c", 3, 1.5)])

    lookuper = second.new_lookup().create_lookuper()
    rows = [
        {"id": 1, "name": "a", "age": 1, "x": None},
        {"id": 2, "name": "bb", "age": 2, "x": 0.5},
        {"id": 3, "name": "c", "age": 3, "x": 1.5},
    ]
    assert [done(lookuper.lookup((i,))) for i in (1, 2, 3)] == rows
    assert done(lookuper.lookup_many([(1,), (2,), (3,), (4,)])) == [*rows, None]
    # Whoever opened the table before sees it as it was.
    before = first.new_lookup().create_lookuper()
    assert done(before.lookup((3,))) == {"id": 3, "name": "c", "age": 3}
    assert done(before.lookup_many([(2,), (1,)])) == [
        {"id": 2, "name": "bb", "age": 2},
        {"id": 1, "name": "a", "age": 1},
    ]
