"""Fluss's logical types as one frozen value, and their text form.

A type is its `Root` plus the few numbers and children that this root has; codecs switch on the
root. Text form: `decimal(10,2) NOT NULL`, `array<string>`, `map<string NOT NULL,bigint>`,
`row<a: int,b: string>`; `model.type_text` reads it back.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, replace

from fluss_client.errors import SchemaError

TIMESTAMP_PRECISION_DEFAULT = 6
TIMESTAMP_PRECISION_MAX = 9
DECIMAL_PRECISION_MAX = 38
COMPACT_DECIMAL_PRECISION_MAX = 18
COMPACT_TIMESTAMP_PRECISION_MAX = 3


class Root(enum.Enum):
    """The kind of a type; the value is its name in Fluss's JSON."""

    BOOLEAN = "BOOLEAN"
    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    INTEGER = "INTEGER"
    BIGINT = "BIGINT"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    CHAR = "CHAR"
    STRING = "STRING"
    BINARY = "BINARY"
    BYTES = "BYTES"
    DECIMAL = "DECIMAL"
    DATE = "DATE"
    TIME = "TIME_WITHOUT_TIME_ZONE"
    TIMESTAMP = "TIMESTAMP_WITHOUT_TIME_ZONE"
    TIMESTAMP_LTZ = "TIMESTAMP_WITH_LOCAL_TIME_ZONE"
    ARRAY = "ARRAY"
    MAP = "MAP"
    ROW = "ROW"


_TEXT = {
    Root.INTEGER: "int",
    Root.TIME: "time",
    Root.TIMESTAMP: "timestamp",
    Root.TIMESTAMP_LTZ: "timestamp_ltz",
}
_WITH_LENGTH = frozenset({Root.CHAR, Root.BINARY})
_WITH_PRECISION = frozenset({Root.TIME, Root.TIMESTAMP, Root.TIMESTAMP_LTZ})
NESTED = frozenset({Root.ARRAY, Root.MAP, Root.ROW})
INT_BITS = {Root.TINYINT: 8, Root.SMALLINT: 16, Root.INTEGER: 32, Root.BIGINT: 64}


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a ROW type; `id` stays the same for the field's whole life."""

    name: str
    type: DataType
    description: str | None = None
    id: int = -1


@dataclass(frozen=True, slots=True)
class DataType:
    """One logical type; numbers and children are set where the root has them."""

    root: Root
    nullable: bool = True
    length: int = 0
    precision: int = 0
    scale: int = 0
    element: DataType | None = None
    """The elements of an ARRAY, the values of a MAP."""
    key: DataType | None = None
    fields: tuple[Field, ...] = ()

    def __post_init__(self) -> None:
        if self.root in _WITH_LENGTH and self.length < 1:
            raise SchemaError(f"{self.root.value} needs a length of at least 1, not {self.length}")
        if self.root in _WITH_PRECISION and not 0 <= self.precision <= TIMESTAMP_PRECISION_MAX:
            raise SchemaError(f"{_text_name(self.root)} takes a precision of 0 to 9")
        if self.root is Root.DECIMAL and not (
            1 <= self.precision <= DECIMAL_PRECISION_MAX and 0 <= self.scale <= self.precision
        ):
            raise SchemaError(
                f"decimal({self.precision},{self.scale}): precision is 1 to 38, scale at most that"
            )

    def with_nullable(self, nullable: bool) -> DataType:
        """The same type, nullable or not."""
        return self if self.nullable == nullable else replace(self, nullable=nullable)

    @property
    def is_nested(self) -> bool:
        """Whether this is ARRAY, MAP or ROW."""
        return self.root in NESTED

    @property
    def is_compact(self) -> bool:
        """Whether a decimal, or a timestamp's fraction, fits one 64-bit number of its row form."""
        if self.root is Root.DECIMAL:
            return self.precision <= COMPACT_DECIMAL_PRECISION_MAX
        return self.precision <= COMPACT_TIMESTAMP_PRECISION_MAX

    @property
    def text(self) -> str:
        """The type without its nullability, such as `decimal(10,2)`."""
        name = _text_name(self.root)
        if self.root in _WITH_LENGTH:
            return f"{name}({self.length})"
        if self.root is Root.DECIMAL:
            return f"{name}({self.precision},{self.scale})"
        if self.root in (Root.TIMESTAMP, Root.TIMESTAMP_LTZ):
            default = self.precision == TIMESTAMP_PRECISION_DEFAULT
            return name if default else f"{name}({self.precision})"
        if self.root is Root.TIME:
            return f"{name}({self.precision})"
        if self.root is Root.ARRAY:
            return f"{name}<{self.element}>"
        if self.root is Root.MAP:
            return f"{name}<{self.key},{self.element}>"
        if self.root is Root.ROW:
            return f"{name}<{', '.join(f'{f.name}: {f.type}' for f in self.fields)}>"
        return name

    def __str__(self) -> str:
        return self.text if self.nullable else f"{self.text} NOT NULL"


def _text_name(root: Root) -> str:
    return _TEXT.get(root, root.value.lower())


class DataTypes:
    """Makes types by name, as the other clients of Fluss do."""

    @staticmethod
    def boolean() -> DataType:
        return DataType(Root.BOOLEAN)

    @staticmethod
    def tinyint() -> DataType:
        return DataType(Root.TINYINT)

    @staticmethod
    def smallint() -> DataType:
        return DataType(Root.SMALLINT)

    @staticmethod
    def int() -> DataType:
        return DataType(Root.INTEGER)

    @staticmethod
    def bigint() -> DataType:
        return DataType(Root.BIGINT)

    @staticmethod
    def float() -> DataType:
        return DataType(Root.FLOAT)

    @staticmethod
    def double() -> DataType:
        return DataType(Root.DOUBLE)

    @staticmethod
    def char(length: int) -> DataType:  # type: ignore[valid-type]
        return DataType(Root.CHAR, length=length)

    @staticmethod
    def string() -> DataType:
        return DataType(Root.STRING)

    @staticmethod
    def binary(length: int) -> DataType:  # type: ignore[valid-type]
        return DataType(Root.BINARY, length=length)

    @staticmethod
    def bytes() -> DataType:
        return DataType(Root.BYTES)

    @staticmethod
    def decimal(precision: int, scale: int = 0) -> DataType:  # type: ignore[valid-type]
        return DataType(Root.DECIMAL, precision=precision, scale=scale)

    @staticmethod
    def date() -> DataType:
        return DataType(Root.DATE)

    @staticmethod
    def time(precision: int = 0) -> DataType:  # type: ignore[valid-type]
        return DataType(Root.TIME, precision=precision)

    @staticmethod
    def timestamp(precision: int = TIMESTAMP_PRECISION_DEFAULT) -> DataType:  # type: ignore[valid-type]
        return DataType(Root.TIMESTAMP, precision=precision)

    @staticmethod
    def timestamp_ltz(precision: int = TIMESTAMP_PRECISION_DEFAULT) -> DataType:  # type: ignore[valid-type]
        return DataType(Root.TIMESTAMP_LTZ, precision=precision)

    @staticmethod
    def array(element: DataType) -> DataType:
        return DataType(Root.ARRAY, element=element)

    @staticmethod
    def map(key: DataType, value: DataType) -> DataType:
        return DataType(Root.MAP, key=key.with_nullable(False), element=value)

    @staticmethod
    def row(fields: Iterable[Field]) -> DataType:
        return DataType(Root.ROW, fields=tuple(fields))
