"""Slots of a fixed width, as array blocks and Paimon's keys have them. Little endian.

    RAW, INT32, INT64  the number itself
    INSTANT            8 bytes of milliseconds outside; slot: offset << 32 | nanoseconds
    BYTES              up to 7 bytes in the slot, lowest byte first, top byte 0x80 | length;
                       longer ones outside; slot: offset << 32 | length
    DECIMAL            16 bytes outside, left aligned; slot: offset << 32 | length
    ARRAY, MAP, ROW    always outside; slot: offset << 32 | length

A value outside the slots is called an item. It is padded with zeros to a multiple of 8 bytes. A
null is all zeros and has no item.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fluss_client.codec.binary.blobs import Blobs, Ints, load, padded_to, with_slack
from fluss_client.codec.rows.physical import Physical
from fluss_client.model.types import DataType
from fluss_client.model.types.layout import Kind

SLOT_BYTES = 8
INLINE_MAX = 7
"""How many bytes fit a slot beside their length."""
DECIMAL_AREA = 16
HALF = np.uint64(32)
LOW_HALF = np.uint64(0xFFFFFFFF)

# The low n bytes of a word.
_LOW_BYTES = np.array([(1 << 8 * n) - 1 for n in range(INLINE_MAX + 1)], np.uint64)


@dataclass(frozen=True, eq=False, slots=True)
class Items:
    """The values outside the slots.

    Attributes:
        blobs: The items, padded.
        owners: The index of the value of each item.
        sizes: The size of the item of each value, 0 for a value without one.
    """

    blobs: Blobs
    owners: Ints
    sizes: Ints


def slot_width(data_type: DataType) -> int:
    """Return the bytes of one slot of an array block."""
    layout = data_type.layout
    return layout.packing.size if layout.kind in (Kind.RAW, Kind.INT32) else SLOT_BYTES


def slots_of(column: Physical, data_type: DataType) -> tuple[npt.NDArray[Any], Items]:
    """Return the slots and the items; the caller ORs the offset of each item in, << 32."""
    slots, blobs, owners = _parts(column, data_type.layout.kind)
    if column.nulls is not None:
        slots[column.nulls] = 0
    sizes = np.zeros(slots.size, np.int64)
    sizes[owners] = blobs.lengths
    return slots, Items(blobs, owners, sizes)


def round_up(sizes: Ints) -> Ints:
    """Return the sizes rounded up to multiples of eight."""
    rounded: Ints = (sizes + 7) & ~np.int64(7)
    return rounded


def _parts(column: Physical, kind: Kind) -> tuple[npt.NDArray[Any], Blobs, Ints]:
    if column.blobs is None:
        assert column.numbers is not None
        if column.nanos is None:
            return np.array(column.numbers), Blobs.from_list([]), np.empty(0, np.int64)
        owners = _present(column)
        millis = column.numbers[owners].astype("<i8").view(np.uint8).reshape(-1, 8)
        return column.nanos.astype(np.uint64), Blobs.from_matrix(millis), owners
    blobs = column.blobs
    lengths = blobs.lengths
    slots = lengths.astype(np.uint64)
    if kind is not Kind.BYTES:
        owners = _present(column)
    else:
        near = np.flatnonzero(lengths <= INLINE_MAX)
        slots[near] = _inline(blobs, near)
        owners = np.flatnonzero(lengths > INLINE_MAX)
    chosen = blobs if owners.size == len(blobs) else blobs.take(owners)
    area = DECIMAL_AREA if kind is Kind.DECIMAL else round_up(chosen.lengths)
    return slots, padded_to(chosen, area), owners


def _inline(blobs: Blobs, rows: Ints) -> npt.NDArray[np.uint64]:
    lengths = blobs.lengths[rows]
    words = load(with_slack(blobs.data), "<u8", blobs.offsets[rows]).astype(np.uint64, copy=False)
    marks = (lengths.astype(np.uint64) | np.uint64(0x80)) << np.uint64(56)
    slots: npt.NDArray[np.uint64] = (words & _LOW_BYTES[lengths]) | marks
    return slots


def _present(column: Physical) -> Ints:
    if column.nulls is not None:
        return np.flatnonzero(~column.nulls)
    assert column.numbers is not None or column.blobs is not None
    count = column.numbers.size if column.blobs is None else len(column.blobs)  # type: ignore[union-attr]
    return np.arange(count)
