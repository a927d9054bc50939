"""The body of an ARROW log batch: one encapsulated Arrow IPC record batch message.

    FFFFFFFF, i32 metadata size, metadata (a flatbuffer), body (buffers, each 8-byte aligned)

There is no schema message before it and no end mark after it: the reader knows the schema by the
batch's schema id. The wire schema has no zones and no large, view or dictionary types, because
the server counts buffers per field. A compressed buffer is the i64 length of the plain bytes
(-1: stored plain) and one frame. Java writes an empty buffer as the length 0 without a frame;
Arrow's LZ4 reader refuses that, so such a buffer is read as one of no bytes. The codec must be the
table's own, because the server labels projected batches with it. The body has no checksum; the log
batch around it has one.

LZ4 frames: Arrow's own LZ4 writer links the blocks of a frame to each other once a buffer exceeds
64 KiB, and Java readers of Fluss reject linked blocks. This module writes independent blocks:

    frame   04224D18, flags 60 (version 1, independent blocks, no checksums, no content size),
            block limit 40 (64 KiB), header checksum 82, blocks, u32 0
    block   u32 size (top bit set: stored plain), bytes

The header has no variable part, so its checksum (the second byte of xxHash-32 of the bytes
60 40) is a constant. It protects the frame's flags only; the log batch's CRC protects the data.

Empty arrays: Arrow demands one offset in an empty list, map or text array, but Java's writer leaves
the buffer out. pyarrow accepts such an array inside a nested column, and later reads the offset
that is not there (`nbytes`). So each one is replaced by a complete empty array as it is read.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from fluss_client.codec.arrow_columns import to_wire as to_wire
from fluss_client.codec.binary.crc32c import BytesLike
from fluss_client.errors import ConfigError, CorruptDataError

# The metadata of a record batch message is a flatbuffer. A table starts with the signed distance
# back to its vtable; the vtable holds its own size, the table's size and, per field slot, where the
# field lies in the table (0: left out). Offsets to other objects count from the place where they
# are stored.
#
#     Message      slot 0 version i16, 1 header kind u8, 2 header (a table), 3 body length i64
#     RecordBatch  slot 0 length i64, 1 nodes, 2 buffers, 3 compression (a table)
#     nodes        u32 count, then per array i64 length, i64 null count
#     buffers      u32 count, then per buffer i64 offset in the body, i64 length
#     compression  slot 0 codec i8 (0 LZ4 frame, 1 ZSTD), 1 method i8 (0: each buffer for itself)
#
# Arrow verifies a flatbuffer before it uses one; `read_metadata` serves the checks before that.
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


def complete_empty_arrays(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with complete empty arrays inside nested columns; data is shared."""
    if not any(pt.is_nested(field.type) for field in batch.schema):
        return batch
    columns = batch.columns
    filled = [_completed(column) for column in columns]
    if all(new is old for new, old in zip(filled, columns, strict=True)):
        return batch
    return pa.RecordBatch.from_arrays(filled, schema=batch.schema)


def _completed(array: pa.Array) -> pa.Array:
    kind = array.type
    if not pt.is_nested(kind):
        return array
    if not len(array):
        return pa.array([], kind)
    if pt.is_struct(kind):
        children = [array.field(at) for at in range(kind.num_fields)]
    elif pt.is_map(kind):
        fields = [kind.key_field, kind.item_field]
        children = [pa.StructArray.from_arrays([array.keys, array.items], fields=fields)]
    else:
        children = [array.values]
    filled = [_completed(child) if len(child) else pa.array([], child.type) for child in children]
    if all(new is old for new, old in zip(filled, children, strict=True)) and not pt.is_map(kind):
        return array
    buffers = array.buffers()[: 1 if pt.is_struct(kind) else 2]
    return pa.Array.from_buffers(kind, len(array), buffers, array.null_count, array.offset, filled)


FRAME_HEADER = bytes.fromhex("04224d18604082")
FRAME_END = bytes(4)
BLOCK_BYTES_MAX = 64 * 1024

_STORED_PLAIN = 1 << 31
_PLAIN_BUFFER = struct.pack("<q", -1)


def encode_lz4(batch: pa.RecordBatch) -> bytes:
    """Return the batch as one IPC message whose buffers are frames of independent blocks."""
    plain = batch.serialize()
    metadata = read_metadata(memoryview(plain))
    codec = pa.Codec("lz4_raw")
    places = np.zeros_like(metadata.buffers)
    parts: list[bytes | pa.Buffer] = []
    position = 0
    for index, (offset, length) in enumerate(metadata.buffers.tolist()):
        size = 0
        if length:
            compressed = _buffer(codec, plain.slice(metadata.body_start + offset, length))
            size = sum(len(part) for part in compressed)
            parts += compressed
        padding = -size % 8
        parts.append(bytes(padding))
        places[index] = position, size
        position += size + padding
    head = lz4_metadata(batch.num_rows, metadata.nodes, places, position)
    return b"".join((head, *parts))


def _buffer(codec: pa.Codec, plain: pa.Buffer) -> list[bytes | pa.Buffer]:
    """Return one buffer: its length and a frame, or the plain bytes if a frame is longer."""
    frame: list[bytes | pa.Buffer] = [struct.pack("<q", plain.size), FRAME_HEADER]
    for start in range(0, plain.size, BLOCK_BYTES_MAX):
        block = plain.slice(start, min(BLOCK_BYTES_MAX, plain.size - start))
        packed = codec.compress(block)
        if packed.size < block.size:
            frame += (struct.pack("<I", packed.size), packed)
        else:
            frame += (struct.pack("<I", block.size | _STORED_PLAIN), block)
    frame.append(FRAME_END)
    if sum(len(part) for part in frame) > plain.size + 8:
        return [_PLAIN_BUFFER, plain]
    return frame


COMPRESSION_TYPE = "table.log.arrow.compression.type"
COMPRESSION_ZSTD_LEVEL = "table.log.arrow.compression.zstd.level"
DECODED_BYTES_MAX = 1 << 30
"""The limit of the bytes that one body may claim to have after decompression."""

_ALIGNMENT = 8
_PLAIN_LENGTH = struct.Struct("<q")
_ON_THIS_THREAD = pa.ipc.IpcReadOptions(use_threads=False)
_UNREADABLE = (pa.ArrowException, OSError, ValueError, MemoryError, IndexError)
_END_MARK_SIZE = 8
_ZSTD_LEVELS = range(1, 23)
_ZSTD_LEVEL_UNSAID = 1


@dataclass(frozen=True, slots=True)
class Compression:
    """How a table's Arrow buffers are compressed: NONE, LZ4_FRAME or ZSTD with a level."""

    codec: str
    level: int = _ZSTD_LEVEL_UNSAID

    NONE: ClassVar[Compression]
    LZ4_FRAME: ClassVar[Compression]
    ZSTD: ClassVar[Compression]

    def __post_init__(self) -> None:
        if self.codec not in ("NONE", "LZ4_FRAME", "ZSTD"):
            raise ConfigError(f"{COMPRESSION_TYPE} is NONE, LZ4_FRAME or ZSTD, not '{self.codec}'")
        if self.level not in _ZSTD_LEVELS:
            raise ConfigError(f"{COMPRESSION_ZSTD_LEVEL} is 1 to 22, not {self.level}")


Compression.NONE = Compression("NONE")
Compression.LZ4_FRAME = Compression("LZ4_FRAME")
Compression.ZSTD = Compression("ZSTD")


def compression_of(properties: Mapping[str, str]) -> Compression:
    """Return the compression that a table's properties ask for; ZSTD by default.

    The writer chooses the level if the table names none. Fluss's writers take 3; on
    columns of numbers and short text level 1 gives the same size in two thirds of the time.
    """
    codec = properties.get(COMPRESSION_TYPE, "ZSTD").strip().upper()
    level = properties.get(COMPRESSION_ZSTD_LEVEL, str(_ZSTD_LEVEL_UNSAID)).strip()
    if not level.isdecimal():
        raise ConfigError(f"{COMPRESSION_ZSTD_LEVEL} is a number from 1 to 22, not '{level}'")
    return Compression(codec, int(level))


def encode_body(batch: pa.RecordBatch, compression: Compression) -> BytesLike:
    """Return a batch of wire types (see `to_wire`) as one IPC message.

    A slice of a larger batch writes its own rows only. The work is done in C++ without the GIL.
    """
    if compression.codec == "NONE":
        return batch.serialize()
    if compression.codec == "LZ4_FRAME":
        return encode_lz4(batch)
    # Callers run on worker threads of their own, so each batch uses one thread only.
    options = pa.ipc.IpcWriteOptions(
        compression=pa.Codec("zstd", compression_level=compression.level), use_threads=False
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    stream = sink.getvalue()
    schema_size = PREFIX.size + PREFIX.unpack_from(stream)[1]
    return stream.slice(schema_size, stream.size - schema_size - _END_MARK_SIZE)


def decode_body(body: BytesLike, wire_schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch in an IPC message.

    Buffers that are stored plain stay views of `body` when it is aligned, else `body` is copied.
    The batch has passed Arrow's full validation (offsets, text, null counts), so that later reads
    of it stay within its memory.

    Raises:
        CorruptDataError: The bytes are no such message.
    """
    message = _checked(memoryview(body))
    try:
        if message.compressed:
            (batch,) = _decompressed([message], wire_schema)
        else:
            batch = _viewed(message.whole, wire_schema)
        return _validated(batch)
    except _UNREADABLE as error:
        raise CorruptDataError(f"the Arrow record batch cannot be read: {error}") from error


def decode_bodies(bodies: Sequence[BytesLike], wire_schema: pa.Schema) -> list[pa.RecordBatch]:
    """Return the batches of several messages, whose buffers are decompressed in one call.

    So the thread takes the GIL back once, and not after each of many small batches.
    """
    messages = [memoryview(body) for body in bodies]
    checked = [_checked(message) for message in messages] if len(messages) > 1 else []
    if checked and all(message.fits_stream for message in checked):
        try:
            batches = _decompressed(checked, wire_schema)
            if len(batches) == len(messages):
                return [_validated(batch) for batch in batches]
        except _UNREADABLE:
            # One of them is damaged: reading them one by one raises the error of that one.
            pass
    return [decode_body(message, wire_schema) for message in messages]


def _viewed(message: memoryview, wire_schema: pa.Schema) -> pa.RecordBatch:
    buffer = pa.py_buffer(message)
    if buffer.address % _ALIGNMENT:
        buffer = pa.py_buffer(bytes(message))
    return pa.ipc.read_record_batch(buffer, wire_schema)


def _decompressed(messages: Sequence[_Message], wire_schema: pa.Schema) -> list[pa.RecordBatch]:
    # Only Arrow's stream reader has a setting to decode without threads of its own. Callers
    # run on worker threads already; waiting for other threads costs more than a copy of the bytes.
    parts = (part for message in messages for part in message.parts)
    stream = b"".join((wire_schema.serialize(), *parts))
    reader = pa.ipc.open_stream(stream, options=_ON_THIS_THREAD)
    if len(messages) == 1:
        return [reader.read_next_batch()]
    return list(reader.read_all().to_batches())


def _validated(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch after Arrow's full validation, with its empty arrays completed.

    Arrow checks text value by value, which takes longer than all the rest. Bytes below 128 are
    valid text wherever they are cut, so for such columns only the offsets are checked.
    """
    for column in batch.columns:
        if pt.is_string(column.type):
            text = column.buffers()[2]
            if text is None or not text.size or np.frombuffer(text, np.int8).min() >= 0:
                column = column.view(pa.binary())
        column.validate(full=True)
    return complete_empty_arrays(batch)


@dataclass(frozen=True, slots=True)
class _Message:
    """A message whose buffers were checked."""

    whole: memoryview
    compressed: bool
    parts: Sequence[BytesLike]
    """The bytes that Arrow reads instead of it."""
    fits_stream: bool
    """Whether it is compressed and ends where it says, so that another can follow it."""


def _checked(message: memoryview) -> _Message:
    """Check, before Arrow allocates memory, that buffers are in the body and claim sane sizes."""
    metadata = read_metadata(message)
    start = metadata.body_start
    room = len(message) - start
    claimed = 0
    empty: list[int] = []
    for index, (offset, length) in enumerate(metadata.buffers.tolist()):
        if offset < 0 or length < 0 or offset + length > room:
            raise CorruptDataError("a buffer of the Arrow record batch lies outside its body")
        if metadata.compressed and length:
            if length < _PLAIN_LENGTH.size:
                raise CorruptDataError(
                    "a compressed buffer of the Arrow record batch has no length"
                )
            plain = _PLAIN_LENGTH.unpack_from(message, start + offset)[0]
            claimed += max(plain, 0)
            if plain == 0 and length == _PLAIN_LENGTH.size:
                empty.append(index)
    if claimed > DECODED_BYTES_MAX:
        raise CorruptDataError(
            f"the Arrow record batch claims {claimed} bytes, more than {DECODED_BYTES_MAX}"
        )
    fits = metadata.compressed and start + metadata.body_length == len(message)
    parts = _without_frames(message, metadata, empty) if empty else [message]
    return _Message(message, metadata.compressed, parts, fits)


def _without_frames(
    message: memoryview, metadata: BatchMetadata, empty: list[int]
) -> Sequence[BytesLike]:
    """Return the message with these buffers said to have no bytes; its body is not copied."""
    head = bytearray(message[: metadata.body_start])
    buffers = np.frombuffer(head, "<i8", metadata.buffers.size, metadata.buffers_at)
    buffers.reshape(-1, 2)[empty, 1] = 0
    return [head, message[metadata.body_start :]]
