"""What programs written for the official client rely on, on every backend."""

from __future__ import annotations

import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client import col, errors
from tests.contract.tables import Tables, done

ROW = pa.struct([pa.field("a", pa.int32()), pa.field("b", pa.int32(), nullable=False)])
NESTED = {
    "id": pa.int64(),
    "tags": pa.list_(pa.field("whatever", pa.string())),
    "named": pa.map_(pa.string(), pa.list_(pa.int32())),
    "inner": pa.struct([("lists", pa.list_(pa.list_(pa.int32())))]),
}


def test_a_filter_leaves_out_nothing_that_matches(tables: Tables) -> None:
    table = tables.create({"id": pa.int64(), "name": pa.string()})
    tables.append(table, [{"id": i, "name": f"n{i}"} for i in range(20)])
    hot = (col("id") >= 15) & col("name").starts_with("n")
    scan = table.new_scan().filter(hot).project_by_name(["id"])
    with done(scan.create_record_batch_log_scanner()) as scanner:
        scanner.subscribe(0, fluss.EARLIEST_OFFSET)
        ids = scanner.to_arrow()["id"].to_pylist()
    # More may come: a filter leaves out whole batches, if any.
    assert set(range(15, 20)) <= set(ids)
    with done(table.new_scan().filter(hot).create_log_scanner()) as scanner:
        scanner.subscribe(0, 15)
        assert [r.row["id"] for r in scanner.poll(10_000)] == list(range(15, 20))


def test_a_filter_that_does_not_fit_is_refused_when_the_scanner_is_made(tables: Tables) -> None:
    table = tables.create({"id": pa.int64(), "name": pa.string()})
    bucket = fluss.TableBucket(table.get_table_info().table_id, 0)
    for wrong in (col("nope") == 1, col("id") == "x", (col("id") == 1) & (col("name") == 2)):
        with pytest.raises(errors.SchemaError, match="column"):
            done(table.new_scan().filter(wrong).create_log_scanner())
        with pytest.raises(errors.SchemaError, match="column"):
            done(table.new_scan().filter(wrong).create_record_batch_log_scanner())
    limited = table.new_scan().filter(col("id") == 1).limit(5)
    with pytest.raises(errors.UnsupportedError, match="takes no filter"):
        limited.create_bucket_batch_scanner(bucket)
    with pytest.raises(errors.PredicateError, match="made of col"):
        table.new_scan().filter("id = 1")  # type: ignore[arg-type]


def test_the_elements_of_lists_are_items(tables: Tables) -> None:
    table = tables.create(NESTED)
    row = {"id": 1, "tags": ["x"], "named": {"k": [1]}, "inner": {"lists": [[1], []]}}
    tables.append(table, [row])
    tables.append(table, tables.log(table))
    bucket = fluss.TableBucket(table.get_table_info().table_id, 0)
    limited = table.new_scan().limit(5).create_bucket_batch_scanner(bucket)
    for found in (tables.log(table), limited.to_arrow()):
        # Arrow's types are equal whatever the name: compare their texts.
        for types in ([f.type for f in found.schema], [c.chunk(0).type for c in found.columns]):
            assert [str(kind) for kind in types[1:]] == [
                "list<item: string>",
                "map<string, list<item: int32>>",
                "struct<lists: list<item: list<item: int32>>>",
            ]
        assert found["tags"].to_pylist() == [["x"], ["x"]]


def test_rows_that_do_not_fit_are_refused_in_known_words(tables: Tables) -> None:
    fields = [
        pa.field("id", pa.int32()),
        pa.field("req", pa.int32(), nullable=False),
        pa.field("nested", ROW),
        pa.field("tags", pa.list_(pa.string())),
    ]
    table = tables.create(pa.schema(fields), ["id"])
    with table.new_upsert().create_writer() as writer:
        with pytest.raises(errors.RowError, match=r"column 'req' .*non-nullable field 'req'"):
            writer.upsert({"id": 3})
        with pytest.raises(errors.RowError, match=r"'nested\.b' .*non-nullable row field 'b'"):
            writer.upsert({"id": 4, "req": 5, "nested": {"a": 1}})
        with pytest.raises(errors.RowError, match="Expected sequence for Array column 'tags'"):
            writer.upsert({"id": 5, "req": 5, "tags": "not_a_list"})


def test_more_is_taken_than_the_official_client_takes(tables: Tables) -> None:
    """The two refusals of that client's suite that we leave out on purpose."""
    users = tables.create({"id": pa.int64(), "name": pa.string()}, ["id"])
    tables.upsert(users, [{"id": 1, "name": "a"}])
    assert tables.log(users).to_pylist() == [{"id": 1, "name": "a", "_change_type": "+I"}]
    rows = tables.create({"id": pa.int64()}, log_format="INDEXED")
    tables.append(rows, [{"id": 1}])
    bucket = fluss.TableBucket(rows.get_table_info().table_id, 0)
    limited = rows.new_scan().limit(1).create_bucket_batch_scanner(bucket)
    assert limited.to_arrow()["id"].to_pylist() == [1]
