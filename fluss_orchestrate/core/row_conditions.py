"""Conditions on the columns of a batch, as `row_filter` reads them.

Each gives one boolean per row, or null where SQL would say that it is not known.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from fluss_client.errors import ConfigError

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
_INT64_LIMIT = 1 << 63


class Condition(Protocol):
    """True, false or null for every row."""

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """What holds for the rows of a batch."""

    def columns(self) -> Iterator[str]:
        """The columns that are looked at."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column by its name."""

    name: str

    def array(self, batch: pa.RecordBatch) -> pa.Array:
        """Its values."""
        return batch.column(self.name)


@dataclass(frozen=True, slots=True)
class Value:
    """A constant; what it is exactly depends on the column that it stands beside."""

    given: str | bool | int | decimal.Decimal

    @classmethod
    def number(cls, text: str) -> Value:
        """A number as it was written."""
        return cls(int(text) if text.lstrip("-").isdigit() else decimal.Decimal(text))

    def scalar(self, kind: pa.DataType) -> pa.Scalar:
        """The value beside a column of this type; `ConfigError` if it cannot be meant."""
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
    """A column beside a value, or beside another column."""

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


@dataclass(frozen=True, slots=True)
class In:
    """A column that holds one of some values."""

    column: Column
    values: tuple[Value, ...]

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        array = self.column.array(batch)
        return _either([pc.equal(array, value.scalar(array.type)) for value in self.values])

    def columns(self) -> Iterator[str]:
        yield self.column.name


@dataclass(frozen=True, slots=True)
class Between:
    """A column from one value to another, both included."""

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


@dataclass(frozen=True, slots=True)
class Like:
    """A text of some form: % is any text, _ any character."""

    column: Column
    pattern: str

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        array = self.column.array(batch)
        if not (pt.is_string(array.type) or pt.is_large_string(array.type)):
            raise ConfigError(f"like is for texts, and '{self.column.name}' is {array.type}")
        return pc.match_like(array, self.pattern)

    def columns(self) -> Iterator[str]:
        yield self.column.name


@dataclass(frozen=True, slots=True)
class IsNull:
    """A column without a value."""

    column: Column

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        return pc.is_null(self.column.array(batch))

    def columns(self) -> Iterator[str]:
        yield self.column.name


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite; what is not known stays so."""

    inner: Condition

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        return pc.invert(self.inner.of(batch))

    def columns(self) -> Iterator[str]:
        yield from self.inner.columns()


@dataclass(frozen=True, slots=True)
class And:
    """All of them."""

    parts: tuple[Condition, ...]

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        found = self.parts[0].of(batch)
        for part in self.parts[1:]:
            found = pc.and_kleene(found, part.of(batch))
        return found

    def columns(self) -> Iterator[str]:
        for part in self.parts:
            yield from part.columns()


@dataclass(frozen=True, slots=True)
class Or:
    """Any of them."""

    parts: tuple[Condition, ...]

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        return _either([part.of(batch) for part in self.parts])

    def columns(self) -> Iterator[str]:
        for part in self.parts:
            yield from part.columns()


def _either(found: list[pa.Array]) -> pa.Array:
    whole = found[0]
    for one in found[1:]:
        whole = pc.or_kleene(whole, one)
    return whole
