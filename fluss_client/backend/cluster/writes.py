"""Appends and upserts: encodes batches and sends them to the leaders of their buckets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_client.backend.cluster.admin import AdminCalls
from fluss_client.backend.cluster.calls import path_pb
from fluss_client.backend.contract import BucketAck, BucketWrite, WriteRoute
from fluss_client.codec.arrow_body import compression_of
from fluss_client.codec.arrow_columns import as_wire
from fluss_client.codec.binary.blobs import Blobs
from fluss_client.codec.binary.crc32c import Sealed, seal
from fluss_client.codec.kv_batch import HEADER_SIZE, encode_kv_batch, seal_kv_records
from fluss_client.codec.log_batch import encode_log_batch, encode_log_body
from fluss_client.errors import CorruptDataError, UnsupportedError
from fluss_client.model.table import LOG_FORMAT, TableBucket, TableInfo, TablePath
from fluss_client.net.connection import Connection
from fluss_client.wire import apis
from fluss_client.wire import fluss_pb2 as pb
from fluss_client.wire.hot import BucketRecords, encode_produce_log, encode_put_kv
from fluss_client.wire.messages import Buffer, parse, part_error

# The server answers within the timeout of the request; the client waits this much longer.
ANSWER_GRACE_MS = 5_000
LOG_HEADER_BYTES = 48


@dataclass(frozen=True, slots=True)
class AppendPayload:
    """A log batch without its header, which depends on writer id and sequence number."""

    body: Sealed
    schema_id: int
    row_count: int

    @property
    def nbytes(self) -> int:
        return self.body.size + LOG_HEADER_BYTES

    def stamped(self, writer_id: int, sequence: int) -> list[memoryview]:
        """Return the batch with the header of this writer id and sequence number."""
        parts = encode_log_batch(
            self.body,
            schema_id=self.schema_id,
            record_count=self.row_count,
            writer_id=writer_id,
            batch_sequence=sequence,
        )
        return [memoryview(part) for part in parts]


@dataclass(frozen=True, slots=True)
class UpsertPayload:
    """A batch of keys and rows without its header."""

    body: Sealed
    schema_id: int
    row_count: int

    @property
    def nbytes(self) -> int:
        return self.body.size + HEADER_SIZE

    def stamped(self, writer_id: int, sequence: int) -> list[memoryview]:
        """Return the batch with the header of this writer id and sequence number."""
        parts = encode_kv_batch(
            self.body,
            record_count=self.row_count,
            schema_id=self.schema_id,
            writer_id=writer_id,
            batch_sequence=sequence,
        )
        return [memoryview(part) for part in parts]


class WriteCalls(AdminCalls):
    """Calls that write."""

    async def init_writer(self, paths: Sequence[TablePath]) -> int:
        request = pb.InitWriterRequest(table_path=[path_pb(path) for path in paths])
        return (await self.on_any_tablet(apis.INIT_WRITER, request)).writer_id

    def encode_append(self, table: TableInfo, batch: pa.RecordBatch) -> AppendPayload:
        if table.has_primary_key():
            # Servers accept such a batch and corrupt the changelog with it.
            raise UnsupportedError(f"{table.table_path} has a primary key: upsert, do not append")
        wire = as_wire(batch, table.schema.wire)  # the writer has checked the values
        log_format = table.properties.get(LOG_FORMAT, "ARROW")
        compression = compression_of(table.properties)
        body = seal(encode_log_body(wire, table.schema, log_format, compression))
        return AppendPayload(body, table.schema_id, batch.num_rows)

    def encode_upsert(
        self,
        table: TableInfo,
        keys: Blobs,
        rows: Blobs | None,
        deletes: npt.NDArray[np.bool_] | None,
        arrow: Sequence[pa.RecordBatch] = (),
    ) -> UpsertPayload:
        body = seal_kv_records(keys, rows, deletes)
        return UpsertPayload(body, table.schema_id, len(keys))

    def write_connection(self, node: int) -> int:
        return self.pool.next_for_writes(node)

    async def append(
        self,
        table: TableInfo,
        route: WriteRoute,
        writes: Sequence[BucketWrite],
        acks: int,
        timeout_ms: int,
    ) -> list[BucketAck]:
        def make(connection: Connection) -> list[Buffer]:
            records = _records(writes, counted=connection.takes_bucket_counts)
            return encode_produce_log(table.table_id, records, acks=acks, timeout_ms=timeout_ms)

        limit_ms = timeout_ms + min(ANSWER_GRACE_MS, self.config.request_timeout_ms)
        body = await self.on_node(route.node, apis.PRODUCE_LOG, make, limit_ms, route.connection)
        answer = parse(pb.ProduceLogResponse, body)
        return _acks(table, writes, {_place(p): (p, p.base_offset) for p in answer.buckets_resp})

    async def upsert(
        self,
        table: TableInfo,
        route: WriteRoute,
        writes: Sequence[BucketWrite],
        target_columns: Sequence[int] | None,
        acks: int,
        timeout_ms: int,
    ) -> list[BucketAck]:
        def make(connection: Connection) -> list[Buffer]:
            return encode_put_kv(
                table.table_id,
                _records(writes, counted=connection.takes_bucket_counts),
                acks=acks,
                timeout_ms=timeout_ms,
                target_columns=list(target_columns or ()),
            )

        limit_ms = timeout_ms + min(ANSWER_GRACE_MS, self.config.request_timeout_ms)
        body = await self.on_node(route.node, apis.PUT_KV, make, limit_ms, route.connection)
        answer = parse(pb.PutKvResponse, body)
        ends = {_place(p): (p, p.log_end_offset) for p in answer.buckets_resp}
        return _acks(table, writes, ends)


_Part = pb.PbProduceLogRespForBucket | pb.PbPutKvRespForBucket


def _place(part: _Part) -> tuple[int | None, int]:
    return part.partition_id if part.HasField("partition_id") else None, part.bucket_id


def _records(writes: Sequence[BucketWrite], *, counted: bool) -> list[BucketRecords]:
    records = []
    for write in writes:
        payload = write.payload
        assert isinstance(payload, AppendPayload | UpsertPayload)
        parts = payload.stamped(write.writer_id, write.sequence)
        bucket = write.bucket
        count = write.bucket_count if counted else None
        records.append(BucketRecords(bucket.bucket_id, parts, bucket.partition_id, count))
    return records


def _acks(
    table: TableInfo,
    writes: Sequence[BucketWrite],
    answers: Mapping[tuple[int | None, int], tuple[_Part, int]],
) -> list[BucketAck]:
    acks = []
    for write in writes:
        bucket: TableBucket = write.bucket
        found = answers.get((bucket.partition_id, bucket.bucket_id))
        if found is None:
            missing = CorruptDataError(f"{table.table_path}: no answer of the server for {bucket}")
            acks.append(BucketAck(bucket, error=missing))
            continue
        part, offset = found
        pressure = part.pressure if isinstance(part, pb.PbPutKvRespForBucket) else 0.0
        error = part_error(part.error_code, part.error_message)
        acks.append(BucketAck(bucket, offset, error, pressure))
    return acks
