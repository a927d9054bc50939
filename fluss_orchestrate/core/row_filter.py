"""Rows chosen by a short text: `amount > 10 and region in ('eu', 'us')`.

    or, and, not, ( )
    column = <> != < <= > >= value or column
    column [not] in (value, …)          column [not] between value and value
    column [not] like 'a%_'             column is [not] null

A value is a number, a 'text' (a quote in it is doubled), true or false; a text is read as a date,
a time or a timestamp if the column is one. A name with other characters is written in `backticks`
or "quotes". As in SQL, a comparison with null is neither true nor false: such rows are left out.

The text is never run as code: it becomes a tree that is applied to Arrow columns.

A condition returns one boolean per row, or null where the result is unknown in SQL.
"""

from __future__ import annotations

import datetime as dt
import decimal
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from fluss_client import Predicate, Schema
from fluss_client.errors import ConfigError, SchemaError

_KERNELS = {
    "=": pc.equal,
    "==": pc.equal,
    "<>": pc.not_equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_SIGNS = {"=": "==", "<>": "!="} | {s: s for s in ("==", "!=", "<", "<=", ">", ">=")}
_OPPOSITES = {
    "=": "!=",
    "==": "!=",
    "<>": "==",
    "!=": "==",
    "<": ">=",
    "<=": ">",
    ">": "<=",
    ">=": "<",
}
_INT64_LIMIT = 1 << 63


class Condition(Protocol):
    """True, false or null for every row."""

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """Return true, false or null for each row of a batch."""

    def columns(self) -> Iterator[str]:
        """Return the columns that the condition uses."""

    def predicate(self, schema: Schema, negated: bool = False) -> Predicate | None:
        """Return a condition that is met by every row that meets this one, or its opposite.

        Servers leave out rows by it. None if there is no such condition of the client.
        """


@dataclass(frozen=True, slots=True)
class Column:
    """A column by its name."""

    name: str

    def array(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the values of the column."""
        return batch.column(self.name)


@dataclass(frozen=True, slots=True)
class Value:
    """A constant. Its type depends on the column that it is compared with."""

    given: str | bool | int | decimal.Decimal

    @classmethod
    def number(cls, text: str) -> Value:
        """Return the number as it was written."""
        return cls(int(text) if text.lstrip("-").isdigit() else decimal.Decimal(text))

    def scalar(self, kind: pa.DataType) -> pa.Scalar:
        """Return the value in the type of the column that it is compared with.

        Raises:
            ConfigError: The value does not fit the type.
        """
        given = self.given
        if isinstance(given, bool):
            self._need(pt.is_boolean(kind), kind)
            return pa.scalar(given)
        if isinstance(given, str):
            return self._from_text(given, kind)
        self._need(pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind), kind)
        if pt.is_floating(kind):
            return pa.scalar(float(given), kind)
        if pt.is_integer(kind) and isinstance(given, int) and abs(given) < _INT64_LIMIT:
            return pa.scalar(given, pa.int64())
        return pa.scalar(decimal.Decimal(given))

    def _from_text(self, given: str, kind: pa.DataType) -> pa.Scalar:
        if pt.is_string(kind) or pt.is_large_string(kind):
            return pa.scalar(given, kind)
        self._need(pt.is_date(kind) or pt.is_time(kind) or pt.is_timestamp(kind), kind)
        try:
            if pt.is_date(kind):
                return pa.scalar(dt.date.fromisoformat(given), kind)
            if pt.is_time(kind):
                return pa.scalar(dt.time.fromisoformat(given), pa.time64("us"))
            moment = dt.datetime.fromisoformat(given)
        except ValueError as error:
            raise ConfigError(f"'{given}' is no {kind}: {error}") from error
        if (moment.tzinfo is None) != (kind.tz is None):
            wanted = "a zone, such as Z" if kind.tz else "no zone"
            raise ConfigError(f"'{given}' stands beside a column of {kind} and must have {wanted}")
        return pa.scalar(moment, pa.timestamp("us", kind.tz))

    def _need(self, fits: bool, kind: pa.DataType) -> None:
        if not fits:
            raise ConfigError(f"{self.given!r} cannot be compared with a column of type {kind}")


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison of a column with a value, or with another column."""

    sign: str
    left: Column
    right: Value | Column

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        array = self.left.array(batch)
        if isinstance(self.right, Column):
            return _KERNELS[self.sign](array, self.right.array(batch))
        return _KERNELS[self.sign](array, self.right.scalar(array.type))

    def columns(self) -> Iterator[str]:
        yield self.left.name
        if isinstance(self.right, Column):
            yield self.right.name

    def predicate(self, schema: Schema, negated: bool = False) -> Predicate | None:
        if isinstance(self.right, Column):
            return None
        sign = _OPPOSITES[self.sign] if negated else self.sign
        return _leaf(self.left, _SIGNS[sign], (self.right,), schema)


@dataclass(frozen=True, slots=True)
class In:
    """Whether a column equals one of some values."""

    column: Column
    values: tuple[Value, ...]

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        array = self.column.array(batch)
        return _either([pc.equal(array, value.scalar(array.type)) for value in self.values])

    def columns(self) -> Iterator[str]:
        yield self.column.name

    def predicate(self, schema: Schema, negated: bool = False) -> Predicate | None:
        return _leaf(self.column, "not_in" if negated else "is_in", self.values, schema)


@dataclass(frozen=True, slots=True)
class Between:
    """Whether a column is between two values, both included."""

    column: Column
    low: Value
    high: Value

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        array = self.column.array(batch)
        return pc.and_kleene(
            pc.greater_equal(array, self.low.scalar(array.type)),
            pc.less_equal(array, self.high.scalar(array.type)),
        )

    def columns(self) -> Iterator[str]:
        yield self.column.name

    def predicate(self, schema: Schema, negated: bool = False) -> Predicate | None:
        low, high = Compare(">=", self.column, self.low), Compare("<=", self.column, self.high)
        return And((low, high)).predicate(schema, negated)


@dataclass(frozen=True, slots=True)
class Like:
    """Whether a text has a form: % is any text, _ any character."""

    column: Column
    pattern: str

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        array = self.column.array(batch)
        if not (pt.is_string(array.type) or pt.is_large_string(array.type)):
            raise ConfigError(f"like is for texts, and '{self.column.name}' is {array.type}")
        return pc.match_like(array, self.pattern)

    def columns(self) -> Iterator[str]:
        yield self.column.name

    def predicate(self, schema: Schema, negated: bool = False) -> Predicate | None:
        text = self.pattern.strip("%")
        if negated or not text or any(mark in text for mark in ("%", "_", "\\")):
            return None
        begins, ends = not self.pattern.startswith("%"), not self.pattern.endswith("%")
        function = "starts_with" if begins else "ends_with" if ends else "contains"
        return _leaf(self.column, "==" if begins and ends else function, (Value(text),), schema)


@dataclass(frozen=True, slots=True)
class IsNull:
    """Whether a column has no value."""

    column: Column

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        return pc.is_null(self.column.array(batch))

    def columns(self) -> Iterator[str]:
        yield self.column.name

    def predicate(self, schema: Schema, negated: bool = False) -> Predicate | None:
        return _leaf(self.column, "is_not_null" if negated else "is_null", (), schema)


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite of a condition; null stays null."""

    inner: Condition

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        return pc.invert(self.inner.of(batch))

    def columns(self) -> Iterator[str]:
        yield from self.inner.columns()

    def predicate(self, schema: Schema, negated: bool = False) -> Predicate | None:
        return self.inner.predicate(schema, not negated)


@dataclass(frozen=True, slots=True)
class And:
    """Whether all conditions hold."""

    parts: tuple[Condition, ...]

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        found = self.parts[0].of(batch)
        for part in self.parts[1:]:
            found = pc.and_kleene(found, part.of(batch))
        return found

    def columns(self) -> Iterator[str]:
        for part in self.parts:
            yield from part.columns()

    def predicate(self, schema: Schema, negated: bool = False) -> Predicate | None:
        found = [part.predicate(schema, negated) for part in self.parts]
        return _any_of(found) if negated else _all_of(found)


@dataclass(frozen=True, slots=True)
class Or:
    """Whether one of the conditions holds."""

    parts: tuple[Condition, ...]

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        return _either([part.of(batch) for part in self.parts])

    def columns(self) -> Iterator[str]:
        for part in self.parts:
            yield from part.columns()

    def predicate(self, schema: Schema, negated: bool = False) -> Predicate | None:
        found = [part.predicate(schema, negated) for part in self.parts]
        return _all_of(found) if negated else _any_of(found)


def _leaf(
    column: Column, function: str, values: Sequence[Value], schema: Schema
) -> Predicate | None:
    """Return a condition on one column, or None if the client has none for these values."""
    if column.name not in schema.index:
        return None  # a metadata column
    field = schema.arrow.field(column.name)
    try:
        literals = tuple(value.scalar(field.type).as_py() for value in values)
        found = Predicate(function, column.name, literals)
        found.check(schema)
    except (ConfigError, SchemaError, pa.ArrowException, ValueError, OverflowError):
        return None
    return found


def _all_of(parts: Sequence[Predicate | None]) -> Predicate | None:
    """Return what is sure of `and`: without a part, more rows meet it."""
    known = [part for part in parts if part is not None]
    return reduce(Predicate.and_, known) if known else None


def _any_of(parts: Sequence[Predicate | None]) -> Predicate | None:
    known = [part for part in parts if part is not None]
    return reduce(Predicate.or_, known) if len(known) == len(parts) else None


def _either(found: list[pa.Array]) -> pa.Array:
    whole = found[0]
    for one in found[1:]:
        whole = pc.or_kleene(whole, one)
    return whole


TEXT_MAX = 10_000
DEPTH_MAX = 50
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>-?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
      | '(?P<text>(?:[^']|'')*)'
      | `(?P<ticked>[^`]+)` | "(?P<quoted>[^"]+)"
      | (?P<word>[^\W\d]\w*)
      | (?P<sign><=|>=|<>|!=|==|[=<>(),])
    )""",
    re.VERBOSE,
)
_COMPARISONS = ("=", "==", "<>", "!=", "<", "<=", ">", ">=")


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int


@dataclass(frozen=True)
class RowFilter:
    """A condition that was read from a text. It is plain data and may be pickled."""

    text: str
    condition: Condition

    @classmethod
    def parse(cls, text: str) -> RowFilter:
        """Return the filter that a text describes.

        Raises:
            ConfigError: The text is not valid; the error says at which character.
        """
        if len(text) > TEXT_MAX:
            raise ConfigError(f"a filter has at most {TEXT_MAX} characters, not {len(text)}")
        return cls(text, _Parser(text).whole())

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns that the filter uses, each once."""
        return tuple(dict.fromkeys(self.condition.columns()))

    def check(self, schema: pa.Schema) -> None:
        """Check the filter against the columns of the rows.

        Raises:
            ConfigError: A column does not exist, or has a type without an order.
        """
        for name in self.columns:
            if name not in schema.names:
                raise ConfigError(
                    f"filter '{self.text}': there is no column '{name}', only {schema.names}"
                )
        self.apply(pa.RecordBatch.from_pylist([], schema=schema))

    def predicate(self, schema: Schema) -> Predicate | None:
        """Return a condition by which servers may leave out rows; they must be tested again.

        Args:
            schema: The columns of the table.
        """
        return self.condition.predicate(schema)

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows for which the condition is true."""
        try:
            return batch.filter(self.condition.of(batch))
        except (pa.ArrowException, ValueError, OverflowError) as error:
            raise ConfigError(f"filter '{self.text}' does not fit the columns: {error}") from error


class _Parser:
    """A recursive-descent parser: `or`, then `and`, then `not`, then one comparison."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._at = 0
        self._depth = 0

    def whole(self) -> Condition:
        found = self._any()
        if self._peek().kind != "end":
            raise self._expected("and, or, or the end")
        return found

    def _any(self) -> Condition:
        parts = [self._all()]
        while self._take("or"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _all(self) -> Condition:
        parts = [self._one()]
        while self._take("and"):
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _one(self) -> Condition:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise ConfigError(f"a filter is nested at most {DEPTH_MAX} deep")
        try:
            if self._take("not"):
                return Not(self._one())
            if self._take("("):
                inner = self._any()
                self._need(")")
                return inner
            return self._comparison()
        finally:
            self._depth -= 1

    def _comparison(self) -> Condition:
        column = Column(self._name())
        if self._take("is"):
            negated = self._take("not")
            self._need("null")
            return _maybe_not(IsNull(column), negated)
        sign = self._peek()
        if sign.kind == "sign" and sign.text in _COMPARISONS:
            self._at += 1
            return Compare(sign.text, column, self._operand())
        negated = self._take("not")
        if self._take("in"):
            return _maybe_not(In(column, self._values()), negated)
        if self._take("between"):
            low = self._value()
            self._need("and")
            return _maybe_not(Between(column, low, self._value()), negated)
        if self._take("like"):
            pattern = self._next()
            if pattern.kind != "text":
                raise self._expected("a 'text' after like", pattern)
            return _maybe_not(Like(column, pattern.text), negated)
        raise self._expected("a comparison")

    def _values(self) -> tuple[Value, ...]:
        self._need("(")
        found = [self._value()]
        while self._take(","):
            found.append(self._value())
        self._need(")")
        return tuple(found)

    def _operand(self) -> Value | Column:
        token = self._peek()
        if token.kind == "name" or (
            token.kind == "word" and token.text.lower() not in ("true", "false")
        ):
            return Column(self._name())
        return self._value()

    def _value(self) -> Value:
        token = self._next()
        if token.kind == "number":
            return Value.number(token.text)
        if token.kind == "text":
            return Value(token.text)
        if token.kind == "word" and token.text.lower() in ("true", "false"):
            return Value(token.text.lower() == "true")
        raise self._expected("a number, a 'text', true or false", token)

    def _name(self) -> str:
        token = self._next()
        if token.kind not in ("name", "word") or _is_reserved(token):
            raise self._expected("the name of a column", token)
        return token.text

    def _peek(self) -> _Token:
        return self._tokens[self._at]

    def _next(self) -> _Token:
        token = self._peek()
        self._at += token.kind != "end"
        return token

    def _take(self, wanted: str) -> bool:
        token = self._peek()
        same = token.kind in ("word", "sign") and token.text.lower() == wanted
        self._at += same
        return same

    def _need(self, wanted: str) -> None:
        if not self._take(wanted):
            raise self._expected(f"'{wanted}'")

    def _expected(self, what: str, found: _Token | None = None) -> ConfigError:
        token = found or self._peek()
        where = f"'{token.text}' at character {token.at + 1}" if token.text else "its end"
        return ConfigError(f"filter '{self._text}': {what} is expected, not {where}")


_RESERVED = {"and", "or", "not", "in", "is", "null", "like", "between", "true", "false"}


def _is_reserved(token: _Token) -> bool:
    return token.kind == "word" and token.text.lower() in _RESERVED


def _maybe_not(condition: Condition, negated: bool) -> Condition:
    return Not(condition) if negated else condition


def _tokens(text: str) -> list[_Token]:
    found = []
    at = 0
    end = len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            raise ConfigError(f"filter '{text}' cannot be read from character {at + 1} on")
        kind = match.lastgroup or ""
        value = match.group(kind)
        if kind == "text":
            value = value.replace("''", "'")
        kind = {"ticked": "name", "quoted": "name"}.get(kind, kind)
        found.append(_Token(kind, value, match.start(match.lastgroup or 0)))
        at = match.end()
    return [*found, _Token("end", "", len(text))]
