"""Point and prefix look-ups on the leaders of their buckets."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from fluss_client.backend.cluster.reads import ReadCalls
from fluss_client.backend.contract import LookupAnswer
from fluss_client.codec.blobs import Blobs
from fluss_client.codec.value_batch import decode_values
from fluss_client.errors import CorruptDataError
from fluss_client.model.table import TableBucket, TableInfo
from fluss_client.wire import apis, hot


class LookupCalls(ReadCalls):
    """Key state by key."""

    async def lookup(
        self, table: TableInfo, node: int, keys: Mapping[TableBucket, Blobs]
    ) -> dict[TableBucket, LookupAnswer]:
        parts = hot.encode_lookup(table.table_id, _bucket_keys(keys))
        body = await self.on_node(node, apis.LOOKUP, parts)
        answers = {}
        for part in hot.decode_lookup(body):
            bucket = TableBucket(table.table_id, part.bucket_id, partition_id=part.partition_id)
            found = part.lengths >= 0
            values = _values(part.data, part.offsets[found], part.lengths[found])
            answers[bucket] = LookupAnswer(values, found.astype(np.int64), part.error)
        return _complete(table, keys, answers)

    async def prefix_lookup(
        self, table: TableInfo, node: int, keys: Mapping[TableBucket, Blobs]
    ) -> dict[TableBucket, LookupAnswer]:
        parts = hot.encode_prefix_lookup(table.table_id, _bucket_keys(keys))
        body = await self.on_node(node, apis.PREFIX_LOOKUP, parts)
        answers = {}
        for part in hot.decode_prefix_lookup(body):
            bucket = TableBucket(table.table_id, part.bucket_id, partition_id=part.partition_id)
            values = _values(part.data, part.offsets, part.lengths)
            answers[bucket] = LookupAnswer(values, np.diff(part.list_offsets), part.error)
        return _complete(table, keys, answers)

    async def decode_values(
        self, table: TableInfo, values: Blobs, columns: tuple[int, ...] | None
    ) -> pa.RecordBatch:
        schema_ids, rows = decode_values(values)
        return await self.decode_rows_of(table, schema_ids, rows, columns)


def _bucket_keys(keys: Mapping[TableBucket, Blobs]) -> list[hot.BucketKeys]:
    return [
        hot.BucketKeys(bucket.bucket_id, blobs.data, blobs.offsets, bucket.partition_id)
        for bucket, blobs in keys.items()
    ]


def _values(data: memoryview, starts: np.ndarray, lengths: np.ndarray) -> Blobs:
    return Blobs.from_spans(np.frombuffer(data, np.uint8), starts, lengths)


def _complete(
    table: TableInfo,
    keys: Mapping[TableBucket, Blobs],
    answers: dict[TableBucket, LookupAnswer],
) -> dict[TableBucket, LookupAnswer]:
    """One answer per bucket that was asked, of the right length, or an error in its place."""
    complete = {}
    nothing = Blobs.from_list([])
    for bucket, asked in keys.items():
        answer = answers.get(bucket)
        if answer is None or (answer.error is None and len(answer.counts) != len(asked)):
            error = CorruptDataError(f"{table.table_path}: no full answer for {bucket}")
            answer = LookupAnswer(nothing, np.zeros(0, np.int64), error)
        complete[bucket] = answer
    return complete
