"""The two ways of writing: what becomes of rows on a worker thread, and how a request goes out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_client.backend.contract import Backend, BucketAck, BucketWrite, Payload
from fluss_client.codec.blobs import Blobs, offsets_of
from fluss_client.codec.keys import encode_keys, key_encoding_for
from fluss_client.codec.rows import RowFormat, encode_rows
from fluss_client.config import Config
from fluss_client.model.table import KV_FORMAT, TableInfo

ACKS = {"all": -1, "1": 1, "0": 0}


class Channel(Protocol):
    """How the sender encodes and sends."""

    ordered: bool
    """Whether one bucket's batches must never overtake each other."""

    def encode(self, rows: pa.RecordBatch, deletes: npt.NDArray[np.bool_] | None) -> Payload:
        """CPU work for a worker thread."""

    async def send(self, node: int, writes: Sequence[BucketWrite]) -> list[BucketAck]:
        """One request to one node."""


class AppendChannel:
    """Rows for log tables."""

    ordered = False

    def __init__(self, backend: Backend, table: TableInfo, config: Config) -> None:
        self._backend = backend
        self._table = table
        self._acks = ACKS[config.writer_acks]
        self._timeout_ms = config.request_timeout_ms

    def encode(self, rows: pa.RecordBatch, deletes: npt.NDArray[np.bool_] | None) -> Payload:
        return self._backend.encode_append(self._table, rows)

    async def send(self, node: int, writes: Sequence[BucketWrite]) -> list[BucketAck]:
        return await self._backend.append(self._table, node, writes, self._acks, self._timeout_ms)


class UpsertChannel:
    """Rows and deletes for primary-key tables; `target_columns` for a partial update."""

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
        # Columns that the writer does not give travel as null, whatever the schema says.
        self._types = [
            c.type if at in given else c.type.with_nullable(True)
            for at, c in enumerate(schema.columns)
        ]

    def encode(self, rows: pa.RecordBatch, deletes: npt.NDArray[np.bool_] | None) -> Payload:
        columns = [rows.column(name) for name in self._keys]
        keys = encode_keys(columns, self._key_types, self._keys, self._key_encoding)
        if deletes is None:
            values: Blobs | None = encode_rows(rows, self._types, self._format)
        elif deletes.all():
            values = None
        else:
            kept = rows.filter(pa.array(~deletes))
            values = _spread(encode_rows(kept, self._types, self._format), ~deletes)
        return self._backend.encode_upsert(self._table, keys, values, deletes)

    async def send(self, node: int, writes: Sequence[BucketWrite]) -> list[BucketAck]:
        return await self._backend.upsert(
            self._table, node, writes, self._target_columns, self._acks, self._timeout_ms
        )


def _spread(blobs: Blobs, kept: npt.NDArray[np.bool_]) -> Blobs:
    """The strings at the places that are kept, empty ones at the others."""
    lengths = np.zeros(kept.size, np.int64)
    lengths[kept] = blobs.lengths
    return Blobs(blobs.data, offsets_of(lengths))
