"""What a primary-key table keeps and what its changelog tells, under every way to write it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client import errors
from tests.contract.tables import Tables, done

ROW = {"id": pa.int32(), "a": pa.string(), "b": pa.int64()}


def _row(id_: int, a: str | None, b: int | None) -> dict[str, Any]:
    return {"id": id_, "a": a, "b": b}


@pytest.mark.supports("Upsert", "Delete", "Scan of a changelog")
def test_inserts_updates_and_deletes(tables: Tables) -> None:
    table = tables.create(ROW, ["id"])
    tables.upsert(table, [_row(1, "x", 1)])
    tables.upsert(table, [_row(1, "y", 2), _row(2, "z", None)])
    tables.delete(table, [{"id": 1}, (3,)])
    tables.upsert(table, [_row(1, "again", 4)])
    assert tables.changes(table, 6) == [
        ("+I", _row(1, "x", 1)),
        ("-U", _row(1, "x", 1)),
        ("+U", _row(1, "y", 2)),
        ("+I", _row(2, "z", None)),
        ("-D", _row(1, "y", 2)),
        ("+I", _row(1, "again", 4)),
    ]
    assert tables.lookup(table, (1,)) == _row(1, "again", 4)
    assert tables.lookup(table, (2,)) == _row(2, "z", None)


def test_one_batch_may_write_a_key_several_times(tables: Tables) -> None:
    table = tables.create(ROW, ["id"])
    with table.new_upsert().create_writer() as writer:
        writer.upsert(_row(1, "x", 1))
        writer.delete((1,))
        writer.upsert(_row(1, "y", 2))
        writer.upsert(_row(1, "y", 2))
    changes = tables.log(table)
    assert tables.lookup(table, (1,)) == _row(1, "y", 2)
    assert changes.num_rows >= 3
    assert changes["a"].to_pylist()[:3] == ["x", "x", "y"]


def test_rows_of_a_changelog_are_in_the_order_of_the_writes(tables: Tables) -> None:
    table = tables.create(ROW, ["id"], buckets=2)
    count = 2_000
    with table.new_upsert().create_writer() as writer:
        for i in range(count):
            writer.upsert(_row(i % 7, f"v{i}", i))
    log = tables.log(table)
    for key in range(7):
        after = [
            row["b"]
            for row in log.to_pylist()
            if row["id"] == key and row["_change_type"] in ("+I", "+U")
        ]
        assert after == list(range(key, count, 7))


@pytest.mark.supports("Partial update")
def test_a_partial_update_keeps_the_other_columns(tables: Tables) -> None:
    table = tables.create(ROW, ["id"])
    tables.upsert(table, [_row(1, "x", 1)])
    tables.upsert(table, [{"id": 1, "b": 2}, {"id": 2, "b": 7}], columns=["id", "b"])
    by_index = table.new_upsert().partial_update_by_index([0, 1])
    with by_index.create_writer() as writer:
        writer.upsert((2, "y"))
    assert tables.lookup(table, (1,)) == _row(1, "x", 2)
    assert tables.lookup(table, (2,)) == _row(2, "y", 7)
    with by_index.create_writer() as writer:
        writer.delete((1,))
    assert tables.lookup(table, (1,)) == _row(1, None, 2), "only the writer's columns go"
    with table.new_upsert(columns=["id", "b"]).create_writer() as writer:
        writer.delete((1,))
    assert tables.lookup(table, (1,)) is None, "nothing was left of the row"


@pytest.mark.supports("Partial update")
def test_a_partial_update_with_arrow(tables: Tables) -> None:
    table = tables.create(ROW, ["id"])
    tables.upsert(table, [_row(i, f"a{i}", i) for i in range(100)])
    keys = pa.array(range(50, 150), pa.int32())
    change = pa.table({"b": pa.array(range(100), pa.int64()), "id": keys})
    tables.upsert(table, change, columns=["id", "b"])
    found = done(table.new_lookup().lookup_many([(10,), (60,), (140,)]))
    assert found == [_row(10, "a10", 10), _row(60, "a60", 10), _row(140, None, 90)]


def test_columns_that_cannot_be_written_alone(tables: Tables) -> None:
    schema = pa.schema(
        [("id", pa.int32()), pa.field("a", pa.string(), nullable=False), ("b", pa.int64())]
    )
    table = tables.create(schema, ["id"])
    for columns, hint in ((["a", "b"], "id"), (["id", "b"], "a"), (["id", "nope"], "nope")):
        with pytest.raises(errors.InvalidTargetColumnError, match=hint) as raised:
            table.new_upsert(columns=columns).create_writer()
        assert raised.value.error_code == fluss.ErrorCode.INVALID_TARGET_COLUMN
    with pytest.raises(errors.InvalidTargetColumnError):
        table.new_upsert().partial_update_by_index([0, 9])


@pytest.mark.supports("Merge engine FIRST_ROW")
def test_the_first_row_wins(tables: Tables) -> None:
    table = tables.create(ROW, ["id"], properties={"table.merge-engine": "first_row"})
    tables.upsert(table, [_row(1, "first", 1), _row(2, "other", 2)])
    tables.upsert(table, [_row(1, "second", 9)])
    with table.new_upsert().create_writer() as writer:
        writer.delete((1,))
    assert tables.lookup(table, (1,)) == _row(1, "first", 1)
    assert tables.changes(table, 2) == [("+I", _row(1, "first", 1)), ("+I", _row(2, "other", 2))]


@pytest.mark.supports("Delete behavior")
def test_deletes_may_be_ignored_or_refused(tables: Tables) -> None:
    for behavior in ("ignore", "disable"):
        table = tables.create(ROW, ["id"], properties={"table.delete.behavior": behavior})
        tables.upsert(table, [_row(1, "x", 1)])
        writer = table.new_upsert().create_writer()
        handle = writer.delete((1,))
        if behavior == "ignore":
            done(handle.wait())
        else:
            with pytest.raises(errors.WriteError) as raised:
                done(handle.wait())
            assert raised.value.error_code == fluss.ErrorCode.DELETION_DISABLED_EXCEPTION
            assert isinstance(raised.value.__cause__, errors.DeletionDisabledError)
            assert "nevertheless" not in raised.value.message, "the server's word was clear"
            done(writer.flush())
        writer.close()
        assert tables.lookup(table, (1,)) == _row(1, "x", 1)


@pytest.mark.supports("Changelog image WAL")
def test_a_changelog_without_the_old_rows(tables: Tables) -> None:
    table = tables.create(ROW, ["id"], properties={"table.changelog.image": "WAL"})
    tables.upsert(table, [_row(1, "x", 1)])
    tables.upsert(table, [_row(1, "y", 2)])
    tables.delete(table, [(1,)])
    kinds = [kind for kind, _ in tables.changes(table, 3)]
    assert kinds[1:] == ["+U", "-D"]
    assert kinds[0] in ("+U", "+I")
    assert tables.lookup(table, (1,)) is None


@pytest.mark.supports("Scan with a limit")
def test_a_limit_scan_shows_key_state(tables: Tables) -> None:
    table = tables.create(ROW, ["id"])
    tables.upsert(table, [_row(i, f"a{i}", i) for i in range(10)])
    tables.delete(table, [(0,)])
    bucket = fluss.TableBucket(table.get_table_info().table_id, 0)
    scan = table.new_scan().project_by_name(["b", "id"]).limit(100)
    found = scan.create_bucket_batch_scanner(bucket).to_arrow()
    assert found.column_names == ["b", "id"]
    assert sorted(found["id"].to_pylist()) == list(range(1, 10))
    few = table.new_scan().limit(3).create_bucket_batch_scanner(bucket)
    assert few.bucket == bucket
    assert done(few.next_batch()).batch.num_rows == 3
    assert done(few.next_batch()) is None
