"""Conditions of `TableScan.filter`: how they are made, and which columns take which values."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from fluss_client import ColumnRef, FlussError, Predicate, Schema, aio, col
from fluss_client.errors import PredicateError, SchemaError

SCHEMA = Schema(
    pa.schema(
        [
            ("i8", pa.int8()),
            ("i", pa.int32()),
            ("f", pa.float32()),
            ("s", pa.string()),
            ("b", pa.binary()),
            ("bool", pa.bool_()),
            ("dec", pa.decimal128(10, 2)),
            ("day", pa.date32()),
            ("time", pa.time32("ms")),
            ("ts", pa.timestamp("us")),
            ("ltz", pa.timestamp("us", tz="UTC")),
            ("list", pa.list_(pa.int32())),
            ("row", pa.struct([("x", pa.int32())])),
        ]
    )
)
NAIVE = dt.datetime(2026, 1, 2, 3)
AWARE = NAIVE.replace(tzinfo=dt.UTC)


def test_conditions_show_what_they_say() -> None:
    assert repr(col("id")) == "ColumnRef(id)"
    assert ColumnRef("id").name == "id"
    assert repr(col("id") >= 200) == "Predicate(id >= 200)"
    made = ((col("id") >= 1) | (col("id") < 0)) & col("name").starts_with("hi") & (col("x") != 2)
    text = "Predicate(((id >= 1) | (id < 0)) & (name.starts_with('hi')) & (x != 2))"
    assert repr(made) == text
    for by_sign, by_name in (
        (col("a") == 1, col("a").equal(1)),
        (col("a") != 1, col("a").not_equal(1)),
        (col("a") < 1, col("a").less_than(1)),
        (col("a") <= 1, col("a").less_or_equal(1)),
        (col("a") > 1, col("a").greater_than(1)),
        (1 <= col("a"), col("a").greater_or_equal(1)),  # noqa: SIM300
        ((col("a") == 1) & (col("b") == 2), (col("a") == 1).and_(col("b") == 2)),
        ((col("a") == 1) | (col("b") == 2), (col("a") == 1).or_(col("b") == 2)),
    ):
        assert isinstance(by_sign, Predicate)
        assert repr(by_sign) == repr(by_name)
    assert repr(col("a").is_in((1, 2))) == "Predicate(a.is_in(1, 2))"
    assert repr(col("a").is_null()) == "Predicate(a.is_null())"


def test_a_long_chain_is_no_deep_tree() -> None:
    made = col("i") == 0
    for number in range(1, 3000):
        made = made | (col("i") == number)
    made.check(SCHEMA)
    assert "i == 2999" in repr(made)


MISTAKES: dict[str, Callable[[], Any]] = {
    "and": lambda: (col("a") == 1) and (col("b") == 2),
    "chain": lambda: 1 < col("a") < 3,
    "not": lambda: not col("a"),
    "none": lambda: col("a") == None,  # noqa: E711
    "list": lambda: col("a") == [1],
    "column": lambda: col("a") == col("b"),
    "in text": lambda: col("a").is_in("ab"),
    "in null": lambda: col("a").is_in([1, None]),
    "number for text": lambda: col("a").starts_with(1),  # type: ignore[arg-type]
    "name": lambda: col(1),  # type: ignore[arg-type]
    "and_": lambda: (col("a") == 1).and_(3),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
def test_mistakes_are_refused_as_the_official_client_does(mistake: Callable[[], Any]) -> None:
    with pytest.raises(PredicateError) as caught:
        mistake()
    # A TypeError in that client, one of ours here.
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, FlussError)


FITTING = [
    col("i8") == -128,
    col("i") != 7,
    col("f") < 1,
    col("f") < 1.5,
    col("s") == "x",
    col("s").contains("x"),
    col("b") == b"x",
    col("bool") == True,  # noqa: E712
    col("dec") == Decimal("-12345678.90"),
    col("dec") == Decimal("1.200"),
    col("dec") == Decimal(0),
    col("day") >= dt.date(2026, 1, 1),
    col("time") == dt.time(1),
    col("ts") > NAIVE,
    col("ltz") > AWARE,
    col("list").is_null(),
    col("row").is_not_null(),
    col("i").is_in([]),
    col("i").not_in([1, 2]),
]


@pytest.mark.parametrize("made", FITTING, ids=repr)
def test_what_fits(made: Predicate) -> None:
    made.check(SCHEMA)
    (made & (col("i") == 1)).check(SCHEMA)


UNFIT = [
    col("nope") == 1,
    col("") == 1,
    col("i8") == 128,
    col("i") == 1 << 31,
    col("i") == 1.0,
    col("i") == True,  # noqa: E712
    col("i") == "1",
    col("i").starts_with("1"),
    col("i").is_in([1, "x"]),
    col("f") == 1 << 70,
    col("s") == 1,
    col("b") == "x",
    col("bool") == 1,
    col("dec") == 1,
    col("dec") == Decimal("1.234"),
    col("dec") == Decimal("123456789"),
    col("dec") == Decimal("NaN"),
    col("day") == NAIVE,
    col("ts") == dt.date(2026, 1, 1),
    col("ts") == AWARE,
    col("ltz") == NAIVE,
    col("list") == 1,
    col("row") == 1,
]


@pytest.mark.parametrize("made", UNFIT, ids=repr)
def test_what_does_not(made: Predicate) -> None:
    with pytest.raises(SchemaError, match="column"):
        made.check(SCHEMA)
    with pytest.raises(SchemaError):
        ((col("i") == 1) | made).check(SCHEMA)


def test_both_surfaces_have_the_same() -> None:
    assert (aio.col, aio.ColumnRef, aio.Predicate) == (col, ColumnRef, Predicate)
