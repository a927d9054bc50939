"""Row filters: what they choose is what a SQL engine chooses, and what cannot be meant is told."""

from __future__ import annotations

import datetime as dt
import decimal
import pickle
import random
import sqlite3

import pyarrow as pa
import pytest

from fluss_client import Schema
from fluss_client.aio.scanning.filtering import kept_rows
from fluss_client.errors import ConfigError
from fluss_orchestrate.core.row_filter import DEPTH_MAX, RowFilter

ROWS = [
    {"a": 1, "b": 5, "t": "it's"},
    {"a": 2, "b": None, "t": "eu_west"},
    {"a": None, "b": 2, "t": None},
    {"a": -3, "b": -3, "t": "%"},
    {"a": 10, "b": 7, "t": ""},
]
SCHEMA = pa.schema([("a", pa.int32()), ("b", pa.int64()), ("t", pa.string())])
RANDOM_TEXTS = 400
DEPTH = 3


def chosen(text: str) -> list[int]:
    numbered = pa.RecordBatch.from_pylist(ROWS, SCHEMA).append_column(
        "n", pa.array(range(len(ROWS)))
    )
    return RowFilter.parse(text).apply(numbered).column("n").to_pylist()


@pytest.fixture(scope="module")
def sql() -> sqlite3.Connection:
    made = sqlite3.connect(":memory:")
    made.execute("PRAGMA case_sensitive_like = ON")
    made.execute("CREATE TABLE r (n INTEGER, a INTEGER, b INTEGER, t TEXT)")
    rows = [(n, *row.values()) for n, row in enumerate(ROWS)]
    made.executemany("INSERT INTO r VALUES (?, ?, ?, ?)", rows)
    return made


def random_text(chance: random.Random, depth: int = DEPTH) -> str:
    if depth and chance.random() < 0.6:
        word = chance.choice([" and ", " OR ", " And "])
        inner = f"({word.join(random_text(chance, depth - 1) for _ in range(2))})"
        return f"not {inner}" if chance.random() < 0.3 else inner
    column = chance.choice("ab")
    number = chance.choice(["-3", "0", "1", "2", "2.5", "7", "1e1"])
    opposite = chance.choice(["", " not"])
    return chance.choice(
        [
            f"{column} {chance.choice(['=', '<>', '!=', '<', '<=', '>', '>='])} {number}",
            f"a {chance.choice(['=', '<', '>='])} b",
            f"{column} is{opposite} null",
            f"{column}{opposite} in (1, {number}, 7)",
            f"{column}{opposite} between 1 and {number}",
            f"t{opposite} like '{chance.choice(['eu%', '%', '_', '%e_t'])}'",
            "t = 'it''s'",
        ]
    )


def test_as_a_sql_engine_chooses(sql: sqlite3.Connection) -> None:
    chance = random.Random(7)
    for _ in range(RANDOM_TEXTS):
        text = random_text(chance)
        golden = [n for (n,) in sql.execute(f"SELECT n FROM r WHERE {text} ORDER BY n")]
        assert chosen(text) == golden, text


def test_servers_leave_out_no_row_that_is_chosen() -> None:
    chance = random.Random(7)
    batch = pa.RecordBatch.from_pylist(ROWS, SCHEMA)
    known = 0
    for _ in range(RANDOM_TEXTS):
        text = random_text(chance)
        predicate = RowFilter.parse(text).predicate(Schema(SCHEMA))
        if predicate is None:
            continue
        known += 1
        kept = {n for n, yes in enumerate(kept_rows(predicate, batch).to_pylist()) if yes}
        assert kept >= set(chosen(text)), text
    assert known > RANDOM_TEXTS // 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a > 1", "a > 1"),
        ("not a > 1", "a <= 1"),
        ("a between 1 and 2", "(a >= 1) & (a <= 2)"),
        ("a not between 1 and 2", "(a < 1) | (a > 2)"),
        ("not (a = 1 or t is null)", "(a != 1) & (t.is_not_null())"),
        ("t like 'eu%'", "t.starts_with('eu')"),
        ("t like '%eu'", "t.ends_with('eu')"),
        ("t like '%eu%'", "t.contains('eu')"),
        ("t like 'eu'", "t == 'eu'"),
        ("a not in (1, 2)", "a.not_in(1, 2)"),
        # A part of `and` that servers do not know is tested by the reader alone.
        ("a > 1 and t like 'e_u'", "a > 1"),
        ("a > 1 and a = b", "a > 1"),
        ("a > 1 or a = b", None),
        ("not (a > 1 and a = b)", None),
        ("t not like 'eu%'", None),
        ("a > 2.5", None),
        ("a < 99999999999", None),
        ("_offset > 3", None),
    ],
)
def test_what_servers_are_told(text: str, expected: str | None) -> None:
    predicate = RowFilter.parse(text).predicate(Schema(SCHEMA))
    assert (None if predicate is None else repr(predicate)[10:-1]) == expected


def test_and_binds_more_than_or() -> None:
    assert chosen("a = 1 or a = 2 and b = 5") == [0]
    assert chosen('"a" = 1 OR `a` = 2') == [0, 1]


MOMENT = dt.datetime(2026, 2, 3, 4, 5, 6)


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (pa.decimal128(38, 10), decimal.Decimal("1.5"), "x = 1.5 and x > 1 and x < 2"),
        (pa.float32(), 0.5, "x = 0.5"),
        (pa.float64(), 0.1, "x = 0.1"),
        (pa.int8(), 5, "x < 5.5 and x > 4 and x < 1000"),
        (pa.bool_(), True, "x = true and x <> false"),
        (pa.date32(), MOMENT.date(), "x = '2026-02-03' and x < '2026-02-04'"),
        (pa.time32("ms"), MOMENT.time(), "x = '04:05:06'"),
        (pa.timestamp("ns"), MOMENT, "x >= '2026-02-03T04:05:06' and x < '2026-02-04'"),
        (pa.timestamp("ms", "UTC"), MOMENT.replace(tzinfo=dt.UTC), "x = '2026-02-03T05:05:06+01'"),
    ],
)
def test_values_take_the_type_of_their_column(kind: pa.DataType, value: object, text: str) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([value, None], kind)], names=["x"])
    row_filter = pickle.loads(pickle.dumps(RowFilter.parse(text)))
    row_filter.check(batch.schema)
    assert row_filter.apply(batch).column("x").to_pylist() == [batch.column("x")[0].as_py()]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the name of a column is expected"),
        ("a", "a comparison is expected, not its end"),
        ("a = ", "a number, a 'text', true or false is expected"),
        ("a = 1 b = 2", "and, or, or the end is expected, not 'b' at character 7"),
        ("a = 1 and (b = 2", "')' is expected"),
        ("a = 'open", "cannot be read from character 4"),
        ("a = 1; drop table x", "cannot be read from character 6"),
        ("__import__('os')", "a comparison is expected, not '('"),
        ("a in ()", "is expected, not ')'"),
        ("not null", "the name of a column"),
        ("nothing = 1", "there is no column 'nothing'"),
        ("t > 5", "cannot be compared with a column of type string"),
        ("a = 'x'", "cannot be compared with a column of type int32"),
        ("a like '1%'", "like is for texts"),
        ("a = t", "does not fit the columns"),
        ("(" * (DEPTH_MAX + 1) + "a = 1", "nested at most"),
        ("a = 1" * 3000, "at most 10000 characters"),
    ],
)
def test_what_cannot_be_meant(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        RowFilter.parse(text).check(SCHEMA)
    assert said in str(caught.value)


def test_zones_must_agree() -> None:
    at = pa.schema([("x", pa.timestamp("us", "UTC")), ("y", pa.timestamp("us"))])
    for text, said in (("x > '2026-01-01'", "a zone"), ("y > '2026-01-01T00:00Z'", "no zone")):
        with pytest.raises(ConfigError, match=said):
            RowFilter.parse(text).check(at)
    with pytest.raises(ConfigError, match="'soon' is no timestamp"):
        RowFilter.parse("x > 'soon'").check(at)
