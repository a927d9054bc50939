"""Fetches of logs, limit scans of buckets, and row counts.

A fetch returns records of the server, projected by the server where it can, or reads segments from
remote storage. Records stay encoded; the caller decodes them on a worker thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from fluss_client.backend.cluster.admin import AdminCalls
from fluss_client.backend.cluster.predicates import predicate_pb
from fluss_client.backend.cluster.remote_files import RemoteFiles, RemoteLog
from fluss_client.backend.contract import (
    DecodedSlice,
    FetchedBucket,
    FetchPosition,
    FetchRequest,
    LogSlice,
)
from fluss_client.backend.rows import decode_key_rows, distinct_ids, last_rows, shown_schema
from fluss_client.codec.arrow_columns import align_to
from fluss_client.codec.binary.blobs import Blobs
from fluss_client.codec.kv_batch import SchemaIds, decode_value_batch
from fluss_client.codec.log_batch import (
    DecodedBatch,
    LogBatchHeader,
    decode_log_batches,
    iter_log_batches,
)
from fluss_client.config import Config
from fluss_client.errors import (
    AuthorizationError,
    CorruptDataError,
    FlussError,
    InvalidBucketRoutingError,
    InvalidColumnProjectionError,
    InvalidTableError,
    NetworkError,
    ScanLostError,
    ScanTooLargeError,
    TimedOutError,
    UnsupportedByServerError,
    error_for,
)
from fluss_client.model.cluster import OffsetSpec
from fluss_client.model.schema import Schema
from fluss_client.model.table import LOG_FORMAT, TableBucket, TableInfo
from fluss_client.net.connection import Address, Connection
from fluss_client.net.rate import RateLimit
from fluss_client.net.retry import retrying
from fluss_client.wire import apis, hot
from fluss_client.wire import fluss_pb2 as pb
from fluss_client.wire.messages import Buffer, parse

FETCH_GRACE_MS = 10_000
REMOTE_FIRST = 1


DECODED_ON_LOOP_MAX = 1024
"""Rows of look-ups that are decoded on the event loop; for fewer a thread would take longer."""


@dataclass(frozen=True, slots=True)
class _Encoded:
    """One batch, and the number of its rows before the requested offset."""

    header: LogBatchHeader
    skip: int


@dataclass(frozen=True, slots=True, eq=False)
class _Decoder:
    """Decodes the batches of one answer that have the same schema."""

    written: Schema
    table: TableInfo
    kept: tuple[int, ...] | None
    """The columns that the server sent; None if it sent all."""
    columns: tuple[int, ...] | None

    def __call__(self, slices: Sequence[LogSlice]) -> list[DecodedSlice]:
        found: list[_Encoded] = [part.encoded for part in slices]
        if self.kept is None:
            # The checksum covers all columns, so a projected batch cannot be checked.
            for one in found:
                one.header.check_crc()
        log_format = self.table.properties.get(LOG_FORMAT, "ARROW")
        headers = [one.header for one in found]
        decoded = decode_log_batches(headers, self.written, log_format, self.kept)
        return [self._shown(*both) for both in zip(decoded, found, strict=True)]

    def _shown(self, decoded: DecodedBatch, encoded: _Encoded) -> DecodedSlice:
        batch = align_to(decoded.batch, self.written, self.table.schema, self.columns)
        changes = decoded.change_types
        if encoded.skip:
            batch = batch.slice(encoded.skip)
            changes = None if changes is None else changes[encoded.skip :]
        return batch, changes


class ReadCalls(AdminCalls):
    """Calls that read logs and the key state."""

    def __init__(self, bootstrap: list[Address], config: Config) -> None:
        super().__init__(bootstrap, config)
        self.rate = RateLimit(config.scanner_bytes_per_second_max)
        self._files = RemoteFiles(self, self.rate)
        self._remote = RemoteLog(self, self._files, self.rate)
        # Tables with batches that were written before a requested column was added. The server
        # refuses to project them, so all columns are fetched.
        self._no_pushdown: set[tuple[int, tuple[int, ...]]] = set()

    async def close(self) -> None:
        self._files.close()
        await super().close()

    async def fetch(self, node: int, request: FetchRequest) -> list[FetchedBucket]:
        table = request.table
        kept = self._pushed_columns(table, request.columns)
        sent = _sent_predicate(request)
        counts = await self._counts_of(table, (p.bucket.partition_id for p in request.positions))

        def make(connection: Connection) -> list[Buffer]:
            message = _fetch_message(request, kept)
            if connection.takes_bucket_counts:
                (entry,) = message.tables_req
                if sent is not None:
                    entry.filter_predicate.CopyFrom(sent)
                    entry.filter_schema_id = table.schema_id
                if request.remote_first:
                    message.read_preference = REMOTE_FIRST
                for bucket, position in zip(entry.buckets_req, request.positions, strict=True):
                    bucket.routing_bucket_count = counts[position.bucket.partition_id]
            return [message.SerializeToString()]

        await self.rate.ready()
        body = await self.on_node(
            node,
            apis.FETCH_LOG,
            make,
            request.wait_ms + min(FETCH_GRACE_MS, self.config.request_timeout_ms),
        )
        self.rate.add(len(body))
        wanted = {p.bucket: p for p in request.positions}
        refused: list[FetchPosition] = []
        fetched = []
        remote = []
        for answer in hot.decode_fetch_log(body):
            bucket = TableBucket(
                answer.table_id, answer.bucket_id, partition_id=answer.partition_id
            )
            position = wanted.pop(bucket, None)
            if position is None:
                continue
            if kept is not None and isinstance(answer.error, InvalidColumnProjectionError):
                refused.append(position)
                continue
            found = self._fetched(request, kept, position, answer)
            if answer.remote is None:
                fetched.append(await found)
            else:
                remote.append(found)
        fetched += await asyncio.gather(*remote)
        for bucket in wanted:
            error = CorruptDataError(f"{table.table_path}: the server did not answer for {bucket}")
            fetched.append(FetchedBucket(bucket, error=error))
        if refused and kept is not None:
            self._no_pushdown.add((table.table_id, kept))
            fetched += await self.fetch(node, replace(request, positions=refused))
        return fetched

    async def _counts_of(
        self, table: TableInfo, partition_ids: Iterable[int | None]
    ) -> dict[int | None, int]:
        """Return the bucket counts of partitions; they are known as soon as a bucket is located."""
        counts: dict[int | None, int] = {}
        for partition_id in dict.fromkeys(partition_ids):
            known = self.known_bucket_count(table, partition_id)
            if known is None:
                known = await self.bucket_count(table, partition_id)
            counts[partition_id] = known
        return counts

    def _pushed_columns(
        self, table: TableInfo, columns: tuple[int, ...] | None
    ) -> tuple[int, ...] | None:
        if columns is None or table.properties.get(LOG_FORMAT, "ARROW").upper() != "ARROW":
            return None
        return None if (table.table_id, columns) in self._no_pushdown else columns

    async def _fetched(
        self,
        request: FetchRequest,
        kept: tuple[int, ...] | None,
        position: FetchPosition,
        answer: hot.FetchedBucket,
    ) -> FetchedBucket:
        watermark = -1 if answer.high_watermark is None else answer.high_watermark
        if isinstance(answer.error, InvalidBucketRoutingError):
            self.forget_bucket_count(request.table, position.bucket.partition_id)
        if answer.error is not None:
            return FetchedBucket(position.bucket, high_watermark=watermark, error=answer.error)
        try:
            records, projected = answer.records, kept
            if answer.remote is not None:
                records = await self._remote.read(answer.remote, position)
                projected = None
            slices = await self._slices(request, projected, position.offset, records)
        except FlussError as error:
            return FetchedBucket(position.bucket, high_watermark=watermark, error=error)
        following = slices[-1].next_offset if slices else position.offset
        if answer.filtered_end_offset is not None:
            following = max(following, answer.filtered_end_offset)
        return FetchedBucket(position.bucket, slices, watermark, following)

    async def _slices(
        self,
        request: FetchRequest,
        kept: tuple[int, ...] | None,
        offset: int,
        records: memoryview | None,
    ) -> list[LogSlice]:
        if not records:
            return []
        table = request.table
        slices = []
        decoders: dict[int, _Decoder] = {}
        for header in iter_log_batches(records):
            if header.next_offset <= offset:
                continue
            decoder = decoders.get(header.schema_id)
            if decoder is None:
                written = await self.schema_of(table, header.schema_id)
                decoder = _Decoder(written, table, kept, request.columns)
                decoders[header.schema_id] = decoder
            skip = max(0, offset - header.base_offset) if offset >= 0 else 0
            slices.append(
                LogSlice(
                    base_offset=header.base_offset + skip,
                    next_offset=header.next_offset,
                    row_count=max(0, header.record_count - skip),
                    timestamp=header.commit_timestamp,
                    nbytes=len(header.body),
                    decoder=decoder,
                    encoded=_Encoded(header, skip),
                )
            )
        return slices

    async def limit_scan(
        self,
        table: TableInfo,
        bucket: TableBucket,
        limit: int,
        columns: tuple[int, ...] | None,
    ) -> pa.RecordBatch:
        """Read up to `limit` rows of a bucket in one answer, which the server builds in memory.

        If the bucket may hold more than `scanner.limit.rows-max` rows, a larger limit is refused. A
        request is not sent again after the connection broke: an answer that is too large for the
        memory of one server would crash every replica, one after the other.
        """
        if limit > self.config.scanner_limit_rows_max:
            await self._check_size(table, bucket)
        request = pb.LimitScanRequest(
            table_id=table.table_id, bucket_id=bucket.bucket_id, limit=limit
        )
        if bucket.partition_id is not None:
            request.partition_id = bucket.partition_id

        async def ask() -> hot.LimitScanned:
            node = await self.locate(table, bucket)
            count = (await self._counts_of(table, [bucket.partition_id]))[bucket.partition_id]

            def make(connection: Connection) -> list[Buffer]:
                if connection.takes_bucket_counts:
                    request.routing_bucket_count = count
                return [request.SerializeToString()]

            # Opening a connection may be retried. After this line the request may have arrived.
            await self.pool.get(self.metadata.tablet_address(node))
            try:
                body = await self.on_node(node, apis.LIMIT_SCAN, make)
            except (NetworkError, TimedOutError) as error:
                raise ScanLostError(
                    f"{table.table_path}: the server of {bucket} was lost while it collected at "
                    f"most {limit} rows, and is not asked again, because a scan that is too large "
                    f"for one server's memory would stop the next one, too: {error}. See that the "
                    "server is up; then read fewer rows, or the changelog in place of the state"
                ) from error
            answer = hot.decode_limit_scan(body)
            if answer.error is not None:
                raise answer.error
            return answer

        async def forget(error: FlussError) -> None:
            if isinstance(error, InvalidBucketRoutingError):
                self.forget_bucket_count(table, bucket.partition_id)
            if error.stale_metadata:
                await self.forget_location(table, bucket)
                await self.check_exists(table, bucket)

        answer = await retrying(ask, self._deadline(), on_error=forget)
        if table.has_primary_key():
            schema_ids, rows = decode_value_batch(answer.records or b"")
            return await self.decode_rows_of(table, schema_ids, rows, columns)
        everything = FetchRequest(table, (), columns)
        slices = await self._slices(everything, None, -1, answer.records)
        return await asyncio.to_thread(last_rows, slices, limit, shown_schema(table, columns))

    async def download(self, remote: str, target: Path) -> None:
        """Copy a file of the cluster's remote storage to a local path."""
        await self._files.download(remote, target)

    async def _check_size(self, table: TableInfo, bucket: TableBucket) -> None:
        """Raise `ScanTooLargeError` if the bucket may hold too many rows for one answer."""
        rows_max = self.config.scanner_limit_rows_max
        try:
            rows = (await self.get_table_stats(table, [bucket])).get(bucket)
        except (InvalidTableError, UnsupportedByServerError, AuthorizationError):
            rows = None
        counted = rows is not None
        if rows is None:
            # Some tables have no row count. Each row has an offset, so the end offset is a bound.
            ends = await self.list_offsets(
                table, bucket.partition_id, [bucket.bucket_id], OffsetSpec.latest()
            )
            rows = ends[bucket.bucket_id]
        if rows > rows_max:
            raise ScanTooLargeError(
                f"{table.table_path}: {bucket} holds {rows if counted else f'up to {rows}'} rows, "
                f"and a server is asked for {rows_max} in one answer at most, because it builds "
                "the answer in its memory. Read the log or the changelog from the earliest offset "
                "and keep the last row of each key, ask for fewer rows (limit), or spread the "
                "table over more buckets; where the servers have the memory for it, set "
                "scanner.limit.rows-max",
                rows,
                rows_max,
            )

    async def get_table_stats(
        self, table: TableInfo, buckets: Sequence[TableBucket]
    ) -> dict[TableBucket, int]:
        async def ask() -> dict[TableBucket, int]:
            by_node: dict[int, list[TableBucket]] = {}
            for bucket in buckets:
                by_node.setdefault(await self.locate(table, bucket), []).append(bucket)
            calls = (self._stats_on(node, table, part) for node, part in by_node.items())
            counts: dict[TableBucket, int] = {}
            for part in await asyncio.gather(*calls):
                counts.update(part)
            return counts

        async def forget(error: FlussError) -> None:
            if error.stale_metadata:
                for bucket in buckets:
                    self.metadata.forget(bucket)
                    if isinstance(error, InvalidBucketRoutingError):
                        self.forget_bucket_count(table, bucket.partition_id)
                await self.check_exists(table, buckets[0] if buckets else None)

        return await retrying(ask, self._deadline(), on_error=forget)

    async def _stats_on(
        self, node: int, table: TableInfo, buckets: list[TableBucket]
    ) -> dict[TableBucket, int]:
        request = pb.GetTableStatsRequest(table_id=table.table_id)
        for bucket in buckets:
            entry = request.buckets_req.add(bucket_id=bucket.bucket_id)
            if bucket.partition_id is not None:
                entry.partition_id = bucket.partition_id
        placed = await self._counts_of(table, (bucket.partition_id for bucket in buckets))

        def make(connection: Connection) -> list[Buffer]:
            if connection.takes_bucket_counts:
                for entry, bucket in zip(request.buckets_req, buckets, strict=True):
                    entry.routing_bucket_count = placed[bucket.partition_id]
            return [request.SerializeToString()]

        body = await self.on_node(node, apis.GET_TABLE_STATS, make)
        counts = {}
        for part in parse(pb.GetTableStatsResponse, body).buckets_resp:
            if part.error_code:
                raise error_for(part.error_code, part.error_message)
            partition = part.partition_id if part.HasField("partition_id") else None
            place = TableBucket(table.table_id, part.bucket_id, partition_id=partition)
            counts[place] = part.row_count
        return counts

    async def decode_rows_of(
        self,
        table: TableInfo,
        schema_ids: SchemaIds,
        rows: Blobs,
        columns: tuple[int, ...] | None,
        threads: Executor | None = None,
    ) -> pa.RecordBatch:
        """Decode rows of the key state into the table's current schema."""
        schemas = {i: await self.schema_of(table, i) for i in distinct_ids(schema_ids)}
        if threads is None and len(rows) <= DECODED_ON_LOOP_MAX:
            return decode_key_rows(table, schemas, schema_ids, rows, columns)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            threads, decode_key_rows, table, schemas, schema_ids, rows, columns
        )


def _sent_predicate(request: FetchRequest) -> pb.PbPredicate | None:
    """Return what a server can use of the condition of a fetch.

    Servers have statistics of the batches of log tables in Arrow format only.
    """
    table = request.table
    arrow = table.properties.get(LOG_FORMAT, "ARROW").upper() == "ARROW"
    if request.predicate is None or table.has_primary_key() or not arrow:
        return None
    return predicate_pb(request.predicate, table.schema)


def _fetch_message(request: FetchRequest, kept: tuple[int, ...] | None) -> pb.FetchLogRequest:
    message = pb.FetchLogRequest(
        follower_server_id=-1,
        max_bytes=request.bytes_max,
        min_bytes=request.bytes_min,
        max_wait_ms=request.wait_ms,
    )
    table = message.tables_req.add(
        table_id=request.table.table_id, projection_pushdown_enabled=kept is not None
    )
    if kept is not None:
        table.projected_fields.extend(kept)
    for position in request.positions:
        bucket = table.buckets_req.add(
            bucket_id=position.bucket.bucket_id,
            fetch_offset=position.offset,
            max_fetch_bytes=position.bytes_max,
        )
        if position.bucket.partition_id is not None:
            bucket.partition_id = position.bucket.partition_id
    return message
