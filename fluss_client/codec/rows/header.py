"""The null bits that open a row: one per field, lowest first, 1 = null, ceil(n / 8) bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fluss_client.codec.bitmaps import Bools
from fluss_client.codec.blobs import Bytes, Ints
from fluss_client.codec.rows.physical import refuse
from fluss_client.model.types import DataType


def bytes_for_bits(count: int) -> int:
    """How many bytes hold so many bits."""
    return (count + 7) // 8


def null_bits(count: int, columns: Sequence[Bools | None]) -> Bytes:
    """The null bits of `count` rows, one row of the matrix for each."""
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
        """Where this field is null; None if nowhere. Asked for in ascending order."""
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
