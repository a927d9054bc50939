"""Upsert writers: order per key, deletes, partial updates, partitions, bulk."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client import errors
from tests.contract.tables import Tables, done

USERS = {"id": pa.int32(), "name": pa.string(), "age": pa.int64()}


def row(at: int, name: str | None = None, age: int | None = None) -> dict[str, Any]:
    return {"id": at, "name": name, "age": age}


def state(tables: Tables, table: fluss.FlussTable, ids: range) -> dict[int, dict[str, Any]]:
    """The rows of some keys, as look-ups find them."""
    lookuper = table.new_lookup().create_lookuper()
    found = done(lookuper.lookup_many([{"id": at} for at in ids]))
    return {at: value for at, value in zip(ids, found, strict=True) if value is not None}


@pytest.mark.supports("Upsert", "Delete")
def test_rows_of_every_form_and_deletes_in_order(tables: Tables) -> None:
    table = tables.create(USERS, ["id"], buckets=3)
    with table.new_upsert().create_writer() as writer:
        writer.upsert({"id": 1, "name": "a", "age": 1})
        writer.upsert([2, "b", None])
        writer.upsert((3, None, 3))
        writer.upsert({"id": 4})
        writer.delete({"id": 2})
        writer.delete([3])
        writer.upsert((3, "again", None))
        done(writer.delete((4,)).wait())
    assert state(tables, table, range(6)) == {1: row(1, "a", 1), 3: row(3, "again")}


def test_an_acknowledged_row_is_found_at_once(tables: Tables) -> None:
    table = tables.create(USERS, ["id"])
    writer = table.new_upsert().create_writer()
    for age in range(5):
        done(writer.upsert((1, "a", age)).wait())
        assert tables.lookup(table, {"id": 1}) == row(1, "a", age)
    done(writer.delete((1,)).wait())
    assert tables.lookup(table, {"id": 1}) is None


@pytest.mark.supports("Upsert of Arrow batches", "Delete of Arrow keys")
def test_bulk_upserts_and_deletes(tables: Tables) -> None:
    table = tables.create(USERS, ["id"], buckets=4)
    count = 20_000
    whole = pa.table({"id": np.arange(count), "name": [f"n{at}" for at in range(count)]})
    with table.new_upsert().create_writer() as writer:
        writer.write_arrow(whole)
        done(writer.write_arrow_batch(pa.record_batch({"id": [1], "age": [7]})).wait())
        writer.write_pandas(pd.DataFrame({"id": [2], "name": ["df"], "age": [8]}))
        done(writer.delete_arrow(pa.table({"id": np.arange(10, 1000)})).wait())
        writer.delete_arrow(pa.record_batch({"id": pa.array([3], pa.int32())}))
        writer.upsert((10, "back", None))
    found = state(tables, table, range(count))
    assert len(found) == count - 990 - 1 + 1
    assert found[0] == row(0, "n0")
    assert found[1] == row(1, None, 7)
    assert found[2] == row(2, "df", 8)
    assert 3 not in found
    assert found[10] == row(10, "back")
    assert found[count - 1] == row(count - 1, f"n{count - 1}")


def test_so_many_narrow_rows_that_their_changes_fill_a_page(tables: Tables) -> None:
    """Servers refuse a batch that makes some 131,000 changes, which 2 MB of narrow rows can do."""
    table = tables.create({"id": pa.int64(), "n": pa.int32()}, ["id"])
    count = 150_000
    for n in range(2):
        with table.new_upsert().create_writer() as writer:
            for part in np.array_split(np.arange(count), 7):
                numbers = pa.array(np.full(part.size, n), pa.int32())
                writer.write_arrow(pa.table({"id": part, "n": numbers}))
            done(writer.flush())
    found = done(table.new_lookup().create_lookuper().lookup_many([(0,), (count - 1,), (count,)]))
    assert found == [{"id": 0, "n": 1}, {"id": count - 1, "n": 1}, None]


def test_the_last_write_of_every_key_wins(tables: Tables, config: fluss.Config) -> None:
    table = tables.create(USERS, ["id"], buckets=3)
    config.writer_batch_size = 1024
    chance = random.Random(7)
    expected: dict[int, dict[str, Any]] = {}
    with done(fluss.FlussConnection.create(config)) as connection:
        own = done(connection.get_table(table.get_table_path()))
        with own.new_upsert().create_writer() as writer:
            for at in range(3000):
                key, luck = chance.randrange(40), chance.random()
                if luck < 0.1:
                    writer.delete({"id": key})
                    expected.pop(key, None)
                elif luck < 0.2:
                    writer.write_arrow(pa.table({"id": [key, key], "age": [-1, at]}))
                    expected[key] = row(key, None, at)
                elif luck < 0.25:
                    writer.delete_arrow(pa.table({"id": [key]}))
                    expected.pop(key, None)
                else:
                    writer.upsert((key, "x", at))
                    expected[key] = row(key, "x", at)
    assert state(tables, table, range(40)) == expected


@pytest.mark.supports("Partial update")
def test_a_writer_of_some_columns(tables: Tables) -> None:
    table = tables.create(USERS, ["id"])
    tables.upsert(table, [(1, "a", 1), (2, "b", 2)])
    with table.new_upsert().partial_update_by_name(["name", "id"]).create_writer() as writer:
        writer.upsert({"id": 1, "name": "new"})
        writer.upsert(["fresh", 3])
        writer.write_arrow(pa.table({"id": [4], "name": ["arrow"]}))
        writer.delete([2])
        with pytest.raises(errors.RowError, match="no column 'age' here"):
            writer.upsert({"id": 1, "age": 5})
    with table.new_upsert().partial_update_by_index([0, 2]).create_writer() as writer:
        writer.upsert([3, 33])
    assert state(tables, table, range(6)) == {
        1: row(1, "new", 1),
        2: row(2, None, 2),
        3: row(3, "fresh", 33),
        4: row(4, "arrow"),
    }


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["name"], "whole primary key; id is missing"),
        (["id", "nope"], "no column 'nope'"),
    ],
)
def test_columns_that_cannot_be_written_alone(
    tables: Tables, columns: list[str], message: str
) -> None:
    table = tables.create(USERS, ["id"])
    with pytest.raises(errors.InvalidTargetColumnError) as caught:
        table.new_upsert().partial_update_by_name(columns).create_writer()
    assert message in str(caught.value)


def test_a_null_in_the_key_is_refused_and_nothing_is_sent(tables: Tables) -> None:
    table = tables.create(USERS, ["id"])
    with table.new_upsert().create_writer() as writer:
        for bad in ({"name": "a"}, (None, "a", 1)):
            with pytest.raises(errors.RowError, match="column 'id'"):
                writer.upsert(bad)
        with pytest.raises(errors.RowError, match="column 'id'"):
            writer.delete({"id": None})
        with pytest.raises(errors.RowError, match="column 'id'"):
            writer.write_arrow(pa.table({"id": pa.array([1, None], pa.int32())}))
        writer.upsert((2, "good", 1))
    assert state(tables, table, range(4)) == {2: row(2, "good", 1)}


def test_a_log_table_is_refused(tables: Tables) -> None:
    table = tables.create(USERS)
    with pytest.raises(errors.UnsupportedError, match="new_append"):
        table.new_upsert().create_writer()


@pytest.mark.supports("Upsert to a partitioned table")
def test_partitions(tables: Tables) -> None:
    table = tables.create(
        {"id": pa.int32(), "region": pa.string(), "v": pa.int64()},
        ["id", "region"],
        buckets=2,
        bucket_keys=["id"],
        partition_keys=["region"],
        partitions=[{"region": "eu"}, {"region": "us"}],
    )
    with table.new_upsert().create_writer() as writer:
        for at in range(50):
            writer.upsert((at, "eu" if at % 2 else "us", at))
        writer.write_arrow(pa.table({"id": [1, 1], "region": ["us", "eu"], "v": [100, 101]}))
        writer.delete({"id": 3, "region": "eu"})
        writer.delete_arrow(pa.table({"region": ["us"], "id": [4]}))
        with pytest.raises(errors.PartitionNotExistError, match="asia"):
            writer.write_arrow(pa.table({"id": [1], "region": ["asia"], "v": [1]}))
    assert tables.lookup(table, {"id": 1, "region": "eu"}) == {"id": 1, "region": "eu", "v": 101}
    assert tables.lookup(table, {"id": 1, "region": "us"}) == {"id": 1, "region": "us", "v": 100}
    assert tables.lookup(table, {"id": 3, "region": "eu"}) is None
    assert tables.lookup(table, {"id": 4, "region": "us"}) is None
    assert tables.lookup(table, {"id": 5, "region": "eu"}) == {"id": 5, "region": "eu", "v": 5}


def test_a_table_that_takes_no_deletes_says_so_and_keeps_the_rest(tables: Tables) -> None:
    table = tables.create(USERS, ["id"], properties={"table.delete.behavior": "disable"})
    writer = table.new_upsert().create_writer()
    done(writer.upsert((1, "a", 1)).wait())
    handle = writer.delete((1,))
    with pytest.raises(errors.WriteError) as caught:
        done(handle.wait())
    assert isinstance(caught.value.__cause__, errors.DeletionDisabledError)
    assert caught.value.error_code == errors.DeletionDisabledError.code
    writer.upsert((2, "b", 2))
    done(writer.flush())
    assert state(tables, table, range(4)) == {1: row(1, "a", 1), 2: row(2, "b", 2)}


def test_without_idempotence(tables: Tables, config: fluss.Config) -> None:
    table = tables.create(USERS, ["id"])
    config.writer_enable_idempotence = False
    config.writer_acks = "1"
    with done(fluss.FlussConnection.create(config)) as connection:
        own = done(connection.get_table(table.get_table_path()))
        with own.new_upsert().create_writer() as writer:
            for at in range(500):
                writer.upsert((at % 7, "x", at))
    assert {k: v["age"] for k, v in state(tables, table, range(7)).items()} == {
        at % 7: at for at in range(493, 500)
    }
