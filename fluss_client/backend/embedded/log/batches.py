"""Log batches as they are stored: Arrow IPC messages, each with a checksum.

A small batch is one message. A large one is one message per column, so that a projection reads only
its own columns. Messages are not compressed unless the table sets a compression: there is no
network to save, and uncompressed buffers are read without a copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fluss_client.backend.contract import DecodedSlice, LogSlice
from fluss_client.backend.embedded.store.errors import EmbeddedDamageError
from fluss_client.backend.embedded.store.options import COMPRESSION
from fluss_client.codec.arrow_body import Compression, compression_of, encode_body
from fluss_client.codec.arrow_columns import align_to
from fluss_client.codec.binary.crc32c import BytesLike, crc32c
from fluss_client.model.schema import Schema
from fluss_client.model.table import TableInfo

SPLIT_BYTES_MIN = 256 << 10
HEADER_BYTES = 48
"""The size that is counted for a batch in addition to its messages, as on the wire."""


@dataclass(frozen=True, slots=True)
class Message:
    """One IPC message and its checksum; `position` is the column, or 0 for a whole batch."""

    position: int
    crc: int
    body: BytesLike


@dataclass(frozen=True, slots=True)
class Encoded:
    """A batch in stored form. Without messages it has no rows."""

    messages: Sequence[Message]
    nbytes: int
    by_column: bool = False


def stored_compression(properties: Mapping[str, str]) -> Compression:
    """Return the compression of the table's properties; none if it is not set."""
    return compression_of(properties) if COMPRESSION in properties else Compression.NONE


def encode_batch(batch: pa.RecordBatch, compression: Compression) -> Encoded:
    """Encode a batch of wire types as messages."""
    if batch.num_columns == 1 or batch.nbytes < SPLIT_BYTES_MIN:
        messages, by_column = [_message(0, batch, compression)], False
    else:
        positions, by_column = range(batch.num_columns), True
        messages = [_message(i, batch.select([i]), compression) for i in positions]
    nbytes = HEADER_BYTES + sum(memoryview(m.body).nbytes for m in messages)
    return Encoded(messages, nbytes, by_column)


EMPTY = Encoded((), HEADER_BYTES)
"""A batch without rows; it still takes an offset."""


def _message(position: int, batch: pa.RecordBatch, compression: Compression) -> Message:
    body = encode_body(batch, compression)
    return Message(position, crc32c(body), body)


def decode_batch(encoded: Encoded, wire: pa.Schema, row_count: int, where: str) -> pa.RecordBatch:
    """Decode the columns in the messages; raise EmbeddedDamageError with `where` if damaged."""
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
    """A stored batch, the number of rows before the requested offset, and its place for errors."""

    encoded: Encoded
    changes: bytes | None
    row_count: int
    skip: int
    where: str


@dataclass(frozen=True, slots=True, eq=False)
class Decoder:
    """Decodes batches that were written with one schema into the table's current schema."""

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
