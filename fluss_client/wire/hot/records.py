"""Requests that carry record batches, with the batches passed through uncopied.

    ProduceLogRequest  1 acks, 2 table_id, 3 timeout_ms, 4 bucket*
    PutKvRequest       1 acks, 2 table_id, 3 timeout_ms, 4 target_columns (packed), 5 bucket*,
                       6 agg_mode
    bucket             1 partition_id?, 2 bucket_id, 3 records

The bytes equal those of the generated code. They are a list of buffers: small ones made here, and
between them the callers' own, which must stay unchanged until they are sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fluss_client.wire.buffers import Buffer, byte_count
from fluss_client.wire.hot.varint import number_field, varint

_ACKS, _TABLE_ID, _TIMEOUT_MS = 0x08, 0x10, 0x18
_PRODUCE_BUCKET, _PUT_COLUMNS, _PUT_BUCKET, _PUT_AGG_MODE = 0x22, 0x22, 0x2A, 0x30
_PARTITION_ID, _BUCKET_ID, _RECORDS = 0x08, 0x10, 0x1A


@dataclass(frozen=True, slots=True, eq=False)
class BucketRecords:
    """The record batches for one bucket, as any number of buffers in a row."""

    bucket_id: int
    records: Sequence[Buffer]
    partition_id: int | None = None


def encode_produce_log(
    table_id: int, buckets: Sequence[BucketRecords], *, acks: int, timeout_ms: int
) -> list[Buffer]:
    """A ProduceLogRequest as buffers, in the order of `buckets`."""
    head = _head(table_id, acks, timeout_ms)
    return _with_buckets(head, _PRODUCE_BUCKET, buckets)


def encode_put_kv(
    table_id: int,
    buckets: Sequence[BucketRecords],
    *,
    acks: int,
    timeout_ms: int,
    target_columns: Sequence[int] = (),
    agg_mode: int | None = None,
) -> list[Buffer]:
    """A PutKvRequest as buffers, in the order of `buckets`; no target columns means all."""
    head = _head(table_id, acks, timeout_ms)
    if target_columns:
        packed = b"".join(varint(column) for column in target_columns)
        head += bytes([_PUT_COLUMNS]) + varint(len(packed)) + packed
    parts = _with_buckets(head, _PUT_BUCKET, buckets)
    if agg_mode is not None:
        parts.append(number_field(_PUT_AGG_MODE, agg_mode))
    return parts


def _head(table_id: int, acks: int, timeout_ms: int) -> bytes:
    return (
        number_field(_ACKS, acks)
        + number_field(_TABLE_ID, table_id)
        + number_field(_TIMEOUT_MS, timeout_ms)
    )


def _with_buckets(head: bytes, tag: int, buckets: Sequence[BucketRecords]) -> list[Buffer]:
    parts: list[Buffer] = []
    for bucket in buckets:
        records_bytes = byte_count(bucket.records)
        inner = number_field(_BUCKET_ID, bucket.bucket_id)
        if bucket.partition_id is not None:
            inner = number_field(_PARTITION_ID, bucket.partition_id) + inner
        inner += bytes([_RECORDS]) + varint(records_bytes)
        parts.append(head + bytes([tag]) + varint(len(inner) + records_bytes) + inner)
        parts.extend(bucket.records)
        head = b""
    return parts if parts else [head]
