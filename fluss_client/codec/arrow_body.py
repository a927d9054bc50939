"""The body of an ARROW log batch: one encapsulated Arrow IPC record batch message.

    FFFFFFFF, i32 metadata size, metadata (a flatbuffer), body (buffers, each 8-byte aligned)

No schema message comes before it and no end mark after it: the reader knows the schema by the
batch's schema id. The wire schema has no zones and no large, view or dictionary types, because
the server counts buffers per field. A compressed buffer is the i64 length of the plain bytes
(-1: stored plain) and one frame. Java writes an empty buffer as the length 0 without a frame;
Arrow's LZ4 reader refuses that, so such a buffer is read as one of no bytes. The codec must be the
table's own, for the server labels projected batches with that one. There is no checksum here; the
log batch around it has one.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from fluss_client.codec.columns import to_wire as to_wire
from fluss_client.codec.crc32c import BytesLike
from fluss_client.codec.hollow import fill_hollow
from fluss_client.codec.ipc_metadata import PREFIX, BatchMetadata, read_metadata
from fluss_client.codec.lz4_body import encode_lz4
from fluss_client.errors import ConfigError, CorruptDataError

COMPRESSION_TYPE = "table.log.arrow.compression.type"
COMPRESSION_ZSTD_LEVEL = "table.log.arrow.compression.zstd.level"
DECODED_BYTES_MAX = 1 << 30
"""The most that one body may claim to hold once its buffers are decompressed."""

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
    """The compression that a table's properties ask for; ZSTD when they say nothing.

    The level is the writer's own choice where the table names none. Fluss's writers take 3; on
    columns of numbers and short text level 1 gives the same size in two thirds of the time.
    """
    codec = properties.get(COMPRESSION_TYPE, "ZSTD").strip().upper()
    level = properties.get(COMPRESSION_ZSTD_LEVEL, str(_ZSTD_LEVEL_UNSAID)).strip()
    if not level.isdecimal():
        raise ConfigError(f"{COMPRESSION_ZSTD_LEVEL} is a number from 1 to 22, not '{level}'")
    return Compression(codec, int(level))


def encode_body(batch: pa.RecordBatch, compression: Compression) -> BytesLike:
    """A batch of wire types (see `to_wire`) as one IPC message.

    A slice of a larger batch writes its own rows only. The work is done in C++ without the GIL.
    """
    if compression.codec == "NONE":
        return batch.serialize()
    if compression.codec == "LZ4_FRAME":
        return encode_lz4(batch)
    # Callers run on worker threads of their own, so one thread per batch is the fair share.
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
    """The batch in an IPC message; CorruptDataError when the bytes do not hold one.

    Buffers that are stored plain stay views of `body` when it is aligned, else `body` is copied.
    What comes back has passed Arrow's full validation (offsets, text, null counts), so that
    later reads of it cannot leave its memory.
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
    """The same for several messages, whose buffers are decompressed in one go.

    So the GIL is taken back once, and not after each of many small batches.
    """
    messages = [memoryview(body) for body in bodies]
    checked = [_checked(message) for message in messages] if len(messages) > 1 else []
    if checked and all(message.fits_stream for message in checked):
        try:
            batches = _decompressed(checked, wire_schema)
            if len(batches) == len(messages):
                return [_validated(batch) for batch in batches]
        except _UNREADABLE:
            # One of them is damaged, and says so when it is read by itself.
            pass
    return [decode_body(message, wire_schema) for message in messages]


def _viewed(message: memoryview, wire_schema: pa.Schema) -> pa.RecordBatch:
    buffer = pa.py_buffer(message)
    if buffer.address % _ALIGNMENT:
        buffer = pa.py_buffer(bytes(message))
    return pa.ipc.read_record_batch(buffer, wire_schema)


def _decompressed(messages: Sequence[_Message], wire_schema: pa.Schema) -> list[pa.RecordBatch]:
    # Of Arrow's readers only those of whole streams can be kept from handing every buffer to
    # threads of their own. Callers run on worker threads; waiting for others costs more than a
    # copy of the encoded bytes.
    parts = (part for message in messages for part in message.parts)
    stream = b"".join((wire_schema.serialize(), *parts))
    reader = pa.ipc.open_stream(stream, options=_ON_THIS_THREAD)
    if len(messages) == 1:
        return [reader.read_next_batch()]
    return list(reader.read_all().to_batches())


def _validated(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch after Arrow's full validation, with whole arrays where Java leaves hollow ones.

    Arrow looks at text value by value, which takes longer than all the rest. Values of bytes
    below 128 are valid text wherever they are cut, so that their offsets suffice.
    """
    for column in batch.columns:
        if pt.is_string(column.type):
            text = column.buffers()[2]
            if text is None or not text.size or np.frombuffer(text, np.int8).min() >= 0:
                column = column.view(pa.binary())
        column.validate(full=True)
    return fill_hollow(batch)


@dataclass(frozen=True, slots=True)
class _Message:
    """A message that was checked."""

    whole: memoryview
    compressed: bool
    parts: Sequence[BytesLike]
    """What Arrow shall read in its place."""
    fits_stream: bool
    """Whether it is compressed and ends where it says, so that another can follow it."""


def _checked(message: memoryview) -> _Message:
    """Bounds what Arrow is about to allocate: buffers lie in the body and claim sane sizes."""
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
    """The message with these buffers said to have no bytes; its body is not copied."""
    head = bytearray(message[: metadata.body_start])
    buffers = np.frombuffer(head, "<i8", metadata.buffers.size, metadata.buffers_at)
    buffers.reshape(-1, 2)[empty, 1] = 0
    return [head, message[metadata.body_start :]]
