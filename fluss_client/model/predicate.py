"""Conditions on the columns of a log, for `TableScan.filter`.

`col("id") >= 200` makes one, `&` and `|` join them. A server from 1.0 on may leave out batches that
have no matching row; the client tests the rows of all others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NoReturn

from fluss_client.errors import PredicateError, SchemaError
from fluss_client.model.schema import Schema
from fluss_client.model.types import DataType, registered_types

LITERALS: Final = tuple(
    dict.fromkeys(kind for data_type in registered_types() for kind in data_type.literals)
)
"""The Python types of the values that a condition can have: those of all data types."""
_OF_TEXT = ("starts_with", "ends_with", "contains")
_OF_NULL = ("is_null", "is_not_null")


class Predicate:
    """A condition on rows.

    Make one by comparing a `col()`, and join several with `&` and `|`; do not call the constructor.
    """

    __slots__ = ("_children", "_column", "_function", "_literals")

    def __init__(
        self,
        function: str,
        column: str = "",
        literals: tuple[Any, ...] = (),
        children: tuple[Predicate, ...] = (),
    ) -> None:
        self._function = function
        self._column = column
        self._literals = literals
        self._children = children

    @property
    def function(self) -> str:
        """How the column is tested, or `&` or `|` for joined conditions."""
        return self._function

    @property
    def column(self) -> str:
        """The name of the column; empty for joined conditions."""
        return self._column

    @property
    def literals(self) -> tuple[Any, ...]:
        """The values that the column is compared with."""
        return self._literals

    @property
    def children(self) -> tuple[Predicate, ...]:
        """The joined conditions."""
        return self._children

    def columns(self) -> frozenset[str]:
        """Return the names of all columns of the condition."""
        if not self._children:
            return frozenset([self._column])
        return frozenset().union(*(child.columns() for child in self._children))

    def and_(self, other: Predicate) -> Predicate:
        """Return the condition that this one and `other` hold."""
        return self._joined("&", other)

    def or_(self, other: Predicate) -> Predicate:
        """Return the condition that this one, `other` or both hold."""
        return self._joined("|", other)

    def __and__(self, other: Predicate) -> Predicate:
        return self._joined("&", other) if isinstance(other, Predicate) else NotImplemented

    def __or__(self, other: Predicate) -> Predicate:
        return self._joined("|", other) if isinstance(other, Predicate) else NotImplemented

    def __bool__(self) -> NoReturn:
        raise PredicateError(
            "a Predicate has no truth value: join conditions with & and |, each in parentheses, "
            "not with and, or, not or a chain such as 1 < x < 3"
        )

    def __repr__(self) -> str:
        return f"Predicate({self._text()})"

    def check(self, schema: Schema) -> None:
        """Raise if the condition does not fit the columns of a `schema`.

        Raises:
            SchemaError: A column does not exist, or a value is not of its type.
        """
        for child in self._children:
            child.check(schema)
        if not self._children:
            kind = schema.column(self._column).type
            _check_leaf(self._function, kind, self._column, self._literals)

    def _joined(self, function: str, other: Predicate) -> Predicate:
        if not isinstance(other, Predicate):
            raise PredicateError(f"a Predicate is joined with another, not with {other!r}")
        # Flat, so that a long chain does not become a deep tree.
        children: list[Predicate] = []
        for part in (self, other):
            children += part._children if part._function == function else (part,)
        return Predicate(function, children=tuple(children))

    def _text(self) -> str:
        if self._children:
            return f" {self._function} ".join(f"({child._text()})" for child in self._children)
        if self._function[0].isalpha():
            values = ", ".join(map(repr, self._literals))
            return f"{self._column}.{self._function}({values})"
        return f"{self._column} {self._function} {self._literals[0]!r}"


class ColumnRef:
    """A column that conditions are made of; `col(name)` makes one.

    Values are `bool`, `int`, `float`, `str`, `bytes`, `Decimal`, `date`, `time` and `datetime`. A
    `datetime` without a zone is for TIMESTAMP columns, one with a zone for TIMESTAMP_LTZ. Nulls
    are found by `is_null()` and `is_not_null()`.

    Args:
        name: The name of the column.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise PredicateError(f"a column is named by text, not by {name!r}")
        self._name = name

    @property
    def name(self) -> str:
        """The column's name."""
        return self._name

    def equal(self, value: Any) -> Predicate:
        """Return the condition that the column equals `value`."""
        return self._compared("==", value)

    def not_equal(self, value: Any) -> Predicate:
        """Return the condition that the column does not equal `value`."""
        return self._compared("!=", value)

    def less_than(self, value: Any) -> Predicate:
        """Return the condition that the column is less than `value`."""
        return self._compared("<", value)

    def less_or_equal(self, value: Any) -> Predicate:
        """Return the condition that the column is less than or equal to `value`."""
        return self._compared("<=", value)

    def greater_than(self, value: Any) -> Predicate:
        """Return the condition that the column is greater than `value`."""
        return self._compared(">", value)

    def greater_or_equal(self, value: Any) -> Predicate:
        """Return the condition that the column is greater than or equal to `value`."""
        return self._compared(">=", value)

    __eq__ = equal  # type: ignore[assignment]
    __ne__ = not_equal  # type: ignore[assignment]
    __lt__ = less_than
    __le__ = less_or_equal
    __gt__ = greater_than
    __ge__ = greater_or_equal
    __hash__ = None  # type: ignore[assignment]

    def is_null(self) -> Predicate:
        """Return the rows without a value."""
        return Predicate("is_null", self._name)

    def is_not_null(self) -> Predicate:
        """Return the rows with a value."""
        return Predicate("is_not_null", self._name)

    def starts_with(self, prefix: str) -> Predicate:
        """Return the condition that the text begins with `prefix`."""
        return self._of_text("starts_with", prefix)

    def ends_with(self, suffix: str) -> Predicate:
        """Return the condition that the text ends with `suffix`."""
        return self._of_text("ends_with", suffix)

    def contains(self, infix: str) -> Predicate:
        """Return the condition that the text contains `infix`."""
        return self._of_text("contains", infix)

    def is_in(self, values: Iterable[Any]) -> Predicate:
        """Return the condition that the column equals one of `values`."""
        return self._of_values("is_in", values)

    def not_in(self, values: Iterable[Any]) -> Predicate:
        """Return the condition that the column equals none of `values`."""
        return self._of_values("not_in", values)

    def __bool__(self) -> NoReturn:
        raise PredicateError("a column has no truth value: compare it, then join with & and |")

    def __repr__(self) -> str:
        return f"ColumnRef({self._name})"

    def _compared(self, function: str, value: Any) -> Predicate:
        return Predicate(function, self._name, (_literal(value),))

    def _of_text(self, function: str, value: str) -> Predicate:
        if not isinstance(value, str):
            raise PredicateError(f"{function} takes text, not {value!r}")
        return Predicate(function, self._name, (value,))

    def _of_values(self, function: str, values: Iterable[Any]) -> Predicate:
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise PredicateError(f"{function} takes a list of values, not {values!r}")
        return Predicate(function, self._name, tuple(map(_literal, values)))


def col(name: str) -> ColumnRef:
    """Return the column called `name`, to make conditions for `TableScan.filter` of."""
    return ColumnRef(name)


def _literal(value: Any) -> Any:
    if not isinstance(value, LITERALS):
        names = ", ".join(kind.__name__ for kind in LITERALS)
        raise PredicateError(
            f"a condition cannot have a value of type {type(value).__name__}: it takes {names}; "
            "for nulls use is_null() and is_not_null()"
        )
    return value


def _check_leaf(function: str, kind: DataType, name: str, literals: tuple[Any, ...]) -> None:
    if function in _OF_NULL:
        return
    if function in _OF_TEXT and str not in kind.literals:
        raise SchemaError(f"{function} is for columns of text; column '{name}' is {kind}")
    if not kind.literals:
        raise SchemaError(f"column '{name}' is {kind}: it takes is_null() and is_not_null() only")
    for value in literals:
        if not kind.fits_literal(value):
            raise SchemaError(f"column '{name}' is {kind}: {value!r} is no value of it")
