"""Arrow columns of plain types as stored values, and back.

The Arrow type of a column and the kind of its data type decide how this is done, so that a new type
with a known Arrow type needs nothing here.

Times: Arrow's unit follows the precision (0: s, 1-3: ms, 4-6: us, 7-9: ns); rows store
milliseconds, and the nanoseconds of the millisecond for the kind INSTANT. Times of day are cut to
milliseconds, which is all that a row holds.

Decimals: Arrow has 128-bit little-endian numbers. The kind INT64 stores the unscaled value as a
64-bit number, the kind DECIMAL its shortest big-endian two's complement, 1 to 16 bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from fluss_client.codec.binary.blobs import (
    Blobs,
    Bools,
    Bytes,
    Ints,
    join,
    load,
    null_mask,
    offsets_of,
    pack_bits,
    padded_to,
    unpack_bits,
    validity,
)
from fluss_client.codec.rows.physical import Found, Physical, refuse
from fluss_client.errors import CorruptDataError, RowError
from fluss_client.model.arrow import arrow_type, wire_type
from fluss_client.model.types import DataType
from fluss_client.model.types.layout import Kind

_PER_MILLI = {"ms": 1, "us": 1_000, "ns": 1_000_000}
_NANOS = {"us": 1_000, "ns": 1}
_NANOS_PER_MILLI = 1_000_000
_MILLIS_PER_DAY = 86_400_000
_INT64_MAX = (1 << 63) - 1
_DECIMAL_BYTES = 16
# A number below limit k fits k + 1 bytes with its sign.
_BYTE_LIMITS = np.array([1 << (8 * k - 1) for k in range(1, 9)], np.uint64)


def read_column(array: pa.Array, data_type: DataType, name: str) -> Physical:
    """Return a column of a plain type as rows store it.

    Args:
        array: The values in the type's Arrow form; zones are ignored, other encodings are cast.
        data_type: The type of the column.
        name: The name of the column, for errors.

    Raises:
        RowError: The array cannot be cast, or a NOT NULL column has nulls.
    """
    array = as_wire(array, data_type, name)
    nulls = null_mask(array)
    if nulls is not None and not data_type.nullable:
        raise RowError(f"column '{name}' is NOT NULL and has {array.null_count} nulls")
    layout = data_type.layout
    if layout.kind is Kind.BYTES:
        return Physical(nulls, blobs=Blobs.from_arrow(array))
    if layout.kind is Kind.DECIMAL:
        return Physical(nulls, blobs=shortest_bytes(array, nulls))
    if _has_ticks(array.type):
        return _read_temporal(array, layout.kind, nulls, name)
    if pt.is_decimal128(array.type):
        return Physical(nulls, np.ascontiguousarray(_halves(array)[:, 0]))
    return Physical(nulls, _numbers(array, layout.dtype))


def as_wire(array: pa.Array, data_type: DataType, name: str) -> pa.Array:
    """Return the array in the type's own Arrow form; its zone may differ."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    wire = wire_type(data_type)
    have = array.type
    if have.equals(wire):
        return array
    if pt.is_timestamp(have) and pt.is_timestamp(wire) and have.unit == wire.unit:
        return array
    if data_type.is_nested and have.id == wire.id:
        return array
    if pt.is_fixed_size_binary(wire) and pt.is_binary(have):
        return array
    try:
        return array.cast(wire)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise RowError(f"column '{name}' is {data_type.text}, not {have}: {error}") from error


def _has_ticks(arrow: pa.DataType) -> bool:
    return bool(pt.is_time(arrow) or pt.is_timestamp(arrow))


def _numbers(array: pa.Array, dtype: str) -> npt.NDArray[Any]:
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros(len(array), dtype)
    if pt.is_boolean(array.type):
        return unpack_bits(buffer, array.offset, len(array))
    return np.frombuffer(buffer, dtype)[array.offset : array.offset + len(array)]


def _read_temporal(array: pa.Array, kind: Kind, nulls: Bools | None, name: str) -> Physical:
    unit = array.type.unit
    wide = "<i8" if array.type.bit_width == 64 else "<i4"
    ticks = _numbers(array, wide).astype(np.int64, copy=False)
    if unit == "s":
        limit = _INT64_MAX // 1000
        out_of_range = (ticks > limit) | (ticks < -limit)
        if out_of_range.any() and (nulls is None or out_of_range[~nulls].any()):
            raise RowError(f"column '{name}' has a time that milliseconds cannot express")
        millis = ticks * 1000
    else:
        per_milli = _PER_MILLI[unit]
        millis = ticks if per_milli == 1 else ticks // per_milli
    if kind is Kind.INT32:
        return Physical(nulls, millis.astype(np.int32))
    if kind is Kind.INT64:
        return Physical(nulls, millis)
    nanos = (ticks - millis * _PER_MILLI[unit]) * _NANOS[unit]
    return Physical(nulls, millis, nanos.astype(np.int32))


def build_column(found: Found, data_type: DataType) -> pa.Array:
    """Return the Arrow array of a plain type, as users see it, from what was found in rows.

    Raises:
        CorruptDataError: The type cannot hold a value, or text is not UTF-8.
    """
    arrow = arrow_type(data_type)
    if found.spans is not None:
        if data_type.layout.kind is Kind.DECIMAL:
            return _checked(_decimals_from_bytes(found, arrow))
        return _build_bytes(found, data_type, arrow)
    assert found.numbers is not None
    numbers = found.numbers
    if found.nulls is not None:
        # The number at a null was read from the bytes of the next field: it must neither fail a
        # check nor be shown.
        numbers = np.where(found.nulls, np.zeros(1, numbers.dtype), numbers)
    if pt.is_decimal128(arrow):
        return _decimals_from_int64(numbers, found.nulls, data_type, arrow)
    if _has_ticks(arrow):
        numbers = _ticks(numbers, found, arrow)
    count = numbers.size
    if pt.is_boolean(arrow):
        data = pack_bits(numbers)
    else:
        data = pa.py_buffer(np.ascontiguousarray(numbers))
    return pa.Array.from_buffers(arrow, count, [validity(found.nulls), data])


def _ticks(millis: npt.NDArray[Any], found: Found, arrow: pa.DataType) -> npt.NDArray[Any]:
    unit = arrow.unit
    if pt.is_time(arrow):
        refuse((millis < 0) | (millis >= _MILLIS_PER_DAY), "a time is not within a day")
    if unit == "s":
        ticks = millis // 1000
    else:
        wide = millis.astype(np.int64, copy=False)
        per_milli = _PER_MILLI[unit]
        limit = _INT64_MAX // per_milli - 1
        refuse((wide > limit) | (wide < -limit), f"a timestamp does not fit Arrow's {arrow}")
        ticks = wide if per_milli == 1 else wide * per_milli
        if found.nanos is not None:
            nanos = found.nanos
            if found.nulls is not None:
                nanos = np.where(found.nulls, np.int32(0), nanos)
            refuse((nanos < 0) | (nanos >= _NANOS_PER_MILLI), "nanoseconds beyond a millisecond")
            ticks = ticks + nanos // _NANOS[unit]
    return ticks.astype("<i4" if arrow.bit_width == 32 else "<i8", copy=False)


def _build_bytes(found: Found, data_type: DataType, arrow: pa.DataType) -> pa.Array:
    assert found.spans is not None
    blobs = found.spans.blobs()
    count = len(blobs)
    if pt.is_fixed_size_binary(arrow):
        width: Ints | int = arrow.byte_width
        refuse(blobs.lengths > width, f"more bytes than {data_type.text} holds")
        data = pa.py_buffer(padded_to(blobs, width).data)
        return pa.Array.from_buffers(arrow, count, [validity(found.nulls), data])
    offsets = pa.py_buffer(blobs.offsets.astype(np.int32))
    buffers = [validity(found.nulls), offsets, pa.py_buffer(blobs.data)]
    array = pa.Array.from_buffers(arrow, count, buffers)
    return _checked(array) if pt.is_string(arrow) else array


def _checked(array: pa.Array) -> pa.Array:
    """Return the array if Arrow finds its values valid (UTF-8, decimal precision)."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise CorruptDataError(f"a value is not valid: {error}") from error
    return array


def _halves(array: pa.Array) -> npt.NDArray[np.int64]:
    """Return a decimal128 array as pairs (low, high) of 64-bit words."""
    buffer = array.buffers()[1]
    words = np.frombuffer(buffer or b"", "<i8").reshape(-1, 2)
    return words[array.offset : array.offset + len(array)]


def shortest_bytes(array: pa.Array, nulls: Bools | None) -> Blobs:
    """Return each unscaled value as its shortest big-endian two's complement, empty where null."""
    pairs = _halves(array)
    low, high = pairs[:, 0], pairs[:, 1]
    sign = high >> np.int64(63)
    low_size = (low ^ sign).view(np.uint64)
    high_size = (high ^ sign).view(np.uint64)
    lengths = 1 + np.where(
        high_size > 0,
        8 + np.searchsorted(_BYTE_LIMITS, high_size, "right"),
        np.searchsorted(_BYTE_LIMITS, low_size, "right"),
    )
    if nulls is not None:
        lengths[nulls] = 0
    swapped = np.empty((len(array), 2), ">i8")
    swapped[:, 0] = high
    swapped[:, 1] = low
    ends = np.arange(1, len(array) + 1) * _DECIMAL_BYTES
    return Blobs.from_spans(swapped.view(np.uint8).reshape(-1), ends - lengths, lengths)


def _decimals_from_int64(
    numbers: Ints, nulls: Bools | None, data_type: DataType, arrow: pa.DataType
) -> pa.Array:
    """Return a decimal array from unscaled 64-bit values."""
    limit = 10**data_type.precision
    refuse((numbers >= limit) | (numbers <= -limit), f"a number is too large for {data_type.text}")
    pairs = np.empty((numbers.size, 2), "<i8")
    pairs[:, 0] = numbers
    pairs[:, 1] = numbers >> np.int64(63)
    return pa.Array.from_buffers(arrow, numbers.size, [validity(nulls), pa.py_buffer(pairs)])


def _decimals_from_bytes(found: Found, arrow: pa.DataType) -> pa.Array:
    """Return a decimal array from big-endian bytes of any length up to 16."""
    assert found.spans is not None
    spans, nulls = found.spans, found.nulls
    bad = (spans.lengths < 1) | (spans.lengths > _DECIMAL_BYTES)
    refuse(bad if nulls is None else bad & ~nulls, "a decimal has no bytes, or more than 16")
    first = load(spans.data, "<i1", spans.starts)
    fill = np.where(first < 0, np.uint8(0xFF), np.uint8(0))
    whole = join([_repeated(fill, _DECIMAL_BYTES - spans.lengths), spans.blobs()])
    pairs = whole.data.view(">i8").astype("<i8").reshape(-1, 2)[:, ::-1]
    buffers = [validity(nulls), pa.py_buffer(np.ascontiguousarray(pairs))]
    return pa.Array.from_buffers(arrow, spans.starts.size, buffers)


def _repeated(byte: Bytes, counts: Ints) -> Blobs:
    return Blobs(np.repeat(byte, counts), offsets_of(counts))
