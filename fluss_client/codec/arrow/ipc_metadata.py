"""Reads and writes the metadata of one Arrow IPC record batch message.

The metadata is a flatbuffer. A table starts with the signed distance back to its vtable; the
vtable holds its own size, the table's size and, per field slot, where the field lies in the
table (0: left out). Offsets to other objects count from the place where they are stored.

    Message      slot 0 version i16, 1 header kind u8, 2 header (a table), 3 body length i64
    RecordBatch  slot 0 length i64, 1 nodes, 2 buffers, 3 compression (a table)
    nodes        u32 count, then per array i64 length, i64 null count
    buffers      u32 count, then per buffer i64 offset in the body, i64 length
    compression  slot 0 codec i8 (0 LZ4 frame, 1 ZSTD), 1 method i8 (0: each buffer for itself)

Arrow verifies a flatbuffer before it uses one; this reader serves the checks before that.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fluss_client.errors import CorruptDataError

CONTINUATION = 0xFFFFFFFF
PREFIX = struct.Struct("<Ii")
"""What precedes the metadata: the continuation mark and the metadata's size."""

_HEADER_RECORD_BATCH = 3
_METADATA_V5 = 4
_SLOT_HEADER, _SLOT_BODY_LENGTH = 2, 3
_SLOT_NODES, _SLOT_BUFFERS, _SLOT_COMPRESSION = 1, 2, 3
_COUNT_SIZE = 4


@dataclass(frozen=True, slots=True)
class BatchMetadata:
    """Where a record batch's buffers lie; `nodes` and `buffers` have two columns each."""

    nodes: npt.NDArray[np.int64]
    buffers: npt.NDArray[np.int64]
    compressed: bool
    body_start: int
    """Where the body starts in the message."""
    body_length: int
    """How long the body is said to be."""
    buffers_at: int
    """Where the pairs of `buffers` start in the message."""


def read_metadata(message: memoryview) -> BatchMetadata:
    """Return the metadata of an encapsulated record batch message.

    Raises:
        CorruptDataError: The bytes are no such message.
    """
    try:
        mark, size = PREFIX.unpack_from(message)
        if mark != CONTINUATION or size < 0 or PREFIX.size + size > len(message):
            raise CorruptDataError("not an Arrow IPC message")
        data = message[PREFIX.size : PREFIX.size + size]
        table = _follow(data, 0)
        kind = _slot(data, table, 1)
        if kind is None or data[kind] != _HEADER_RECORD_BATCH:
            raise CorruptDataError("the Arrow IPC message is not a record batch")
        batch = _table(data, table, _SLOT_HEADER)
        buffers_at = PREFIX.size + _table(data, batch, _SLOT_BUFFERS) + _COUNT_SIZE
        return BatchMetadata(
            _pairs(data, batch, _SLOT_NODES),
            _pairs(data, batch, _SLOT_BUFFERS),
            _slot(data, batch, _SLOT_COMPRESSION) is not None,
            PREFIX.size + size,
            _body_length(data, table),
            buffers_at,
        )
    except (struct.error, IndexError, ValueError) as error:
        raise CorruptDataError(f"the Arrow IPC metadata is damaged: {error}") from error


def _follow(data: memoryview, at: int) -> int:
    offset: int = struct.unpack_from("<I", data, at)[0]
    return at + offset


def _slot(data: memoryview, table: int, slot: int) -> int | None:
    """Return where a table's field lies, or None when it was left out."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    if vtable < 0:
        raise CorruptDataError("the Arrow IPC metadata points outside itself")
    place = 4 + 2 * slot
    if place + 2 > struct.unpack_from("<H", data, vtable)[0]:
        return None
    offset: int = struct.unpack_from("<H", data, vtable + place)[0]
    return table + offset if offset else None


def _table(data: memoryview, table: int, slot: int) -> int:
    at = _slot(data, table, slot)
    if at is None:
        raise CorruptDataError("the Arrow IPC metadata lacks a part")
    return _follow(data, at)


def _body_length(data: memoryview, table: int) -> int:
    at = _slot(data, table, _SLOT_BODY_LENGTH)
    length: int = 0 if at is None else struct.unpack_from("<q", data, at)[0]
    return length


def _pairs(data: memoryview, table: int, slot: int) -> npt.NDArray[np.int64]:
    at = _table(data, table, slot)
    count = struct.unpack_from("<I", data, at)[0]
    return np.frombuffer(data, "<i8", 2 * count, at + _COUNT_SIZE).reshape(count, 2)


# Everything in front of the vectors has a fixed place: root offset 0, Message vtable 4, Message
# 16, RecordBatch vtable 36, RecordBatch 48, compression vtable 72, compression 76, nodes 84.
# All fields of `compression` have their default values (LZ4 frame, by buffer), so it is empty.
_FRONT = struct.Struct("<I 6H iIqhBx 6H iIqII 2H i 4x I")
_NODES_AT = 84


def lz4_metadata(
    row_count: int,
    nodes: npt.NDArray[np.int64],
    buffers: npt.NDArray[np.int64],
    body_length: int,
) -> bytes:
    """Return prefix and metadata of a record batch message whose buffers are LZ4 frames."""
    buffers_at = _NODES_AT + 4 + nodes.nbytes + 4
    front = _FRONT.pack(
        *(16,),
        *(12, 20, 16, 18, 4, 8),
        *(12, 48 - 20, body_length, _METADATA_V5, _HEADER_RECORD_BATCH),
        *(12, 24, 8, 4, 16, 20),
        *(12, _NODES_AT - 52, row_count, buffers_at - 64, 76 - 68),
        *(4, 4),
        4,
        len(nodes),
    )
    # The counts sit 4 bytes before an 8-byte boundary, so that the pairs are aligned.
    middle = struct.pack("<4xI", len(buffers))
    size = len(front) + nodes.nbytes + len(middle) + buffers.nbytes
    prefix = PREFIX.pack(CONTINUATION, size)
    return b"".join((prefix, front, nodes.tobytes(), middle, buffers.tobytes()))
