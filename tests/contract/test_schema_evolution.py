"""Reading with fewer columns, and with columns that older rows do not have."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client import errors
from tests.contract.tables import Tables, done

FORMATS: dict[str, dict[str, Any]] = {
    "ARROW": {},
    "ARROW without compression": {"properties": {"table.log.arrow.compression.type": "NONE"}},
    "INDEXED": {"log_format": "INDEXED"},
    "COMPACTED": {"log_format": "COMPACTED"},
}
NEW = [pa.field("c", pa.float64()), pa.field("d", pa.list_(pa.int32()))]


@pytest.mark.supports("Scan with a projection")
@pytest.mark.parametrize("kind", FORMATS)
def test_projection_across_an_added_column(tables: Tables, kind: str) -> None:
    old = tables.create({"a": pa.int32(), "b": pa.string()}, **FORMATS[kind])
    tables.append(old, [(i, f"b{i}") for i in range(10)])
    done(tables.admin.alter_table(old.get_table_path(), add_columns=NEW))
    new = tables.reopen(old)
    tables.append(new, [(10 + i, f"b{10 + i}", i / 2, [i, None]) for i in range(5)])
    tables.append(old, [(15, "by a writer from before")])

    whole = tables.log(new)
    assert whole.column_names == ["a", "b", "c", "d"]
    assert whole["a"].to_pylist() == list(range(16))
    assert whole["c"].to_pylist() == [None] * 10 + [0.0, 0.5, 1.0, 1.5, 2.0] + [None]
    for columns in (["b"], ["c"], ["d", "a"], ["c", "b", "a"]):
        part = tables.log(new, columns)
        assert part.column_names == columns
        for name in columns:
            assert part[name].to_pylist() == whole[name].to_pylist(), (columns, name)
    # Whoever opened the table before keeps its two columns.
    assert tables.log(old).equals(whole.select(["a", "b"]))
    assert tables.log(old, ["b"])["b"].to_pylist() == whole["b"].to_pylist()
    assert [r.row for r in tables.records(new, 16)] == whole.to_pylist()


@pytest.mark.supports("Scan with a projection", "Scan of a changelog")
def test_a_changelog_across_an_added_column(tables: Tables) -> None:
    old = tables.create({"a": pa.int32(), "b": pa.string()}, ["a"])
    tables.upsert(old, [(1, "x"), (2, "y")])
    done(tables.admin.alter_table(old.get_table_path(), add_columns=NEW))
    new = tables.reopen(old)
    tables.upsert(new, [(1, "xx", 0.5, [1])])

    def row(a: int, b: str, c: float | None, d: list[int] | None) -> dict[str, Any]:
        return {"a": a, "b": b, "c": c, "d": d}

    assert tables.changes(new, 4) == [
        ("+I", row(1, "x", None, None)),
        ("+I", row(2, "y", None, None)),
        ("-U", row(1, "x", None, None)),
        ("+U", row(1, "xx", 0.5, [1])),
    ]
    part = tables.log(new, ["c", "a"])
    assert part["c"].to_pylist() == [None, None, None, 0.5]
    kinds = ["+I", "+I", "-U", "+U"]
    assert part["_change_type"].to_pylist() == kinds


@pytest.mark.supports("Scan with a limit")
def test_a_limit_scan_across_an_added_column(tables: Tables) -> None:
    for keys in (None, ["a"]):
        old = tables.create({"a": pa.int32(), "b": pa.string()}, keys)
        write = tables.append if keys is None else tables.upsert
        write(old, [(1, "x")])
        done(tables.admin.alter_table(old.get_table_path(), add_columns=NEW[:1]))
        new = tables.reopen(old)
        write(new, [(2, "y", 0.5)])
        bucket = fluss.TableBucket(new.get_table_info().table_id, 0)
        scanner = new.new_scan().project([2, 0]).limit(10).create_bucket_batch_scanner(bucket)
        found = scanner.to_arrow().sort_by("a")
        assert found.to_pylist() == [{"c": None, "a": 1}, {"c": 0.5, "a": 2}]


def test_columns_that_are_not_there(tables: Tables) -> None:
    table = tables.create({"a": pa.int32(), "b": pa.string()})
    for wrong in (["nope"], ["a", "a"], []):
        with pytest.raises(errors.FlussError):
            table.new_scan().project_by_name(wrong)
    for indices in ([2], [-1], [0, 0], []):
        with pytest.raises(errors.FlussError):
            table.new_scan().project(indices)
