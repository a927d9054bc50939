"""What row layouts store: every logical type is one of a few physical kinds.

| kind    | types                                   | in memory here                      |
|---------|-----------------------------------------|-------------------------------------|
| RAW     | BOOLEAN, TINYINT, SMALLINT, FLOAT, DOUBLE | `numbers` of the type's own width |
| INT32   | INTEGER, DATE, TIME (ms of the day)     | `numbers`, int32                    |
| INT64   | BIGINT, DECIMAL p<=18, TIMESTAMP p<=3 (ms) | `numbers`, int64                 |
| INSTANT | TIMESTAMP p>3                           | `numbers` ms int64, `nanos` int32   |
| BYTES   | STRING, BYTES, CHAR, BINARY, DECIMAL p>18 | byte strings                      |
| BLOCK   | ARRAY, MAP, ROW                         | byte strings                        |
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from fluss_client.codec.bitmaps import Bools
from fluss_client.codec.blobs import Blobs, Bytes, Ints
from fluss_client.errors import CorruptDataError
from fluss_client.model.types import DataType, Root


class RowFormat(enum.Enum):
    """How a row's bytes are laid out; the value is that of the option `table.kv.format`."""

    COMPACTED = "COMPACTED"
    INDEXED = "INDEXED"


class Kind(enum.Enum):
    """How a value is stored."""

    RAW = enum.auto()
    INT32 = enum.auto()
    INT64 = enum.auto()
    INSTANT = enum.auto()
    BYTES = enum.auto()
    BLOCK = enum.auto()


RAW_DTYPES = {
    Root.BOOLEAN: "<u1",
    Root.TINYINT: "<i1",
    Root.SMALLINT: "<i2",
    Root.FLOAT: "<f4",
    Root.DOUBLE: "<f8",
}
_KINDS = {
    **dict.fromkeys(RAW_DTYPES, Kind.RAW),
    **dict.fromkeys((Root.INTEGER, Root.DATE, Root.TIME), Kind.INT32),
    Root.BIGINT: Kind.INT64,
    **dict.fromkeys((Root.STRING, Root.BYTES, Root.CHAR, Root.BINARY), Kind.BYTES),
    **dict.fromkeys((Root.ARRAY, Root.MAP, Root.ROW), Kind.BLOCK),
}


def kind_of(data_type: DataType) -> Kind:
    """The kind that stores this type."""
    kind = _KINDS.get(data_type.root)
    if kind is not None:
        return kind
    if data_type.root is Root.DECIMAL:
        return Kind.INT64 if data_type.is_compact else Kind.BYTES
    return Kind.INT64 if data_type.is_compact else Kind.INSTANT


def number_dtype(data_type: DataType) -> str:
    """The NumPy type of `numbers` for a type of the RAW, INT32, INT64 or INSTANT kind."""
    raw = RAW_DTYPES.get(data_type.root)
    if raw is not None:
        return raw
    return "<i4" if kind_of(data_type) is Kind.INT32 else "<i8"


@dataclass(frozen=True, eq=False, slots=True)
class Physical:
    """A column that is ready to be written: values by kind; what stands at a null is ignored."""

    nulls: Bools | None
    numbers: npt.NDArray[Any] | None = None
    nanos: npt.NDArray[np.int32] | None = None
    blobs: Blobs | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Spans:
    """Byte strings somewhere in `data`; of length 0 where the column is null."""

    data: Bytes
    starts: Ints
    lengths: Ints

    def where(self, chosen: Bools) -> Spans:
        """The spans that are chosen."""
        return Spans(self.data, self.starts[chosen], self.lengths[chosen])

    def blobs(self) -> Blobs:
        """The byte strings themselves."""
        return Blobs.from_spans(self.data, self.starts, self.lengths)


@dataclass(frozen=True, eq=False, slots=True)
class Found:
    """A column that was found in rows: as `Physical`, but byte strings are still in place."""

    nulls: Bools | None
    numbers: npt.NDArray[Any] | None = None
    nanos: npt.NDArray[np.int32] | None = None
    spans: Spans | None = None


def refuse(bad: Bools, what: str) -> None:
    """Raises CorruptDataError with the first bad row if there is one."""
    if np.count_nonzero(bad):
        corrupt(what, int(bad.argmax()))


def corrupt(what: str, row: int) -> NoReturn:
    """Raises CorruptDataError for a row."""
    raise CorruptDataError(f"row {row} of the block: {what}")
