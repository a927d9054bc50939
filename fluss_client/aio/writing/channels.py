"""The last step of a write: how the rows of a batch are encoded, and which request carries them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_client.aio.writing.accumulator import (
    Deletes,
    Prepared,
    RecordSlice,
    combined,
    joined_deletes,
)
from fluss_client.backend.contract import Backend, BucketAck, BucketWrite, Payload, WriteRoute
from fluss_client.codec.binary.blobs import Blobs, offsets_of
from fluss_client.codec.keys import encode_keys, key_encoding_for
from fluss_client.codec.rows import RowFormat, encode_rows
from fluss_client.config import Config
from fluss_client.model.table import KV_FORMAT, TableInfo

ACKS = {"all": -1, "1": 1, "0": 0}


class Channel(Protocol):
    """Encodes the batches of one kind of table and makes the requests."""

    ordered: bool
    """Whether one bucket's batches must never overtake each other."""

    def prepare(self, rows: pa.RecordBatch, deletes: Deletes) -> Prepared | None:
        """Encode rows that came one by one on the caller's thread, if the channel wants that.

        Encoding that runs Python code is slow on a worker thread while the caller loops over rows:
        both need the interpreter lock. So the caller's thread does it.
        """

    def encode(self, slices: Sequence[RecordSlice]) -> Payload:
        """Encode the rows of a batch, prepared or not. This is CPU work for a worker thread."""

    async def send(self, route: WriteRoute, writes: Sequence[BucketWrite]) -> list[BucketAck]:
        """Make one request to one server."""


class AppendChannel:
    """Appends rows to a log table."""

    ordered = False

    def __init__(self, backend: Backend, table: TableInfo, config: Config) -> None:
        self._backend = backend
        self._table = table
        self._acks = ACKS[config.writer_acks]
        self._timeout_ms = config.request_timeout_ms

    def prepare(self, rows: pa.RecordBatch, deletes: Deletes) -> Prepared | None:
        return None  # encoding runs in Arrow without the interpreter lock

    def encode(self, slices: Sequence[RecordSlice]) -> Payload:
        rows, _ = combined(slices)
        return self._backend.encode_append(self._table, rows)

    async def send(self, route: WriteRoute, writes: Sequence[BucketWrite]) -> list[BucketAck]:
        return await self._backend.append(self._table, route, writes, self._acks, self._timeout_ms)


class UpsertChannel:
    """Upserts and deletes rows of a primary-key table; `target_columns` for a partial update."""

    ordered = True

    def __init__(
        self,
        backend: Backend,
        table: TableInfo,
        config: Config,
        target_columns: Sequence[int] | None,
    ) -> None:
        self._backend = backend
        self._table = table
        self._target_columns = target_columns
        self._acks = ACKS[config.writer_acks]
        self._timeout_ms = config.request_timeout_ms
        schema = table.schema
        self._keys = table.physical_primary_keys
        self._key_types = [schema.column(name).type for name in self._keys]
        self._key_encoding, _ = key_encoding_for(
            table.properties,
            table.bucket_keys,
            self._keys,
            {c.name: c.type for c in schema.columns},
        )
        self._format = RowFormat(table.properties.get(KV_FORMAT, RowFormat.COMPACTED.value).upper())
        given = range(len(schema.columns)) if target_columns is None else target_columns
        # Columns that the writer does not give are sent as null, even if they are NOT NULL.
        self._types = [
            c.type if at in given else c.type.with_nullable(True)
            for at, c in enumerate(schema.columns)
        ]

    def prepare(self, rows: pa.RecordBatch, deletes: Deletes) -> Prepared:
        columns = [rows.column(name) for name in self._keys]
        keys = encode_keys(columns, self._key_types, self._keys, self._key_encoding)
        if deletes is not None:
            rows = rows.filter(pa.array(~deletes))
        values = encode_rows(rows, self._types, self._format)
        if deletes is not None:
            values = _spread(values, ~deletes)
        return Prepared(keys, values, deletes, (rows,))

    def encode(self, slices: Sequence[RecordSlice]) -> Payload:
        parts = [part.prepared for part in slices if part.prepared is not None]
        if len(parts) < len(slices):
            parts = [self.prepare(*combined(slices))]
        if len(parts) == 1:
            (whole,) = parts
        else:
            whole = Prepared(
                Blobs.concat([part.keys for part in parts]),
                Blobs.concat([part.values for part in parts]),
                joined_deletes([(part.deletes, len(part.keys)) for part in parts]),
                tuple(batch for part in parts for batch in part.arrow),
            )
        only_deletes = whole.deletes is not None and bool(whole.deletes.all())
        values = None if only_deletes else whole.values
        return self._backend.encode_upsert(
            self._table, whole.keys, values, whole.deletes, whole.arrow
        )

    async def send(self, route: WriteRoute, writes: Sequence[BucketWrite]) -> list[BucketAck]:
        return await self._backend.upsert(
            self._table, route, writes, self._target_columns, self._acks, self._timeout_ms
        )


def _spread(blobs: Blobs, kept: npt.NDArray[np.bool_]) -> Blobs:
    """Put the values at the marked places and empty ones at the others."""
    lengths = np.zeros(kept.size, np.int64)
    lengths[kept] = blobs.lengths
    return Blobs(blobs.data, offsets_of(lengths))
