"""The write operations of the embedded backend."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_client.backend.contract import BucketAck, BucketWrite
from fluss_client.backend.embedded.keys import payload, upserts
from fluss_client.backend.embedded.log import appends
from fluss_client.backend.embedded.log.retention import EXPIRED_PER_WRITE_MAX, expire_batches
from fluss_client.backend.embedded.store.catalog import (
    check_exists,
    find_bucket,
    now_ms,
    take_number,
)
from fluss_client.backend.embedded.store.engine import NODE_ID, Engine
from fluss_client.codec.binary.blobs import Blobs
from fluss_client.errors import InvalidRequiredAcksError
from fluss_client.model.table import TableBucket, TableInfo, TablePath

EXPIRY_INTERVAL_S = 1.0
_ACKS = (-1, 0, 1)


class WriteOperations(Engine):
    """Encodes and stores appends and upserts."""

    async def init_writer(self, paths: Sequence[TablePath]) -> int:
        return await self._write(lambda c: take_number(c, "next_writer_id"))

    def encode_append(self, table: TableInfo, batch: pa.RecordBatch) -> appends.AppendPayload:
        return appends.encode_append(table, batch)

    def encode_upsert(
        self,
        table: TableInfo,
        keys: Blobs,
        rows: Blobs | None,
        deletes: npt.NDArray[np.bool_] | None,
        arrow: Sequence[pa.RecordBatch] = (),
    ) -> payload.UpsertPayload:
        return payload.encode_upsert(table, keys, rows, deletes, arrow)

    async def locate(self, table: TableInfo, bucket: TableBucket) -> int:
        """Return the one node; raise errors 7, 36 and 21 if the bucket does not exist any more."""
        if bucket not in self.known_buckets:

            def ask(connection: sqlite3.Connection) -> None:
                check_exists(connection, table, bucket.partition_id)
                find_bucket(connection, bucket)

            await self._read(ask)
            self.known_buckets.add(bucket)
        return NODE_ID

    async def forget_location(self, table: TableInfo, bucket: TableBucket) -> None:
        self.known_buckets.discard(bucket)

    async def append(
        self,
        table: TableInfo,
        node: int,
        writes: Sequence[BucketWrite],
        acks: int,
        timeout_ms: int,
    ) -> list[BucketAck]:
        _check_acks(acks)

        def run(connection: sqlite3.Connection) -> list[BucketAck]:
            answers = appends.append(connection, writes)
            self._expire(connection, answers)
            return answers

        return await self._write(run, _weight(writes))

    async def upsert(
        self,
        table: TableInfo,
        node: int,
        writes: Sequence[BucketWrite],
        target_columns: Sequence[int] | None,
        acks: int,
        timeout_ms: int,
    ) -> list[BucketAck]:
        _check_acks(acks)
        # An empty list means all columns, as in the protocol.
        targets = target_columns or None

        def run(connection: sqlite3.Connection) -> list[BucketAck]:
            answers = upserts.upsert(connection, self.catalog, table.table_id, writes, targets)
            self._expire(connection, answers)
            return answers

        return await self._write(run, _weight(writes))

    def _expire(self, connection: sqlite3.Connection, answers: Sequence[BucketAck]) -> None:
        """Delete expired batches of the written buckets, once per `EXPIRY_INTERVAL_S` at most."""
        seen = time.monotonic()
        for answer in answers:
            if answer.error is not None:
                continue
            place = answer.bucket
            if seen - self.expiry_seen.get(place, -EXPIRY_INTERVAL_S) < EXPIRY_INTERVAL_S:
                continue
            self.expiry_seen[place] = seen
            stored = self.catalog.by_id(connection, place.table_id)
            bucket = find_bucket(connection, place)
            expire_batches(connection, stored, bucket, now_ms(), EXPIRED_PER_WRITE_MAX)


def _check_acks(acks: int) -> None:
    if acks not in _ACKS:
        raise InvalidRequiredAcksError(f"acks is -1, 0 or 1, not {acks}")


def _weight(writes: Sequence[BucketWrite]) -> int:
    return sum(write.payload.nbytes for write in writes)
