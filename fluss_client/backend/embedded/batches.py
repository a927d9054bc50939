"""Log batches as they are stored: Arrow IPC messages, each with a checksum.

A small batch is one message. A large one is one message per column, so that reading few columns
reads few bytes. Messages are plain unless the table asks for a
compression: a local disk has no wire to save, and plain buffers are read without a copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fluss_client.backend.contract import DecodedSlice, LogSlice
from fluss_client.backend.embedded.errors import EmbeddedDamageError
from fluss_client.backend.embedded.options import COMPRESSION
from fluss_client.codec.arrow_body import Compression, compression_of, encode_body
from fluss_client.codec.columns import align_to
from fluss_client.codec.crc32c import BytesLike, crc32c
from fluss_client.model.schema import Schema
from fluss_client.model.table import TableInfo

SPLIT_BYTES_MIN = 256 << 10
HEADER_BYTES = 48
"""What a batch is said to take beside its messages; the same as on the wire."""


@dataclass(frozen=True, slots=True)
class Message:
    """One IPC message and its checksum; `position` is the column's, or 0 for all of them."""

    position: int
    crc: int
    body: BytesLike


@dataclass(frozen=True, slots=True)
class Encoded:
    """A batch that is ready to be stored, or that was read; without messages it has no rows."""

    messages: Sequence[Message]
    nbytes: int
    by_column: bool = False


def stored_compression(properties: Mapping[str, str]) -> Compression:
    """The compression that a table asks for by name; none when it asks for nothing."""
    return compression_of(properties) if COMPRESSION in properties else Compression.NONE


def encode_batch(batch: pa.RecordBatch, compression: Compression) -> Encoded:
    """A batch of wire types as messages."""
    if batch.num_columns == 1 or batch.nbytes < SPLIT_BYTES_MIN:
        messages, by_column = [_message(0, batch, compression)], False
    else:
        positions, by_column = range(batch.num_columns), True
        messages = [_message(i, batch.select([i]), compression) for i in positions]
    nbytes = HEADER_BYTES + sum(memoryview(m.body).nbytes for m in messages)
    return Encoded(messages, nbytes, by_column)


EMPTY = Encoded((), HEADER_BYTES)
"""A batch without rows, which still takes an offset."""


def _message(position: int, batch: pa.RecordBatch, compression: Compression) -> Message:
    body = encode_body(batch, compression)
    return Message(position, crc32c(body), body)


def decode_batch(encoded: Encoded, wire: pa.Schema, row_count: int, where: str) -> pa.RecordBatch:
    """The columns that the messages hold, as wire types; damage is an error that says where."""
    if not encoded.messages:
        return pa.RecordBatch.from_pylist([], schema=wire)
    batches = []
    for message in encoded.messages:
        if crc32c(message.body) != message.crc:
            raise EmbeddedDamageError(f"the batch at {where} fails its checksum")
        schema = pa.schema([wire.field(message.position)]) if encoded.by_column else wire
        try:
            batch = pa.ipc.read_record_batch(pa.py_buffer(message.body), schema)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise EmbeddedDamageError(f"the batch at {where} cannot be read: {error}") from error
        if batch.num_rows != row_count:
            raise EmbeddedDamageError(
                f"the batch at {where} holds {batch.num_rows} rows instead of {row_count}"
            )
        batches.append(batch)
    if len(batches) == 1:
        return batches[0]
    columns = [batch.column(0) for batch in batches]
    fields = [batch.schema.field(0) for batch in batches]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


@dataclass(frozen=True, slots=True)
class StoredSlice:
    """A stored batch, how many of its rows lie before the requested offset, and its place."""

    encoded: Encoded
    changes: bytes | None
    row_count: int
    skip: int
    where: str


@dataclass(frozen=True, slots=True, eq=False)
class Decoder:
    """How to show batches that were written with one schema."""

    written: Schema
    table: TableInfo
    columns: tuple[int, ...] | None

    def __call__(self, slices: Sequence[LogSlice]) -> list[DecodedSlice]:
        return [self._one(part.encoded) for part in slices]

    def _one(self, stored: StoredSlice) -> DecodedSlice:
        held = decode_batch(stored.encoded, self.written.wire, stored.row_count, stored.where)
        batch = align_to(held, self.written, self.table.schema, self.columns)
        changes = None if stored.changes is None else np.frombuffer(stored.changes, np.uint8)
        if stored.skip:
            batch = batch.slice(stored.skip)
            changes = None if changes is None else changes[stored.skip :]
        return batch, changes
