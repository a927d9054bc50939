"""KV batches, as PUT_KV sends them, one per bucket; and the values that look-ups return.

All integers are little-endian:

    field            size   at
    length              4    0   bytes after this field
    magic               1    4   0
    crc                 4    5
    schema_id           2    9
    attributes          1   11   0
    writer_id           8   12   -1: not idempotent
    batch_sequence      4   20
    record_count        4   24
    records                 28   i32 length of the rest, unsigned varint key length, key, row

A record without row bytes deletes its key; rows themselves are never empty. The CRC-32C covers
everything from schema_id on.

Values of the key state, as LOOKUP, PREFIX_LOOKUP, LIMIT_SCAN and SCAN_KV answer them:

    value         i16 schema_id, row in the table's kv format and in that schema
    value batch   i32 length of the rest, u8 magic 0, i32 record count, records
    record        i32 length, value

There are no keys (a row has its key columns) and no checksum.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_client.codec.binary.blobs import Blobs, Bytes, Ints, join, offsets_of, with_slack
from fluss_client.codec.binary.crc32c import BytesLike, Sealed, crc32c, seal
from fluss_client.codec.binary.varints import MAX_INT32_BYTES, decode_varints, encode_varints
from fluss_client.codec.log_batch import LENGTH_SIZE, record_spans
from fluss_client.errors import CorruptDataError, RowError

LENGTH_END = 4
CRC_FROM = 9
HEADER_SIZE = 28
NO_WRITER_ID = -1
NO_BATCH_SEQUENCE = -1
_FRONT = struct.Struct("<iBI")
_BACK = struct.Struct("<hBqii")
_MAGIC = 0
_VARINT_STEPS = (1 << 7, 1 << 14, 1 << 21, 1 << 28)
Bools = npt.NDArray[np.bool_]
SCHEMA_ID_SIZE = 2
_VALUES_HEADER = struct.Struct("<iBi")
SchemaIds = npt.NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class KvBatch:
    """A decoded KV batch; the row of a delete is empty."""

    schema_id: int
    writer_id: int
    batch_sequence: int
    keys: Blobs
    rows: Blobs
    deletes: Bools


def kv_record_sizes(keys: Blobs, rows: Blobs | None) -> Ints:
    """Return the bytes that each record takes in a batch; the header adds HEADER_SIZE once."""
    key_lengths = keys.lengths
    sizes = LENGTH_SIZE + _varint_sizes(key_lengths) + key_lengths
    return sizes if rows is None else sizes + rows.lengths


def seal_kv_records(keys: Blobs, rows: Blobs | None, deletes: Bools | None = None) -> Sealed:
    """Return the records of a batch with their checksum, for `encode_kv_batch`.

    Without `rows` every record is a delete; where `deletes` is true the row is left out.
    """
    if rows is not None and deletes is not None and deletes.any():
        rows = _without(rows, deletes)
    if rows is not None:
        _check_rows(keys, rows, deletes)
    lengths = kv_record_sizes(keys, rows) - LENGTH_SIZE
    parts: list[Blobs | Bytes] = [_lengths(lengths), encode_varints(keys.lengths), keys]
    if rows is not None:
        parts.append(rows)
    return seal([pa.py_buffer(join(parts).data)])


def encode_kv_batch(
    keys: Blobs | Sealed,
    rows: Blobs | None = None,
    deletes: Bools | None = None,
    *,
    record_count: int | None = None,
    schema_id: int,
    writer_id: int = NO_WRITER_ID,
    batch_sequence: int = NO_BATCH_SEQUENCE,
) -> list[BytesLike]:
    """Return a batch as parts to send one after the other.

    It takes keys, rows and deletes, or the result of `seal_kv_records` with its record count: then
    a new writer id or sequence costs microseconds.
    """
    if isinstance(keys, Sealed):
        sealed = keys
        if record_count is None:
            raise RowError("sealed records need their record_count")
    else:
        sealed = seal_kv_records(keys, rows, deletes)
        record_count = len(keys)
    back = _BACK.pack(schema_id, 0, writer_id, batch_sequence, record_count)
    length = HEADER_SIZE - LENGTH_END + sealed.size
    return [_FRONT.pack(length, _MAGIC, sealed.after(back)) + back, *sealed.parts]


def decode_kv_batch(data: BytesLike) -> KvBatch:
    """Return the decoded batch.

    Raises:
        CorruptDataError: The checksum is wrong, or the batch is damaged otherwise.
    """
    view = memoryview(data)
    if view.nbytes < HEADER_SIZE:
        raise CorruptDataError("a KV batch is shorter than its header")
    length, magic, crc = _FRONT.unpack_from(view)
    if length != view.nbytes - LENGTH_END or magic != _MAGIC:
        raise CorruptDataError(f"a KV batch has magic {magic} and claims {length} bytes")
    if crc32c(view[CRC_FROM:]) != crc:
        raise CorruptDataError("a KV batch fails its checksum")
    schema_id, _, writer_id, sequence, count = _BACK.unpack_from(view, CRC_FROM)
    records = view[HEADER_SIZE:]
    starts, lengths = record_spans(records, count, 1)
    plain = with_slack(np.frombuffer(records, np.uint8))
    key_lengths, varint_sizes = decode_varints(plain, starts, MAX_INT32_BYTES)
    key_starts = starts + varint_sizes
    row_starts = key_starts + key_lengths.view(np.int64)
    row_lengths = starts + lengths - row_starts
    if (row_lengths < 0).any():
        raise CorruptDataError("a key is longer than its record")
    return KvBatch(
        schema_id,
        writer_id,
        sequence,
        Blobs.from_spans(plain, key_starts, row_starts - key_starts),
        Blobs.from_spans(plain, row_starts, row_lengths),
        row_lengths == 0,
    )


def _without(rows: Blobs, deletes: Bools) -> Blobs:
    lengths = np.where(deletes, 0, rows.lengths)
    return Blobs(rows.data[np.repeat(~deletes, rows.lengths)], offsets_of(lengths))


def _check_rows(keys: Blobs, rows: Blobs, deletes: Bools | None) -> None:
    if len(keys) != len(rows):
        raise RowError(f"{len(keys)} keys and {len(rows)} rows")
    empty = rows.lengths == 0
    if empty.any() and (deletes is None or (empty & ~deletes).any()):
        raise RowError("a row without bytes would delete its key; say so with deletes")


def _varint_sizes(values: Ints) -> Ints:
    sizes = np.ones(values.size, np.int64)
    for step in _VARINT_STEPS:
        sizes += values >= step
    return sizes


def _lengths(lengths: Ints) -> Bytes:
    """Return each record's length as the rows of a matrix."""
    return lengths.astype("<i4").view(np.uint8).reshape(-1, LENGTH_SIZE)


def decode_values(values: Blobs) -> tuple[SchemaIds, Blobs]:
    """Return schema ids and rows of looked-up values, none of which may be empty."""
    return _split(values.data, values.offsets[:-1], values.lengths)


def decode_value(value: BytesLike) -> tuple[int, memoryview]:
    """Return the schema id and the row in the `value` of a look-up."""
    view = memoryview(value)
    if view.nbytes < SCHEMA_ID_SIZE:
        raise CorruptDataError(f"a value of {view.nbytes} bytes has no schema id")
    return struct.unpack_from("<h", view)[0], view[SCHEMA_ID_SIZE:]


def decode_value_batch(data: BytesLike) -> tuple[SchemaIds, Blobs]:
    """Return schema ids and rows of a scan's answer; an empty answer has none."""
    return _split(*_value_spans(data))


def decode_value_blobs(data: BytesLike) -> Blobs:
    """Return the values of a scan's answer as look-ups return them, for `decode_values`."""
    return Blobs.from_spans(*_value_spans(data))


def _value_spans(data: BytesLike) -> tuple[Bytes, Ints, Ints]:
    """Return the bytes of a value batch, and start and length of each value."""
    view = memoryview(data)
    if not view.nbytes:
        return np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64)
    if view.nbytes < _VALUES_HEADER.size:
        raise CorruptDataError("a value batch is shorter than its header")
    length, magic, count = _VALUES_HEADER.unpack_from(view)
    if length != view.nbytes - LENGTH_END or magic != _MAGIC:
        raise CorruptDataError(f"a value batch has magic {magic} and claims {length} bytes")
    records = view[_VALUES_HEADER.size :]
    starts, lengths = record_spans(records, count, SCHEMA_ID_SIZE)
    plain = np.frombuffer(records, np.uint8) if count else np.empty(0, np.uint8)
    return plain, starts, lengths


def _split(data: Bytes, starts: Ints, lengths: Ints) -> tuple[SchemaIds, Blobs]:
    if lengths.size and int(lengths.min()) < SCHEMA_ID_SIZE:
        raise CorruptDataError("a value has no schema id")
    ids = data[starts].astype(np.uint16) | data[starts + 1].astype(np.uint16) << 8
    rows = Blobs.from_spans(data, starts + SCHEMA_ID_SIZE, lengths - SCHEMA_ID_SIZE)
    return ids.view(np.int16), rows
