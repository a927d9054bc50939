"""Values, keys, schemas and positions of a SQL mirror, without a cluster."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
import sqlalchemy as sa

from fluss_client.errors import ConfigError
from fluss_orchestrate.core.sinks import (
    SinkError,
    SinkFormError,
    SinkPositionError,
    SinkSchemaError,
    SinkValueError,
    SqlSink,
)
from fluss_orchestrate.core.sinks.partition_values import partition_rows
from tests.orchestrate.mirror_sql.change_plans import plan_of, reading, state

D = decimal.Decimal
NS = 1_700_000_000_123_456_789
VALUES: dict[str, pa.Array] = {
    "flag": pa.array([True, False, None], pa.bool_()),
    "tiny": pa.array([-128, 127, None], pa.int8()),
    "big": pa.array([-(2**63), 2**63 - 1, None], pa.int64()),
    "f32": pa.array([0.1, math.inf, None], pa.float32()),
    "f64": pa.array([math.nan, -math.inf, None], pa.float64()),
    "zero": pa.array([-0.0, 5e-324, None], pa.float64()),
    "small": pa.array([D("9999999999999.99"), D("-0.01"), None], pa.decimal128(15, 2)),
    "wide": pa.array([D("9" * 30 + ".12345678"), D("0.00000001"), None], pa.decimal128(38, 8)),
    "text": pa.array(["", 'quote " , \n\\.\n\r\\.\t\u00fc', None], pa.string()),
    "null": pa.array(["NULL", "\\N", None], pa.string()),
    "bytes": pa.array([b"", bytes(range(256)), None], pa.binary()),
    "fixed": pa.array([b"abc", b"\0\0\\", None], pa.binary(3)),
    "date": pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31), None], pa.date32()),
    "time": pa.array([0, 86_399_999, None], pa.time32("ms")),
    "local": pa.array([-62135596800000, 253402300799999, None], pa.timestamp("ms")),
    "zoned": pa.array([1, 1_700_000_000_123_456, None], pa.timestamp("us", tz="UTC")),
    "nested": pa.array([["a\0b", None], [], None], pa.list_(pa.string())),
    "floats": pa.array([[math.nan, -math.inf], [0.1], None], pa.list_(pa.float64())),
    "rows": pa.array(
        [{"n": 1, "raw": b"\xff", "at": NS}, {"n": None, "raw": None, "at": None}, None],
        pa.struct([("n", pa.int32()), ("raw", pa.binary()), ("at", pa.timestamp("ns"))]),
    ),
    "map": pa.array([[("k", D("1.50"))], [], None], pa.map_(pa.string(), pa.decimal128(10, 2))),
    "deep": pa.array(
        [[{"t": 3_723_001, "d": dt.date(2024, 2, 29)}], [None], None],
        pa.list_(pa.struct([("t", pa.time32("ms")), ("d", pa.date32())])),
    ),
}


def keyed(rows: dict[str, Any]) -> pa.Table:
    return pa.table({"id": pa.array(range(3), pa.int32()), **rows})


def read_back(sink: SqlSink, schema: pa.Schema, name: str = "m") -> pa.Table:
    with sink.read_mirror(name, schema.remove_metadata()) as found:
        assert found is not None
        return found.rows.read_all().sort_by("id")


def execute(url: str, *statements: str) -> None:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def scalar(url: str, query: str) -> Any:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        return connection.exec_driver_sql(query).scalar()


@pytest.mark.parametrize("way", ["state", "changes"])
def test_values_come_back_as_they_were(sql_url: str, way: str) -> None:
    rows = keyed(VALUES)
    sink = SqlSink(sql_url, "t", form="mirror")
    if way == "state":
        sink.write(plan_of(0, 3, kind="state"), state(rows))
    else:
        sink.write(plan_of(0, 0), state(rows.slice(0, 0)))
        sink.write(plan_of(0, 3), reading(rows, ["+I", "+U", "+I"]))
    found = read_back(sink, rows.schema)
    for name in rows.schema.names:
        # Arrow takes no NaN for equal. SQLite keeps no sign of zero.
        wanted = repr(rows[name].to_pylist())
        if sql_url.startswith("sqlite"):
            wanted = wanted.replace("-0.0,", "0.0,")
        assert repr(found[name].to_pylist()) == wanted, name
        assert found.schema.field(name).type == rows.schema.field(name).type


def test_nanoseconds_are_read_back_as_microseconds(sql_url: str) -> None:
    rows = keyed({"at": pa.array([NS, 1, None], pa.timestamp("ns", tz="UTC"))})
    sink = SqlSink(sql_url, "t", form="mirror")
    sink.write(plan_of(0, 3, kind="state"), state(rows))
    found = read_back(sink, rows.schema)
    assert found.schema.field("at").type == pa.timestamp("us", tz="UTC")
    assert found["at"].cast(pa.int64()).to_pylist() == [NS // 1000, 0, None]


def test_a_plan_is_applied_once_and_in_order(sql_url: str) -> None:
    sink = SqlSink(sql_url, "t", form="mirror")
    rows = pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]})
    first = plan_of(0, 3, kind="state")
    done = sink.write(first, state(rows))
    assert (done.rows, done.moved) == (3, None)
    assert done.details == {"table": "t", "upserted": 3, "deleted": 0}
    more = pa.table({"id": [1, 1, 2, 4, 4, 5], "v": ["a", "A", "b", "d", "d", "e"]})
    second, read = plan_of(3, 9), reading(more, ["-U", "+U", "-D", "+I", "-D", "+I"])
    done = sink.write(second, read)
    assert done.details == {"table": "t", "upserted": 2, "deleted": 1}
    held = [{"id": 1, "v": "A"}, {"id": 3, "v": "c"}, {"id": 5, "v": "e"}]
    assert read_back(sink, rows.schema).to_pylist() == held
    for plan in (second, first):
        assert sink.write(plan, read).moved == 0
    with pytest.raises(SinkPositionError):
        sink.write(plan_of(20, 21), read)
    assert read_back(sink, rows.schema).to_pylist() == held


def test_names_may_have_any_characters(sql_url: str) -> None:
    names = ["id", "a%b", "per %s cent", "a:b", 'a"b', "Ä b", "SELECT"]
    rows = pa.table([[1, 2], *([f"{n}{row}" for row in "xy"] for n in names[1:])], names=names)
    for key in (["id"], ["id", "a%b", 'a"b'], names):
        sink = SqlSink(sql_url, f"T%1: {len(key)}", form="mirror")
        sink.write(plan_of(0, 1, kind="state"), state(rows.slice(0, 1), key))
        sink.write(plan_of(1, 4), reading(rows, ["+U", "+I"], key))
        assert read_back(sink, rows.schema).to_pylist() == rows.to_pylist()
        sink.write(plan_of(4, 5), reading(rows.slice(1), ["-D"], key))
        assert read_back(sink, rows.schema).to_pylist() == rows.slice(0, 1).to_pylist()


def test_a_new_generation_replaces_all_rows(sql_url: str) -> None:
    sink = SqlSink(sql_url, "t", form="mirror")
    rows = pa.table({"id": [1, 2], "v": ["a", "b"]})
    sink.write(plan_of(0, 2, kind="state"), state(rows))
    again = pa.table({"id": [2, 3], "v": ["B", "C"]})
    done = sink.write(plan_of(0, 5, kind="state", generation=7), state(again))
    assert done.details == {"table": "t", "upserted": 2, "deleted": 2}
    assert read_back(sink, rows.schema).to_pylist() == again.to_pylist()
    with pytest.raises(SinkPositionError):
        sink.write(plan_of(2, 3), state(rows))
    # An empty table begins a generation, too.
    sink.write(plan_of(0, 0, kind="state", generation=9), state(rows.slice(0, 0)))
    assert read_back(sink, rows.schema).num_rows == 0


def test_tables_that_are_no_mirror_are_refused(sql_url: str) -> None:
    rows = pa.table({"id": [1], "v": ["a"]})
    plan = plan_of(0, 1, kind="state")
    cases = {
        "no_key": ("CREATE TABLE no_key (id BIGINT, v TEXT)", SinkSchemaError, "primary key"),
        "other": ("CREATE TABLE other (id BIGINT, v TEXT, UNIQUE (id, v))", SinkSchemaError, "key"),
        "typed": ("CREATE TABLE typed (id TEXT PRIMARY KEY, v TEXT)", SinkSchemaError, "type"),
        "lacks": ("CREATE TABLE lacks (id BIGINT PRIMARY KEY)", SinkSchemaError, "add_columns"),
    }
    for name, (made, error, text) in cases.items():
        execute(sql_url, made)
        with pytest.raises(error, match=text):
            SqlSink(sql_url, name, form="mirror").write(plan, state(rows))
    execute(
        sql_url,
        "CREATE TABLE taken (id BIGINT NOT NULL UNIQUE, v TEXT, own TEXT DEFAULT 'x')",
        "INSERT INTO taken (id, v) VALUES (7, 'mine')",
    )
    sink = SqlSink(sql_url, "taken", form="mirror")
    with pytest.raises(SinkFormError, match="Empty it"):
        sink.write(plan, state(rows))
    assert scalar(sql_url, "SELECT id FROM taken") == 7
    assert sink.position("m") is None
    execute(sql_url, "DELETE FROM taken")
    sink.write(plan, state(rows))
    assert scalar(sql_url, "SELECT own FROM taken") == "x"


def test_a_key_column_that_merges_keys_is_refused(sql_url: str) -> None:
    rows = pa.table({"id": ["a", "A"]})
    plan = plan_of(0, 2, kind="state")
    if sql_url.startswith("sqlite"):
        execute(sql_url, "CREATE TABLE t (id TEXT COLLATE NOCASE PRIMARY KEY)")
    else:
        execute(
            sql_url,
            "CREATE COLLATION lenient (provider = icu, locale = 'und-u-ks-level2', "
            "deterministic = false)",
            "CREATE TABLE t (id TEXT COLLATE lenient PRIMARY KEY)",
        )
    with pytest.raises(SinkSchemaError, match="collation"):
        SqlSink(sql_url, "t", form="mirror").write(plan, state(rows))
    for kind in (pa.float64(), pa.timestamp("ns")):
        wrong = pa.table({"id": pa.array([1, 2]).cast(kind)})
        with pytest.raises(SinkSchemaError, match="two keys for one"):
            SqlSink(sql_url, "other", form="mirror").write(plan, state(wrong))


def test_nul_is_never_replaced_in_a_key(sql_url: str) -> None:
    rows = pa.table({"id": ["a", "a\0"], "v": ["x\0y", None]})
    plan = plan_of(0, 2, kind="state")
    if sql_url.startswith("sqlite"):
        SqlSink(sql_url, "t", form="mirror").write(plan, state(rows))
        return
    with pytest.raises(SinkValueError, match="'id'"):
        SqlSink(sql_url, "t", form="mirror", replace_nul="").write(plan, state(rows))
    good = pa.table({"id": ["a"], "v": ["x\0y"]})
    sink = SqlSink(sql_url, "t", form="mirror", replace_nul="?")
    sink.write(plan_of(0, 1, kind="state"), state(good))
    assert scalar(sql_url, "SELECT v FROM t") == "x?y"


def test_one_table_has_one_mirror(sql_url: str) -> None:
    rows = pa.table({"id": [1], "v": ["a"]})
    sink = SqlSink(sql_url, "t", form="mirror")
    sink.write(plan_of(0, 0, kind="state"), state(rows.slice(0, 0)))
    plan = plan_of(0, 1, kind="state", name="second")
    for form in ("mirror", "history", "append"):
        with pytest.raises(SinkFormError, match="checkpoint 'm'"):
            SqlSink(sql_url, "t", form=form, schema_policy="add_columns").write(plan, state(rows))
    with pytest.raises(SinkFormError, match="same form"):
        SqlSink(sql_url, "t").write(plan_of(0, 1), state(rows))
    sink.reset_position("m")
    sink.write(plan, state(rows))
    added = SqlSink(sql_url, "added", schema_policy="add_columns")
    added.write(plan_of(0, 1), state(rows))
    with pytest.raises(SinkFormError):
        SqlSink(sql_url, "added", form="mirror").write(plan, state(rows))
    with pytest.raises(ConfigError, match="form is one of"):
        SqlSink(sql_url, "t", form="copy")


def test_columns_are_added_and_widened_with_the_rows(sql_url: str) -> None:
    rows = pa.table(
        {
            "id": pa.array([1], pa.int32()),
            "n": pa.array([1], pa.int32()),
            "d": pa.array([D("1.5")], pa.decimal128(5, 1)),
        }
    )
    wider = pa.table(
        {
            "id": pa.array([1, 2], pa.int64()),
            "n": pa.array([2**40, None], pa.int64()),
            "d": pa.array([D("123456.75"), D("1.25")], pa.decimal128(9, 2)),
            "more": ["x", None],
        }
    )
    SqlSink(sql_url, "t", form="mirror").write(plan_of(0, 1, kind="state"), state(rows))
    plan = plan_of(1, 3)
    with pytest.raises(SinkSchemaError, match="add_columns"):
        SqlSink(sql_url, "t", form="mirror").write(plan, reading(wider, ["+U", "+I"]))
    sink = SqlSink(sql_url, "t", form="mirror", schema_policy="add_columns")
    # A plan that fails takes its columns with it.
    broken = wider.set_column(2, "d", pa.array([None, None], pa.decimal128(9, 2)))
    with pytest.raises(ZeroDivisionError):
        sink.write(plan, failing(broken))
    names = [c["name"] for c in sa.inspect(sa.create_engine(sql_url)).get_columns("t")]
    assert names == ["id", "n", "d"]
    sink.write(plan, reading(wider, ["+U", "+I"]))
    assert read_back(sink, wider.schema).to_pylist() == wider.to_pylist()


def test_a_statement_that_an_error_names_can_be_run(sql_url: str) -> None:
    narrow = pa.table({"id": pa.array([1], pa.int32()), "50%": pa.array([1], pa.int32())})
    wide = narrow.cast(pa.schema([("id", pa.int32()), ("50%", pa.int64())]))
    sink = SqlSink(sql_url, "t", form="mirror")
    sink.write(plan_of(0, 1, kind="state"), state(narrow))
    if not sql_url.startswith("sqlite"):  # whose types have no widths
        with pytest.raises(SinkSchemaError, match="Run: ") as caught:
            sink.write(plan_of(1, 2), reading(wide, ["+U"]))
        statement = str(caught.value).partition("Run: ")[2].partition(";")[0]
        with sa.create_engine(sql_url).begin() as connection:
            connection.connection.cursor().execute(statement)
    sink.write(plan_of(1, 2), reading(wide, ["+U"]))
    assert read_back(sink, wide.schema).to_pylist() == wide.to_pylist()


def failing(rows: pa.Table) -> Any:
    read = state(rows)

    def some(plan: Any) -> pa.RecordBatchReader:
        whole = read(plan)

        def batches() -> Any:
            yield whole.read_next_batch()
            raise ZeroDivisionError

        return pa.RecordBatchReader.from_batches(whole.schema, batches())

    return some


def test_a_refused_row_leaves_the_mirror_as_it_was(sql_url: str) -> None:
    execute(sql_url, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT CHECK (length(v) < 5))")
    sink = SqlSink(sql_url, "t", form="mirror")
    rows = pa.table({"id": [1, 2], "v": ["a", "b"]})
    sink.write(plan_of(0, 2, kind="state"), state(rows))
    wrong = pa.table({"id": [1, 2], "v": ["secret", "c"]})
    with pytest.raises(SinkError) as raised:
        sink.write(plan_of(2, 4), reading(wrong, ["+U", "-D"]))
    assert "secret" not in str(raised.value)
    assert read_back(sink, rows.schema).to_pylist() == rows.to_pylist()
    assert sink.position("m").offsets == {(None, 0): 2}  # type: ignore[union-attr]


def test_partition_names_as_values() -> None:
    schema = pa.schema(
        [
            ("s", pa.string()),
            ("n", pa.int16()),
            ("b", pa.bool_()),
            ("d", pa.date32()),
            ("t", pa.timestamp("ms")),
            ("n9", pa.timestamp("ns", "UTC")),
            ("x", pa.binary()),
            ("f", pa.float64()),
        ]
    )
    name = "a-b$-7$true$2024-02-29$2024-01-02-03-04-05_67$1969-12-31-23-59-59_999999999$00ff"
    rows = partition_rows("t", [name], list(schema)[:-1])
    assert rows.to_pylist() == [
        {
            "s": "a-b",
            "n": -7,
            "b": True,
            "d": dt.date(2024, 2, 29),
            "t": dt.datetime(2024, 1, 2, 3, 4, 5, 670_000),
            "n9": pd.Timestamp("1969-12-31 23:59:59.999999999", tz="UTC"),
            "x": b"\x00\xff",
        }
    ]
    for wrong, key in (("1_5", "f"), ("x", "n"), ("a$b", "s"), ("99999", "n")):
        with pytest.raises(SinkFormError, match="reset"):
            partition_rows("t", [wrong], [schema.field(key)])
