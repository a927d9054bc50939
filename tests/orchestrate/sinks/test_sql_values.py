"""What the SQL sink stores of values that databases hold badly, and what its errors show."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
import traceback
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from fluss_client.errors import ConfigError, FlussError
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.sinks import SinkError, SinkSchemaError, SinkValueError, SqlSink
from fluss_orchestrate.core.sinks.base import ReadPlan
from tests.orchestrate.sinks.plans import make_plan

D = decimal.Decimal
CANARY = "r0w-d4t4-7f3a"
WIDE = [D("9007199254740993.01"), D("-99999999999999999999999999999999999.99"), D("0.10"), None]
OLD_POSITIONS = """
CREATE TABLE fluss_sink_positions (
    sink VARCHAR(255) NOT NULL, name VARCHAR(255) NOT NULL, plan_id VARCHAR(64) NOT NULL,
    position TEXT NOT NULL, rows BIGINT NOT NULL, written_ms BIGINT NOT NULL,
    PRIMARY KEY (sink, name))
"""


def reading(rows: pa.RecordBatch | pa.Table) -> ReadPlan:
    """Gives these rows whatever the plan is."""
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    return lambda _: table.to_reader()


def plan_of(rows: pa.RecordBatch | pa.Table, at: int = 0) -> ScanPlan:
    return make_plan((0, at, at + rows.num_rows))


def stored(url: str, query: str) -> list[Any]:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(query)]


def execute(url: str, *statements: str) -> None:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def as_json(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def told(error: BaseException) -> str:
    """All that a report shows: the chain, with the variables of all frames but the tests'."""
    shown = []
    pending: list[BaseException | None] = [error]
    while pending:
        one = pending.pop()
        if one is None:
            continue
        frames = traceback.TracebackException.from_exception(one, capture_locals=True, limit=99)
        outside = [f for f in frames.stack if "/tests/" not in f.filename]
        frames.stack = traceback.StackSummary.from_list(outside)
        shown += [*frames.format(chain=False), repr(one), str(one), repr(vars(one))]
        pending += [one.__cause__, one.__context__]
    return "".join(shown)


def test_decimals_keep_every_digit(sql_url: str) -> None:
    rows = pa.table(
        {
            "id": list(range(4)),
            "wide": pa.array(WIDE, pa.decimal128(38, 2)),
            "narrow": pa.array(
                [D("9999999999999.99"), D("-0.01"), D("0"), None], pa.decimal128(15, 2)
            ),
        }
    )
    SqlSink(sql_url, "t").write(plan_of(rows), reading(rows))
    found = stored(sql_url, "SELECT wide, narrow FROM t ORDER BY id")
    assert [None if w is None else D(w) for w, _ in found] == WIDE
    narrow = [None if n is None else D(f"{n:.2f}") for _, n in found]
    assert narrow == rows["narrow"].to_pylist()


def test_a_table_of_an_earlier_version_takes_what_it_can_hold(sql_url: str) -> None:
    """Its DECIMAL is NUMERIC: exact on PostgreSQL, a double on SQLite."""
    execute(sql_url, "CREATE TABLE t (id BIGINT, wide NUMERIC(38, 2))", OLD_POSITIONS)
    sink = SqlSink(sql_url, "t")
    held = pa.table({"id": [1, 2], "wide": pa.array([D("12.34"), None], pa.decimal128(38, 2))})
    assert sink.write(plan_of(held), reading(held)).rows == 2
    more = pa.table({"id": [3, 4], "wide": pa.array(WIDE[2::-2], pa.decimal128(38, 2))})
    plan = plan_of(more, at=2)
    if sql_url.startswith("sqlite"):
        with pytest.raises(SinkValueError, match=r"row 1 .*offset 3.*'wide'.*TEXT") as raised:
            sink.write(plan, reading(more))
        assert (raised.value.column, raised.value.row) == ("wide", 1)
        assert len(stored(sql_url, "SELECT id FROM t")) == 2
        # The way out that the error names.
        execute(
            sql_url,
            "ALTER TABLE t ADD COLUMN copy TEXT",
            "UPDATE t SET copy = wide",
            "ALTER TABLE t DROP COLUMN wide",
            "ALTER TABLE t RENAME COLUMN copy TO wide",
        )
    sink.write(plan, reading(more))
    found = stored(sql_url, "SELECT wide FROM t ORDER BY id")
    assert [None if w is None else D(w) for (w,) in found] == [D("12.34"), None, *WIDE[2::-2]]


def test_floats_that_are_no_numbers_stay_apart_from_null(sql_url: str) -> None:
    values = [math.nan, None, math.inf, -math.inf, 0.1]
    rows = pa.table(
        {
            "id": list(range(5)),
            "d": pa.array(values, pa.float64()),
            "f": pa.array(values, pa.float32()),
            "listed": pa.array([[v] for v in values], pa.list_(pa.float64())),
            "row": pa.array([{"x": v} for v in values], pa.struct([("x", pa.float32())])),
        }
    )
    SqlSink(sql_url, "t").write(plan_of(rows), reading(rows))
    found = stored(sql_url, "SELECT d, f, listed, row FROM t ORDER BY id".replace("row", '"row"'))
    for at, (d, f, listed, row) in enumerate(found):
        for value in (d, f, as_json(listed)[0], as_json(row)["x"]):
            wanted = rows["d"][at].as_py()
            shown = None if value is None else float(value)
            assert (shown is None) == (wanted is None)
            assert wanted is None or math.isnan(wanted) == math.isnan(shown)
            assert wanted is None or math.isnan(wanted) or shown == pytest.approx(wanted)
    assert stored(sql_url, "SELECT count(*) FROM t WHERE d IS NULL") == [(1,)]


def test_text_with_nul(sql_url: str) -> None:
    rows = pa.table(
        {
            "id": [1, 2, 3],
            "word": ["plain", None, f"{CANARY}\0b"],
            "nested": pa.array([["x\0y"], [None], None], pa.list_(pa.string())),
        }
    )
    plan = plan_of(rows)
    if sql_url.startswith("sqlite"):
        SqlSink(sql_url, "t").write(plan, reading(rows))
        expected = f"{CANARY}\0b"
    else:
        with pytest.raises(SinkValueError, match=r"row 2 .*offset 2.*'word'.*U\+0000") as raised:
            SqlSink(sql_url, "t").write(plan, reading(rows))
        assert "replace_nul" in str(raised.value)
        assert CANARY not in told(raised.value)
        SqlSink(sql_url, "t", replace_nul="?").write(plan, reading(rows))
        expected = f"{CANARY}?b"
    found = stored(sql_url, "SELECT word, nested FROM t ORDER BY id")
    assert [word for word, _ in found] == ["plain", None, expected]
    assert [as_json(nested) for _, nested in found] == [["x\0y"], [None], None]
    assert stored(sql_url, "SELECT count(*) FROM t WHERE nested IS NULL") == [(1,)]
    with pytest.raises(ConfigError, match="replace_nul"):
        SqlSink(sql_url, "t", replace_nul="a\0")


def test_nested_times_keep_nanoseconds(sql_url: str) -> None:
    at = 1_700_000_000_123_456_789
    rows = pa.table(
        {
            "id": [1],
            "times": pa.array([[at, at // 1000 * 1000, None]], pa.list_(pa.timestamp("ns"))),
            "zoned": pa.array([{"at": at}], pa.struct([("at", pa.timestamp("ns", tz="UTC"))])),
            "clock": pa.array([[("k", 3_723_000_000_001)]], pa.map_(pa.string(), pa.time64("ns"))),
            "days": pa.array([[dt.date(2024, 2, 29)]], pa.list_(pa.date32())),
            "sums": pa.array([[D("1.50")]], pa.list_(pa.decimal128(10, 2))),
        }
    )
    SqlSink(sql_url, "t").write(plan_of(rows), reading(rows))
    found = stored(sql_url, "SELECT times, zoned, clock, days, sums FROM t")
    assert [as_json(value) for value in found[0]] == [
        ["2023-11-14T22:13:20.123456789", "2023-11-14T22:13:20.123456", None],
        {"at": "2023-11-14T22:13:20.123456789+00:00"},
        [["k", "01:02:03.000000001"]],
        ["2024-02-29"],
        ["1.50"],
    ]


def test_a_date_that_python_cannot_hold_is_named(sql_url: str) -> None:
    rows = pa.table({"id": [1, 2], "day": pa.array([0, 10**7], pa.int32()).cast(pa.date32())})
    with pytest.raises(SinkValueError, match=r"row 1 .*'day'.*date32") as raised:
        SqlSink(sql_url, "t").write(plan_of(rows), reading(rows))
    assert raised.value.column == "day"


@pytest.mark.parametrize("length", [255, 256, 500])
def test_long_checkpoint_names(sql_url: str, length: int) -> None:
    """Also beside positions that an earlier version stored."""
    execute(
        sql_url,
        OLD_POSITIONS,
        "INSERT INTO fluss_sink_positions VALUES ('other', 'job', 'p', '{}', 1, 1)",
    )
    rows = pa.table({"id": [1, 2]})
    plan = make_plan((0, 0, 2), name="ü" * length)
    sink = SqlSink(sql_url, "t")
    assert sink.position(plan.name) is None
    assert sink.write(plan, reading(rows)).rows == 2
    held = SqlSink(sql_url, "t").position(plan.name)
    assert held is not None
    assert held.offsets == {(None, 0): 2}
    assert stored(sql_url, "SELECT count(*) FROM fluss_sink_positions") == [(2,)]


def test_refused_rows_are_not_shown(sql_url: str) -> None:
    execute(sql_url, "CREATE TABLE t (id BIGINT PRIMARY KEY, word TEXT CHECK (word <> 'x'))")
    sink = SqlSink(sql_url, "t")
    good = pa.table({"id": [1], "word": ["a"]})
    sink.write(plan_of(good), reading(good))
    for rows in (
        pa.table({"id": [9, 1], "word": [CANARY, CANARY]}),
        pa.table({"id": [9, 8], "word": [CANARY, "x"]}),
    ):
        with pytest.raises(SinkValueError, match=r"rows 0 to 1 .*offset 1") as raised:
            sink.write(plan_of(rows, at=1), reading(rows))
        assert CANARY not in told(raised.value)
        assert raised.value.__cause__ is None
        assert raised.value.__context__ is None
    if not sql_url.startswith("sqlite"):
        execute(sql_url, "ALTER TABLE t ALTER COLUMN word TYPE VARCHAR(30)")
        wordy = pa.table({"id": [9], "word": [CANARY * 9]})
        with pytest.raises(SinkSchemaError, match="'word' is VARCHAR") as refused:
            sink.write(plan_of(wordy, at=1), reading(wordy))
        assert CANARY not in told(refused.value)
    assert len(stored(sql_url, "SELECT id FROM t")) == 1


def test_a_broken_database_is_a_typed_error(sql_url: str) -> None:
    execute(sql_url, "CREATE VIEW fluss_sink_positions AS SELECT 1 AS x")
    with pytest.raises(SinkError) as raised:
        SqlSink(sql_url, "t").position("job")
    assert isinstance(raised.value, FlussError)
    assert raised.value.__context__ is None


def test_a_missing_driver_is_named() -> None:
    with pytest.raises(ConfigError, match=r"mysql\+pymysql:// is not installed"):
        SqlSink("mysql+pymysql://u@127.0.0.1/db", "t")
