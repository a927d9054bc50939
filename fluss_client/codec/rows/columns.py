"""Arrow columns of plain types to what rows store, and back.

Units on the Arrow side follow the precision (0: s, 1-3: ms, 4-6: us, 7-9: ns); rows hold
milliseconds, and nanoseconds of the millisecond for timestamps of a precision above 3. Times of
day are cut to milliseconds, which is all that a row holds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_client.codec.bitmaps import Bools, null_mask, pack_bits, unpack_bits, validity
from fluss_client.codec.blobs import Blobs, Ints, padded_to
from fluss_client.codec.rows import decimals
from fluss_client.codec.rows.physical import Found, Kind, Physical, kind_of, number_dtype, refuse
from fluss_client.errors import CorruptDataError, RowError
from fluss_client.model.arrow import arrow_type, wire_type
from fluss_client.model.types import DataType, Root

_PER_MILLI = {"ms": 1, "us": 1_000, "ns": 1_000_000}
_NANOS = {"us": 1_000, "ns": 1}
_NANOS_PER_MILLI = 1_000_000
_MILLIS_PER_DAY = 86_400_000
_INT64_MAX = (1 << 63) - 1
_TEMPORAL = frozenset({Root.TIME, Root.TIMESTAMP, Root.TIMESTAMP_LTZ})


def read_column(array: pa.Array, data_type: DataType, name: str) -> Physical:
    """A column of a plain type as rows store it.

    The array has the type's Arrow form; zones do not matter, other encodings are cast. RowError
    names the column when that fails, or when nulls stand in a NOT NULL column.
    """
    array = as_wire(array, data_type, name)
    nulls = null_mask(array)
    if nulls is not None and not data_type.nullable:
        raise RowError(f"column '{name}' is NOT NULL and has {array.null_count} nulls")
    kind = kind_of(data_type)
    if kind is Kind.BYTES:
        if data_type.root is Root.DECIMAL:
            return Physical(nulls, blobs=decimals.shortest_bytes(array, nulls))
        return Physical(nulls, blobs=Blobs.from_arrow(array))
    if data_type.root in _TEMPORAL:
        return _read_temporal(array, data_type, nulls, name)
    if data_type.root is Root.DECIMAL:
        return Physical(nulls, np.ascontiguousarray(decimals.halves(array)[:, 0]))
    return Physical(nulls, _numbers(array, number_dtype(data_type)))


def as_wire(array: pa.Array, data_type: DataType, name: str) -> pa.Array:
    """The array in the type's own Arrow form, give or take the zone."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    wire = wire_type(data_type)
    have = array.type
    if have.equals(wire):
        return array
    if pa.types.is_timestamp(have) and pa.types.is_timestamp(wire) and have.unit == wire.unit:
        return array
    if data_type.is_nested and have.id == wire.id:
        return array
    if data_type.root is Root.BINARY and pa.types.is_binary(have):
        return array
    try:
        return array.cast(wire)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise RowError(f"column '{name}' is {data_type.text}, not {have}: {error}") from error


def _numbers(array: pa.Array, dtype: str) -> npt.NDArray[Any]:
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros(len(array), dtype)
    if pa.types.is_boolean(array.type):
        return unpack_bits(buffer, array.offset, len(array))
    return np.frombuffer(buffer, dtype)[array.offset : array.offset + len(array)]


def _read_temporal(
    array: pa.Array, data_type: DataType, nulls: Bools | None, name: str
) -> Physical:
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
    if data_type.root is Root.TIME:
        return Physical(nulls, millis.astype(np.int32))
    if data_type.is_compact:
        return Physical(nulls, millis)
    nanos = (ticks - millis * _PER_MILLI[unit]) * _NANOS[unit]
    return Physical(nulls, millis, nanos.astype(np.int32))


def build_column(found: Found, data_type: DataType) -> pa.Array:
    """The Arrow array of a plain type, as users see it, from what was found in rows.

    Values that the type cannot hold and text that is not UTF-8 raise CorruptDataError.
    """
    arrow = arrow_type(data_type)
    root = data_type.root
    if found.spans is not None:
        if root is Root.DECIMAL:
            return checked(decimals.from_bytes(found, data_type, arrow))
        return _build_bytes(found, data_type, arrow)
    assert found.numbers is not None
    numbers = found.numbers
    if found.nulls is not None:
        # What stands at a null is whatever bytes came next; it must neither fail a check nor leak.
        numbers = np.where(found.nulls, np.zeros(1, numbers.dtype), numbers)
    if root is Root.DECIMAL:
        return decimals.from_int64(numbers, found.nulls, data_type, arrow)
    if root in _TEMPORAL:
        numbers = _ticks(numbers, found, data_type, arrow)
    count = numbers.size
    if root is Root.BOOLEAN:
        data = pack_bits(numbers)
    else:
        data = pa.py_buffer(np.ascontiguousarray(numbers))
    return pa.Array.from_buffers(arrow, count, [validity(found.nulls), data])


def _ticks(
    millis: npt.NDArray[Any], found: Found, data_type: DataType, arrow: pa.DataType
) -> npt.NDArray[Any]:
    unit = arrow.unit
    if data_type.root is Root.TIME:
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
    if data_type.root is Root.BINARY:
        refuse(blobs.lengths > data_type.length, f"more bytes than {data_type.text} holds")
        padded: Ints | int = data_type.length
        data = pa.py_buffer(padded_to(blobs, padded).data)
        return pa.Array.from_buffers(arrow, count, [validity(found.nulls), data])
    offsets = pa.py_buffer(blobs.offsets.astype(np.int32))
    buffers = [validity(found.nulls), offsets, pa.py_buffer(blobs.data)]
    array = pa.Array.from_buffers(arrow, count, buffers)
    return array if data_type.root is Root.BYTES else checked(array)


def checked(array: pa.Array) -> pa.Array:
    """The array, if Arrow finds its values valid (UTF-8, decimal precision)."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise CorruptDataError(f"a value is not valid: {error}") from error
    return array
