"""Point and prefix look-ups, sent to the leaders of the buckets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

import numpy as np
import pyarrow as pa

from fluss_client.backend.cluster.reads import ReadCalls
from fluss_client.backend.contract import LookupAnswer
from fluss_client.codec.binary.blobs import Blobs
from fluss_client.codec.kv_batch import decode_values
from fluss_client.errors import (
    CorruptDataError,
    FlussError,
    InvalidBucketRoutingError,
    error_for,
)
from fluss_client.model.table import TableBucket, TableInfo
from fluss_client.net.connection import Connection
from fluss_client.wire import apis, hot
from fluss_client.wire import fluss_pb2 as pb
from fluss_client.wire.messages import Buffer, parse


class LookupCalls(ReadCalls):
    """Calls that read the key state by key."""

    async def lookup(
        self,
        table: TableInfo,
        node: int,
        keys: Mapping[TableBucket, Blobs],
        bucket_count: int | None = None,
    ) -> dict[TableBucket, LookupAnswer]:
        def make(connection: Connection) -> list[Buffer]:
            count = bucket_count if connection.takes_bucket_counts else None
            return hot.encode_lookup(table.table_id, _bucket_keys(keys, count))

        body = await self.on_node(node, apis.LOOKUP, make)
        answers = {}
        for part in hot.decode_lookup(body):
            bucket = TableBucket(table.table_id, part.bucket_id, partition_id=part.partition_id)
            found = part.lengths >= 0
            values = _values(part.data, part.offsets[found], part.lengths[found])
            answers[bucket] = LookupAnswer(values, found.astype(np.int64), part.error)
        return _complete(table, keys, answers)

    async def prefix_lookup(
        self,
        table: TableInfo,
        node: int,
        keys: Mapping[TableBucket, Blobs],
        bucket_count: int | None = None,
    ) -> dict[TableBucket, LookupAnswer]:
        def make(connection: Connection) -> list[Buffer]:
            count = bucket_count if connection.takes_bucket_counts else None
            return hot.encode_prefix_lookup(table.table_id, _bucket_keys(keys, count))

        body = await self.on_node(node, apis.PREFIX_LOOKUP, make)
        answers = {}
        for part in hot.decode_prefix_lookup(body):
            bucket = TableBucket(table.table_id, part.bucket_id, partition_id=part.partition_id)
            values = _values(part.data, part.offsets, part.lengths)
            answers[bucket] = LookupAnswer(values, np.diff(part.list_offsets), part.error)
        return _complete(table, keys, answers)

    async def lookup_few(
        self,
        table: TableInfo,
        node: int,
        keys: Sequence[tuple[TableBucket, bytes]],
        prefix: bool,
        bucket_counts: Sequence[int] | None = None,
    ) -> list[list[bytes] | FlussError]:
        """Look up a few keys with generated messages: less work per call, more work per key."""
        request: pb.LookupRequest | pb.PrefixLookupRequest
        request = (pb.PrefixLookupRequest if prefix else pb.LookupRequest)(table_id=table.table_id)
        by_bucket: dict[TableBucket, list[int]] = {}
        counts: dict[TableBucket, int] = {}
        missing = CorruptDataError(f"{table.table_path}: the server did not answer for every key")
        answers: list[list[bytes] | FlussError] = [missing] * len(keys)
        for at, (bucket, _) in enumerate(keys):
            count = None if bucket_counts is None else bucket_counts[at]
            if count is not None and counts.setdefault(bucket, count) != count:
                # A request can name one count for each bucket. A key that was placed by another
                # one is placed anew by its caller.
                answers[at] = InvalidBucketRoutingError(
                    f"{table.table_path}: the bucket count of {bucket} has just changed"
                )
                continue
            by_bucket.setdefault(bucket, []).append(at)
        for bucket, places in by_bucket.items():
            entry = request.buckets_req.add(bucket_id=bucket.bucket_id)
            if bucket.partition_id is not None:
                entry.partition_id = bucket.partition_id
            entry.keys.extend([keys[at][1] for at in places])
        api: apis.Api[Any, Any] = apis.PREFIX_LOOKUP if prefix else apis.LOOKUP

        def make(connection: Connection) -> list[Buffer]:
            if counts and connection.takes_bucket_counts:
                for at, bucket in enumerate(by_bucket):
                    request.buckets_req[at].routing_bucket_count = counts[bucket]
            return [request.SerializeToString()]

        body = await self.on_node(node, api, make)
        for part in parse(api.response, body).buckets_resp:
            partition_id = part.partition_id if part.HasField("partition_id") else None
            bucket = TableBucket(table.table_id, part.bucket_id, partition_id=partition_id)
            places = by_bucket.get(bucket, [])
            if part.error_code:
                error = error_for(part.error_code, part.error_message)
                for at in places:
                    answers[at] = error
                continue
            groups = part.value_lists if prefix else part.values
            for at, group in zip(places, groups, strict=False):
                if prefix:
                    answers[at] = list(group.values)
                else:
                    answers[at] = [group.values] if group.HasField("values") else []
        return answers

    async def decode_values(
        self,
        table: TableInfo,
        values: Blobs,
        columns: tuple[int, ...] | None,
        threads: Executor | None = None,
    ) -> pa.RecordBatch:
        if threads is None:
            schema_ids, rows = decode_values(values)
        else:
            loop = asyncio.get_running_loop()
            schema_ids, rows = await loop.run_in_executor(threads, decode_values, values)
        return await self.decode_rows_of(table, schema_ids, rows, columns, threads)


def _bucket_keys(keys: Mapping[TableBucket, Blobs], count: int | None) -> list[hot.BucketKeys]:
    return [
        hot.BucketKeys(bucket.bucket_id, blobs.data, blobs.offsets, bucket.partition_id, count)
        for bucket, blobs in keys.items()
    ]


def _values(data: memoryview, starts: np.ndarray, lengths: np.ndarray) -> Blobs:
    return Blobs.from_spans(np.frombuffer(data, np.uint8), starts, lengths)


def _complete(
    table: TableInfo,
    keys: Mapping[TableBucket, Blobs],
    answers: dict[TableBucket, LookupAnswer],
) -> dict[TableBucket, LookupAnswer]:
    """Return one answer per requested bucket; an error if it is missing or too short."""
    complete = {}
    nothing = Blobs.from_list([])
    for bucket, asked in keys.items():
        answer = answers.get(bucket)
        if answer is None or (answer.error is None and len(answer.counts) != len(asked)):
            error = CorruptDataError(f"{table.table_path}: no full answer for {bucket}")
            answer = LookupAnswer(nothing, np.zeros(0, np.int64), error)
        complete[bucket] = answer
    return complete
