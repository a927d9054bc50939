"""Blocks of nested values, the same inside both row formats. All numbers are little endian.

Array block: i32 count; null bits in 4-byte words, lowest bit first; one slot per element of 1
(BOOLEAN, TINYINT), 2 (SMALLINT), 4 (INTEGER, FLOAT, DATE, TIME) or 8 bytes (all others); zeros up
to a multiple of 8; the variable part, in which every item is padded to a multiple of 8. `slots`
describes slots and items; offsets count from the start of the block.

Map block: i32 size of the key array, key array block, value array block. Row block: a row.
"""

from __future__ import annotations

import numpy as np

from fluss_client.codec.bitmaps import Bools
from fluss_client.codec.blobs import Blobs, Ints, join, offsets_of, splice
from fluss_client.codec.rows.physical import (
    Found,
    Kind,
    Physical,
    Spans,
    kind_of,
    number_dtype,
    refuse,
)
from fluss_client.codec.rows.slots import HALF, INLINE_MAX, LOW_HALF, round_up, slot_width, slots_of
from fluss_client.codec.unaligned import SLACK, load, store
from fluss_client.model.types import DataType, Root

_COUNT_BYTES = 4


def header_size(counts: Ints) -> Ints:
    """The bytes of the count and the null bits."""
    return _COUNT_BYTES + 4 * ((counts + 31) // 32)


def encode_arrays(counts: Ints, elements: Physical, data_type: DataType) -> Blobs:
    """Array blocks: the first `counts[0]` elements are the first block's, and so on."""
    firsts = offsets_of(counts)
    width = slot_width(data_type)
    headers = header_size(counts)
    fixed = round_up(headers + width * counts)
    block_of = np.repeat(np.arange(counts.size), counts)
    place = np.arange(firsts[-1]) - firsts[block_of]
    slots, items = slots_of(elements, data_type)
    running = offsets_of(items.sizes)
    far = items.owners
    if far.size:
        in_block = running[:-1] - running[firsts[block_of]]
        slots[far] |= (fixed[block_of[far]] + in_block[far]).astype(np.uint64) << HALF
    # Everything but the items, which are put in behind each block's fixed part afterwards.
    starts = offsets_of(fixed)
    template = np.zeros(int(starts[-1]) + SLACK, np.uint8)
    store(template, "<i4", starts[:-1], counts.astype(np.int32))
    slot_at = (starts[:-1] + headers)[block_of] + place * width
    store(template, f"V{width}", slot_at, slots.view(f"V{width}"))
    if elements.nulls is not None:
        at = place[elements.nulls]
        base = starts[block_of[elements.nulls]] + _COUNT_BYTES
        bits = np.left_shift(1, at % 8).astype(np.uint8)
        np.bitwise_or.at(template, base + at // 8, bits)
    template = template[: starts[-1]]
    totals = fixed + running[firsts[1:]] - running[firsts[:-1]]
    if not far.size:
        return Blobs(template, offsets_of(totals))
    return Blobs(splice(template, starts[1:][block_of[far]], items.blobs), offsets_of(totals))


def encode_maps(keys: Blobs, values: Blobs) -> Blobs:
    """Map blocks from the array blocks of their keys and values."""
    sizes = keys.lengths.astype("<i4").view(np.uint8).reshape(-1, 4)
    return join([sizes, keys, values])


def find_arrays(blocks: Spans, data_type: DataType) -> tuple[Ints, Found]:
    """The element count of each array block, and all elements as one column.

    `blocks.data` has SLACK bytes behind the last block. Counts, offsets and sizes that leave their
    block raise CorruptDataError, before anything is made that is larger than the blocks.
    """
    data, starts, sizes = blocks.data, blocks.starts, blocks.lengths
    width = slot_width(data_type)
    refuse(sizes < _COUNT_BYTES, "an array has no count")
    counts = load(data, "<i4", starts).astype(np.int64)
    refuse(counts < 0, "an array has a negative count")
    headers = header_size(counts)
    refuse(headers + counts * width > sizes, "an array is too short for its elements")
    firsts = offsets_of(counts)
    block_of = np.repeat(np.arange(counts.size), counts)
    place = np.arange(firsts[-1]) - firsts[block_of]
    bytes_at = data[starts[block_of] + _COUNT_BYTES + place // 8]
    nulls: Bools | None = (bytes_at >> (place % 8).astype(np.uint8)) & 1 != 0
    if nulls is not None and not nulls.any():
        nulls = None
    if nulls is not None and not data_type.nullable:
        refuse(nulls, "an array holds a null and its element type says NOT NULL")
    slot_at = (starts + headers)[block_of] + place * width
    elements = _find_elements(blocks, data_type, slot_at, block_of, firsts, nulls)
    return counts, elements


def _find_elements(
    blocks: Spans,
    data_type: DataType,
    slot_at: Ints,
    block_of: Ints,
    firsts: Ints,
    nulls: Bools | None,
) -> Found:
    kind = kind_of(data_type)
    if kind in (Kind.RAW, Kind.INT32, Kind.INT64):
        return Found(nulls, load(blocks.data, number_dtype(data_type), slot_at))
    slots = load(blocks.data, "<u8", slot_at).astype(np.uint64, copy=False)
    if nulls is not None:
        slots[nulls] = 0
    offsets = (slots >> HALF).view(np.int64)
    lengths = (slots & LOW_HALF).view(np.int64)
    room = blocks.lengths[block_of]
    if kind is Kind.INSTANT:
        outside = offsets + 8 > room
        refuse(outside if nulls is None else outside & ~nulls, "an offset leaves its array")
        at = blocks.starts[block_of] + (offsets if nulls is None else np.where(nulls, 0, offsets))
        return Found(nulls, load(blocks.data, "<i8", at), lengths.astype(np.int32))
    starts = blocks.starts[block_of] + offsets
    if kind is Kind.BYTES and data_type.root is not Root.DECIMAL:
        inline = slots >> np.uint64(63) != 0
        starts = np.where(inline, slot_at, starts)
        inline_lengths = ((slots >> np.uint64(56)) & np.uint64(0x7F)).view(np.int64)
        refuse(inline & (inline_lengths > INLINE_MAX), "a slot holds more than seven bytes")
        lengths = np.where(inline, inline_lengths, lengths)
        offsets = np.where(inline, 0, offsets)
    refuse(offsets + lengths > room, "an offset leaves its array")
    # Items may share bytes only as far as their sum stays within the block: this bounds memory.
    running = offsets_of(lengths)
    total = running[firsts[1:]] - running[firsts[:-1]]
    refuse(total > blocks.lengths, "an array's items are larger than the array")
    if nulls is not None:
        starts = np.where(nulls, slot_at, starts)
    return Found(nulls, spans=Spans(blocks.data, starts, lengths))


def find_maps(blocks: Spans) -> tuple[Spans, Spans]:
    """The key array and the value array of each map block."""
    data, starts, sizes = blocks.data, blocks.starts, blocks.lengths
    refuse(sizes < _COUNT_BYTES, "a map has no key size")
    key_sizes = load(data, "<i4", starts).astype(np.int64)
    refuse((key_sizes < 0) | (key_sizes + _COUNT_BYTES > sizes), "a map is too short for its keys")
    keys = Spans(data, starts + _COUNT_BYTES, key_sizes)
    values = Spans(data, keys.starts + key_sizes, sizes - _COUNT_BYTES - key_sizes)
    return keys, values
