"""Values of the key state, as LOOKUP, PREFIX_LOOKUP, LIMIT_SCAN and SCAN_KV answer them.

All integers are little-endian:

    value         i16 schema_id, row in the table's kv format and in that schema
    value batch   i32 length of the rest, u8 magic 0, i32 record count, records
    record        i32 length, value

There are no keys (a row has its key columns) and no checksum.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from fluss_client.codec.batches.records import record_spans
from fluss_client.codec.binary.blobs import Blobs, Bytes, Ints
from fluss_client.codec.binary.crc32c import BytesLike
from fluss_client.errors import CorruptDataError

SCHEMA_ID_SIZE = 2
_HEADER = struct.Struct("<iBi")
_LENGTH_END = 4
_MAGIC = 0

SchemaIds = npt.NDArray[np.int16]


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
    view = memoryview(data)
    if not view.nbytes:
        return _split(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64))
    if view.nbytes < _HEADER.size:
        raise CorruptDataError("a value batch is shorter than its header")
    length, magic, count = _HEADER.unpack_from(view)
    if length != view.nbytes - _LENGTH_END or magic != _MAGIC:
        raise CorruptDataError(f"a value batch has magic {magic} and claims {length} bytes")
    records = view[_HEADER.size :]
    starts, lengths = record_spans(records, count, SCHEMA_ID_SIZE)
    plain = np.frombuffer(records, np.uint8) if count else np.empty(0, np.uint8)
    return _split(plain, starts, lengths)


def _split(data: Bytes, starts: Ints, lengths: Ints) -> tuple[SchemaIds, Blobs]:
    if lengths.size and int(lengths.min()) < SCHEMA_ID_SIZE:
        raise CorruptDataError("a value has no schema id")
    ids = data[starts].astype(np.uint16) | data[starts + 1].astype(np.uint16) << 8
    rows = Blobs.from_spans(data, starts + SCHEMA_ID_SIZE, lengths - SCHEMA_ID_SIZE)
    return ids.view(np.int16), rows
