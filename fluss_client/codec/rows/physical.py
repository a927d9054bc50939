"""Columns of rows in memory, and the null bits that open each row.

Null bits: one bit per field, the lowest bit of the first byte first, 1 = null, in ceil(n / 8)
bytes. `model.types.layout` lists the physical kinds and what each of them stores.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from fluss_client.codec.binary.blobs import Blobs, Bools, Bytes, Ints
from fluss_client.errors import CorruptDataError
from fluss_client.model.types import DataType


class RowFormat(enum.Enum):
    """How a row's bytes are laid out; the value is that of the option `table.kv.format`."""

    COMPACTED = "COMPACTED"
    INDEXED = "INDEXED"


@dataclass(frozen=True, eq=False, slots=True)
class Physical:
    """A column that is ready to be written; the value at a null is ignored.

    Attributes:
        nulls: Where the column is null; None if nowhere.
        numbers: The stored numbers, the milliseconds for the kind INSTANT.
        nanos: The nanoseconds of the millisecond, for the kind INSTANT.
        blobs: The stored bytes, for the kinds that store bytes.
    """

    nulls: Bools | None
    numbers: npt.NDArray[Any] | None = None
    nanos: npt.NDArray[np.int32] | None = None
    blobs: Blobs | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Spans:
    """Byte strings at any places of `data`; of length 0 where the column is null."""

    data: Bytes
    starts: Ints
    lengths: Ints

    def where(self, chosen: Bools) -> Spans:
        """Return the chosen spans."""
        return Spans(self.data, self.starts[chosen], self.lengths[chosen])

    def blobs(self) -> Blobs:
        """Return the byte strings, copied."""
        return Blobs.from_spans(self.data, self.starts, self.lengths)


@dataclass(frozen=True, eq=False, slots=True)
class Found:
    """A column that was found in rows: as `Physical`, but byte strings are not copied yet."""

    nulls: Bools | None
    numbers: npt.NDArray[Any] | None = None
    nanos: npt.NDArray[np.int32] | None = None
    spans: Spans | None = None


def refuse(bad: Bools, what: str) -> None:
    """Raise CorruptDataError with the first bad row if there is one."""
    if np.count_nonzero(bad):
        corrupt(what, int(bad.argmax()))


def corrupt(what: str, row: int) -> NoReturn:
    """Raise CorruptDataError for a row."""
    raise CorruptDataError(f"row {row} of the block: {what}")


def bytes_for_bits(count: int) -> int:
    """Return how many bytes hold this many bits."""
    return (count + 7) // 8


def null_bits(count: int, columns: Sequence[Bools | None]) -> Bytes:
    """Return the null bits of `count` rows as a matrix with one row for each."""
    matrix = np.zeros((count, bytes_for_bits(len(columns))), np.uint8)
    for index, nulls in enumerate(columns):
        if nulls is not None:
            matrix[:, index // 8] |= nulls.view(np.uint8) << np.uint8(index % 8)
    return matrix


class NullBits:
    """Reads the null bits of many rows, column by column."""

    def __init__(self, data: Bytes, starts: Ints, ends: Ints, field_count: int) -> None:
        refuse(starts + bytes_for_bits(field_count) > ends, "too short for its null bits")
        self._data = data
        self._starts = starts
        self._byte = -1
        self._bits: Bytes | None = None

    def of(self, index: int, data_type: DataType) -> Bools | None:
        """Return where this field is null, None if nowhere; call it in ascending order."""
        if index // 8 != self._byte:
            self._byte = index // 8
            bits = self._data[self._starts + self._byte]
            self._bits = bits if np.count_nonzero(bits) else None
        if self._bits is None:
            return None
        nulls: Bools = (self._bits & np.uint8(1 << index % 8)) != 0
        if not np.count_nonzero(nulls):
            return None
        if not data_type.nullable:
            refuse(nulls, f"field {index} is null and its type says NOT NULL")
        return nulls
