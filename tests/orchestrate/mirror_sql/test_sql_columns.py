"""Columns of SQL tables that would lose values: dropped by hand, or of other types."""

from __future__ import annotations

import datetime as dt
import decimal
import random
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from fluss_client import FlussConnection
from fluss_orchestrate.core.mirror.table import mirror_table
from fluss_orchestrate.core.sinks import SinkSchemaError, SqlSink
from tests.contract.tables import Tables
from tests.orchestrate.mirror_sql.change_plans import plan_of, state
from tests.orchestrate.mirror_sql.keyed_model import KeyedModel
from tests.orchestrate.mirror_sql.mirrors import Mirror
from tests.orchestrate.mirror_sql.test_sql_values import execute, scalar

D = decimal.Decimal
NOON = dt.datetime(2024, 2, 29, 12, 0, 0, 123_456)
VALUES: dict[str, pa.Array] = {
    "flag": pa.array([True]),
    "n16": pa.array([-(2**15)], pa.int16()),
    "n32": pa.array([2**31 - 1], pa.int32()),
    "n64": pa.array([2**53 + 1], pa.int64()),
    "f32": pa.array([0.1], pa.float32()),
    "f64": pa.array([0.1], pa.float64()),
    "price": pa.array([D("1234567.89")], pa.decimal128(9, 2)),
    "count": pa.array([D(123456)], pa.decimal128(9, 0)),
    "text": pa.array(["0123456   "], pa.string()),
    "raw": pa.array([b"ab"], pa.binary()),
    "day": pa.array([NOON.date()]),
    "at": pa.array([NOON], pa.timestamp("us")),
    "second": pa.array([NOON.replace(microsecond=0)], pa.timestamp("s")),
    "zoned": pa.array([NOON], pa.timestamp("us", "UTC")),
    "time": pa.array([NOON.time()], pa.time64("us")),
    "tags": pa.array([["a"]], pa.list_(pa.string())),
}
CHANGING = {
    "sqlite": {
        "flag": ("TEXT", "REAL"),
        "n16": ("TEXT",),
        "n64": ("TEXT", "DOUBLE PRECISION", "VARCHAR(20)"),
        "f64": ("TEXT",),
        "price": ("TEXT",),
        "text": ("INTEGER", "NUMERIC", "FLOAT", "DATE"),
    },
    "postgresql": {
        "flag": ("TEXT", "INTEGER"),
        "n16": ("TEXT", "NUMERIC(4)"),
        "n32": ("SMALLINT", "REAL", "NUMERIC(12, 3)"),
        "n64": ("INTEGER", "DOUBLE PRECISION", "NUMERIC(18)", "TEXT"),
        "f32": ("NUMERIC(9, 2)", "INTEGER"),
        "f64": ("REAL", "NUMERIC(20, 10)", "BIGINT"),
        "price": ("FLOAT", "REAL", "NUMERIC(9, 1)", "NUMERIC(8, 2)", "INTEGER", "MONEY"),
        "count": ("SMALLINT", "DOUBLE PRECISION"),
        "text": ("VARCHAR(5)", "VARCHAR(255)", "CHAR(12)", "INTEGER", "JSONB", "UUID", "short"),
        "raw": ("TEXT", "BIT(16)"),
        "day": ("TEXT", "TIMESTAMP WITH TIME ZONE"),
        "at": ("TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP WITH TIME ZONE", "DATE", "TEXT"),
        "second": ("DATE", "TIMESTAMP(0) WITH TIME ZONE"),
        "zoned": ("TIMESTAMP", "TIMESTAMP(3) WITH TIME ZONE"),
        "time": ("TIME(0)", "TIME WITH TIME ZONE"),
        "tags": ("VARCHAR(9)", "INTEGER"),
    },
}
KEEPING = {
    "sqlite": {
        "flag": ("INTEGER", "BOOLEAN", ""),
        "n16": ("BIGINT", "REAL", "NUMERIC"),
        "n64": ("SMALLINT", "INT", "NUMERIC"),
        "f64": ("REAL", "DOUBLE", ""),
        "price": ("DECIMAL(5, 2)", "FLOAT"),
        "text": ("VARCHAR(5)", "CHAR(3)", "CLOB", ""),
        "raw": ("BLOB", "TEXT"),
        "at": ("TIMESTAMP", "TEXT"),
        "tags": ("JSON", "TEXT"),
    },
    "postgresql": {
        "n16": ("INTEGER", "REAL", "NUMERIC"),
        "n32": ("BIGINT", "DOUBLE PRECISION", "NUMERIC(12, 2)"),
        "n64": ("NUMERIC", "NUMERIC(19)"),
        "f32": ("REAL", "DOUBLE PRECISION"),
        "f64": ("FLOAT", "NUMERIC"),
        "price": ("NUMERIC", "NUMERIC(12, 3)"),
        "count": ("INTEGER", "BIGINT", "NUMERIC(9)"),
        "text": ("VARCHAR", "TEXT", "long"),
        "at": ("TIMESTAMP(6)", "TIMESTAMP"),
        "second": ("TIMESTAMP(0)",),
        "zoned": ("TIMESTAMP(6) WITH TIME ZONE",),
        "time": ("TIME(6)",),
        "tags": ("JSON", "JSONB", "TEXT"),
    },
}
DOMAINS = ("CREATE DOMAIN short AS VARCHAR(5)", "CREATE DOMAIN long AS TEXT")


WIDENED = {
    ("n32", "SMALLINT"),
    ("n64", "INTEGER"),
    ("f64", "REAL"),
    ("price", "NUMERIC(9, 1)"),
    ("price", "NUMERIC(8, 2)"),
}
"""What a mirror may widen with `add_columns`."""


class Columns:
    """A table with a column of each kind, and a row for it."""

    def __init__(self, url: str, which: dict[str, dict[str, tuple[str, ...]]]) -> None:
        if not url.startswith("sqlite"):
            execute(url, *DOMAINS)
        kinds = which[url.partition(":")[0].partition("+")[0]]
        given = [(column, kind) for column, some in kinds.items() for kind in some]
        self.of = {f"c{number}": one for number, one in enumerate(given)}
        columns = "".join(f", {name} {kind}" for name, (_, kind) in self.of.items())
        execute(url, f"CREATE TABLE t (id BIGINT PRIMARY KEY, _change_type TEXT{columns})")
        values = {name: VALUES[column] for name, (column, _) in self.of.items()}
        self.rows = pa.table({"id": pa.array([1], pa.int64()), **values})

    def put(self, sink: SqlSink) -> None:
        """Write the row into the sink."""
        sink.write(plan_of(0, 1, kind="state"), state(self.rows))


@pytest.mark.parametrize("form", ["mirror", "append"])
@pytest.mark.parametrize("policy", ["error", "add_columns"])
def test_columns_that_change_values_are_refused_before_anything_is_written(
    sql_url: str, form: str, policy: str
) -> None:
    columns = Columns(sql_url, CHANGING)
    columns.rows = columns.rows.append_column("new", pa.array([1]))
    sink = SqlSink(sql_url, "t", form=form, schema_policy="add_columns")
    if policy == "error":
        execute(sql_url, "ALTER TABLE t ADD COLUMN new BIGINT")
        sink = SqlSink(sql_url, "t", form=form)
    before = sa.inspect(sa.create_engine(sql_url)).get_columns("t")
    with pytest.raises(SinkSchemaError, match="would change values") as caught:
        columns.put(sink)
    may_widen = form == "mirror" and not sql_url.startswith("sqlite")
    left = {name for name, one in columns.of.items() if not (may_widen and one in WIDENED)}
    assert set(caught.value.columns) == left
    after = sa.inspect(sa.create_engine(sql_url)).get_columns("t")
    assert [repr(c["type"]) for c in after] == [repr(c["type"]) for c in before]
    assert scalar(sql_url, "SELECT count(*) FROM t") == 0
    assert sink.position("m") is None


@pytest.mark.parametrize("form", ["mirror", "append"])
def test_columns_that_keep_values_are_taken_as_they_are(sql_url: str, form: str) -> None:
    columns = Columns(sql_url, KEEPING)
    sink = SqlSink(sql_url, "t", form=form)
    columns.put(sink)
    assert scalar(sql_url, "SELECT count(*) FROM t") == 1
    if form == "mirror":
        with sink.read_mirror("m", columns.rows.schema) as found:
            assert found is not None
            assert found.rows.read_all().to_pylist() == columns.rows.to_pylist()


def test_a_key_of_a_type_that_ignores_case_is_refused(postgres_url: str) -> None:
    if scalar(postgres_url, "SELECT count(*) FROM pg_available_extensions WHERE name = 'citext'"):
        execute(
            postgres_url,
            "CREATE EXTENSION IF NOT EXISTS citext",
            "CREATE TABLE caseless (id CITEXT PRIMARY KEY)",
        )
        with pytest.raises(SinkSchemaError, match="different keys"):
            SqlSink(postgres_url, "caseless", form="mirror").write(
                plan_of(0, 2, kind="state"), state(pa.table({"id": ["a", "A"]}))
            )


@pytest.mark.parametrize("form", ["mirror", "history"])
@pytest.mark.parametrize("policy", ["error", "add_columns"])
def test_a_column_that_was_dropped_by_hand_is_not_added_with_nulls(
    tables: Tables, source: FlussConnection, sql_url: str, form: str, policy: str
) -> None:
    model = KeyedModel(tables, random.Random(20261119))
    model.upsert(9)
    mirror = Mirror(model, SqlSink(sql_url, "Copy", schema_policy=policy, form="mirror"), source)
    run: Any = mirror.run
    if form == "history":
        mirror.sink = SqlSink(sql_url, "Copy", schema_policy=policy, form="history")
        run = partial(run_history, mirror)
    run()
    execute(sql_url, 'ALTER TABLE "Copy" DROP COLUMN amount')
    model.upsert(3)
    assert isinstance(mirror.sink, SqlSink)
    at = mirror.sink.position("mirror")
    with pytest.raises(SinkSchemaError, match=r"'?amount'? was dropped or renamed.*reset"):
        run()
    names = [c["name"] for c in sa.inspect(sa.create_engine(sql_url)).get_columns("Copy")]
    assert "amount" not in names
    assert mirror.sink.position("mirror") == at
    if policy == "error":
        execute(sql_url, 'ALTER TABLE "Copy" ADD COLUMN amount NUMERIC(20, 2)')
        if sql_url.startswith("sqlite"):
            execute(
                sql_url,
                'ALTER TABLE "Copy" DROP COLUMN amount',
                'ALTER TABLE "Copy" ADD COLUMN amount TEXT',
            )
    # The way out that the error names.
    mirror.reset()
    run()
    # A column that the source gets later is added as before.
    if policy == "add_columns":
        model.add_column()
        model.upsert(3)
        run()


def run_history(mirror: Mirror) -> None:
    """Bring a history up to its table."""
    mirror.runs += 1
    mirror_table(
        mirror.connection,
        mirror.model.path,
        mirror.sink,
        f"run-{mirror.runs}",
        checkpoint="mirror",
        store=mirror.store,
        scan_options={"settle_ms": 0},
    )
