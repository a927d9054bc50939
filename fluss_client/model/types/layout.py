"""How values of a type are stored: the few physical kinds that the row and key codecs know.

A type declares a `Layout`. The codecs have one branch for each kind and none for each type.

    kind      types                                      stored value of one row
    RAW       BOOLEAN, TINYINT, SMALLINT, FLOAT, DOUBLE  a number of the type's own width
    INT32     INTEGER, DATE, TIME (ms of the day)        a number, int32
    INT64     BIGINT, DECIMAL p<=18, TIMESTAMP p<=3 (ms) a number, int64
    INSTANT   TIMESTAMP p>3                              (ms int64, nanoseconds of the ms int32)
    BYTES     STRING, BYTES, CHAR, BINARY                bytes
    DECIMAL   DECIMAL p>18                               bytes: shortest big-endian two's complement
    ARRAY     ARRAY                                      bytes: an array block
    MAP       MAP                                        bytes: a map block
    ROW       ROW                                        bytes: a row in the format of the outer row
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass


class Kind(enum.Enum):
    """How the value of a column is stored in a row."""

    RAW = enum.auto()
    INT32 = enum.auto()
    INT64 = enum.auto()
    INSTANT = enum.auto()
    BYTES = enum.auto()
    DECIMAL = enum.auto()
    ARRAY = enum.auto()
    MAP = enum.auto()
    ROW = enum.auto()


class IcebergKey(enum.Enum):
    """Which bytes stand for a value in a key that Iceberg hashes."""

    STORED = enum.auto()
    """The stored bytes, or the stored number in its own width."""
    INT64 = enum.auto()
    """The stored number as 8 bytes."""
    MICROSECONDS = enum.auto()
    """The stored milliseconds, and nanoseconds, as 8 bytes of microseconds."""
    UNSCALED = enum.auto()
    """The unscaled number as its shortest big-endian two's complement."""


_NO_NUMBER = struct.Struct("")


@dataclass(frozen=True, eq=False, slots=True)
class Layout:
    """How a type is stored in rows and keys.

    Attributes:
        kind: How row formats store it.
        dtype: The NumPy type of the stored numbers; empty for the kinds that store bytes.
        packing: One stored number, or one pair of numbers, in fixed width, little endian.
        padded: Whether an indexed row stores `DataType.length` bytes, padded with zeros.
        strips_padding: Whether the zeros at the end of a padded value are no part of it.
        iceberg_key: Its form in an Iceberg key; None if Iceberg has no such key.
    """

    kind: Kind
    dtype: str = ""
    packing: struct.Struct = _NO_NUMBER
    padded: bool = False
    strips_padding: bool = False
    iceberg_key: IcebergKey | None = None

    @property
    def is_number(self) -> bool:
        """Whether the stored value is a number or a pair of numbers, not bytes."""
        return bool(self.dtype)


def int32_layout(iceberg_key: IcebergKey) -> Layout:
    """Return the layout of a type that is stored as a 32-bit integer."""
    return Layout(Kind.INT32, "<i4", struct.Struct("<i"), iceberg_key=iceberg_key)


def int64_layout(iceberg_key: IcebergKey | None) -> Layout:
    """Return the layout of a type that is stored as a 64-bit integer."""
    return Layout(Kind.INT64, "<i8", struct.Struct("<q"), iceberg_key=iceberg_key)
