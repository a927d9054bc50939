"""Messages that carry record batches: written and read without copying the batches.

    ProduceLogRequest  1 acks, 2 table_id, 3 timeout_ms, 4 bucket*
    PutKvRequest       1 acks, 2 table_id, 3 timeout_ms, 4 target_columns (packed), 5 bucket*,
                       6 agg_mode
    bucket             1 partition_id?, 2 bucket_id, 3 records, 5 routing_bucket_count?

    FetchLogResponse   1 table*
    table              1 table_id, 2 bucket*
    bucket             1 partition_id?, 2 bucket_id, 3 error_code?, 4 error_message?,
                       5 high_watermark?, 6 log_start_offset?, 7 remote_log_fetch_info?,
                       8 records?, 9 filtered_end_offset?

    LimitScanResponse  1 error_code?, 2 error_message?, 3 is_log_table?, 4 records?
    ScanKvResponse     1 error_code?, 2 error_message?, 3 scanner_id?, 4 has_more_results?,
                       5 records?, 6 log_offset?

The bytes of a request equal those of the generated code. They are a list of buffers: small ones
made here, and between them the callers' own, which must stay unchanged until they are sent. In
responses the records are views into the frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fluss_client.errors import FlussError
from fluss_client.wire import fluss_pb2 as pb
from fluss_client.wire.hot.fields import Reader, check_bucket_count, need, number_field, varint
from fluss_client.wire.messages import Buffer, byte_count, parse, part_error

_WRITE_ACKS, _WRITE_TABLE_ID, _WRITE_TIMEOUT_MS = 0x08, 0x10, 0x18
_PRODUCE_BUCKET, _PUT_COLUMNS, _PUT_BUCKET, _PUT_AGG_MODE = 0x22, 0x22, 0x2A, 0x30
_WRITE_PARTITION_ID, _WRITE_BUCKET_ID, _WRITE_RECORDS, _WRITE_COUNT = 0x08, 0x10, 0x1A, 0x28


@dataclass(frozen=True, slots=True, eq=False)
class BucketRecords:
    """The record batches for one bucket, as consecutive buffers."""

    bucket_id: int
    records: Sequence[Buffer]
    partition_id: int | None = None
    routing_bucket_count: int | None = None


def encode_produce_log(
    table_id: int, buckets: Sequence[BucketRecords], *, acks: int, timeout_ms: int
) -> list[Buffer]:
    """Encode a ProduceLogRequest as buffers, in the order of `buckets`."""
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
    """Encode a PutKvRequest as buffers; an empty `target_columns` means all columns."""
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
        number_field(_WRITE_ACKS, acks)
        + number_field(_WRITE_TABLE_ID, table_id)
        + number_field(_WRITE_TIMEOUT_MS, timeout_ms)
    )


def _with_buckets(head: bytes, tag: int, buckets: Sequence[BucketRecords]) -> list[Buffer]:
    parts: list[Buffer] = []
    for bucket in buckets:
        records_bytes = byte_count(bucket.records)
        inner = number_field(_WRITE_BUCKET_ID, bucket.bucket_id)
        if bucket.partition_id is not None:
            inner = number_field(_WRITE_PARTITION_ID, bucket.partition_id) + inner
        inner += bytes([_WRITE_RECORDS]) + varint(records_bytes)
        tail = b""
        if bucket.routing_bucket_count is not None:
            tail = number_field(_WRITE_COUNT, bucket.routing_bucket_count)
        length = len(inner) + records_bytes + len(tail)
        parts.append(head + bytes([tag]) + varint(length) + inner)
        parts.extend(bucket.records)
        # The tail of a bucket is sent with the head of the next one.
        head = tail
    if head and parts:
        parts.append(head)
    return parts if parts else [head]


_FETCH_TABLE = 0x0A
_FETCH_TABLE_ID, _FETCH_TABLE_BUCKET = 0x08, 0x12
_FETCH_PARTITION_ID, _FETCH_BUCKET_ID, _FETCH_ERROR_CODE, _FETCH_ERROR_MESSAGE = (
    0x08,
    0x10,
    0x18,
    0x22,
)
_FETCH_HIGH_WATERMARK, _FETCH_LOG_START, _FETCH_REMOTE, _FETCH_RECORDS, _FETCH_FILTERED_END = (
    0x28,
    0x30,
    0x3A,
    0x42,
    0x48,
)

_FETCH_NUMBERS = {
    _FETCH_PARTITION_ID: "partition_id",
    _FETCH_HIGH_WATERMARK: "high_watermark",
    _FETCH_LOG_START: "log_start_offset",
    _FETCH_FILTERED_END: "filtered_end_offset",
}


@dataclass(frozen=True, slots=True, eq=False)
class FetchedBucket:
    """The answer of a fetch for one bucket.

    `records` is a view into the frame and keeps it alive; its last batch may be incomplete. It is
    None if the answer has none, for example if `remote` says where the records are.
    """

    table_id: int
    bucket_id: int
    partition_id: int | None
    error: FlussError | None
    high_watermark: int | None
    log_start_offset: int | None
    filtered_end_offset: int | None
    remote: pb.PbRemoteLogFetchInfo | None
    records: memoryview | None


def decode_fetch_log(body: Buffer) -> list[FetchedBucket]:
    """Return all buckets of a FetchLogResponse, in order.

    Raises `CorruptDataError` for other bytes.
    """
    reader = Reader.over(body)
    found: list[FetchedBucket] = []
    while reader.more():
        tag = reader.tag()
        if tag == _FETCH_TABLE:
            _read_table(reader.inner(), found)
        else:
            reader.skip(tag)
    return found


def _read_table(reader: Reader, found: list[FetchedBucket]) -> None:
    table_id: int | None = None
    buckets: list[Reader] = []
    while reader.more():
        tag = reader.tag()
        if tag == _FETCH_TABLE_ID:
            table_id = reader.int64()
        elif tag == _FETCH_TABLE_BUCKET:
            check_bucket_count(len(found) + len(buckets) + 1)
            buckets.append(reader.inner())
        else:
            reader.skip(tag)
    table_id = need(table_id, "table_id")
    found.extend(_read_bucket(bucket, table_id) for bucket in buckets)


def _read_bucket(reader: Reader, table_id: int) -> FetchedBucket:
    numbers: dict[str, int] = {}
    bucket_id: int | None = None
    error_code = 0
    error_message: str | None = None
    # Protobuf allows a message in several parts, which are joined; a server sends one part.
    remote: bytearray | None = None
    records: memoryview | None = None
    while reader.more():
        tag = reader.tag()
        if tag in _FETCH_NUMBERS:
            numbers[_FETCH_NUMBERS[tag]] = reader.int64()
        elif tag == _FETCH_BUCKET_ID:
            bucket_id = reader.int32()
        elif tag == _FETCH_RECORDS:
            records = reader.payload()
        elif tag == _FETCH_REMOTE:
            remote = bytearray() if remote is None else remote
            remote += reader.payload()
        elif tag == _FETCH_ERROR_CODE:
            error_code = reader.int32()
        elif tag == _FETCH_ERROR_MESSAGE:
            error_message = reader.text()
        else:
            reader.skip(tag)
    return FetchedBucket(
        table_id=table_id,
        bucket_id=need(bucket_id, "bucket_id"),
        partition_id=numbers.get("partition_id"),
        error=part_error(error_code, error_message),
        high_watermark=numbers.get("high_watermark"),
        log_start_offset=numbers.get("log_start_offset"),
        filtered_end_offset=numbers.get("filtered_end_offset"),
        remote=None if remote is None else parse(pb.PbRemoteLogFetchInfo, remote),
        records=records,
    )


_SCAN_ERROR_CODE, _SCAN_ERROR_MESSAGE = 0x08, 0x12
_LIMIT_IS_LOG, _LIMIT_RECORDS = 0x18, 0x22
_KV_SCANNER_ID, _KV_HAS_MORE, _KV_RECORDS, _KV_LOG_OFFSET = 0x1A, 0x20, 0x2A, 0x30


@dataclass(frozen=True, slots=True, eq=False)
class LimitScanned:
    """Complete log batches of a log table, or one value batch of a key table."""

    error: FlussError | None
    is_log_table: bool
    records: memoryview | None


@dataclass(frozen=True, slots=True, eq=False)
class ScannedKv:
    """One answer of a scan of a key table: a value batch, and whether more follow."""

    error: FlussError | None
    scanner_id: bytes
    has_more: bool
    records: memoryview | None
    log_offset: int | None


def decode_limit_scan(body: Buffer) -> LimitScanned:
    """Decode a LimitScanResponse; raise `CorruptDataError` for other bytes."""
    reader = Reader.over(body)
    error_code = 0
    error_message: str | None = None
    is_log_table = False
    records: memoryview | None = None
    while reader.more():
        tag = reader.tag()
        if tag == _LIMIT_RECORDS:
            records = reader.payload()
        elif tag == _LIMIT_IS_LOG:
            is_log_table = bool(reader.varint())
        elif tag == _SCAN_ERROR_CODE:
            error_code = reader.int32()
        elif tag == _SCAN_ERROR_MESSAGE:
            error_message = reader.text()
        else:
            reader.skip(tag)
    return LimitScanned(part_error(error_code, error_message), is_log_table, records)


def decode_scan_kv(body: Buffer) -> ScannedKv:
    """Decode a ScanKvResponse; raise `CorruptDataError` for other bytes."""
    reader = Reader.over(body)
    error_code = 0
    error_message: str | None = None
    scanner_id = b""
    has_more = False
    records: memoryview | None = None
    log_offset: int | None = None
    while reader.more():
        tag = reader.tag()
        if tag == _KV_RECORDS:
            records = reader.payload()
        elif tag == _KV_SCANNER_ID:
            scanner_id = bytes(reader.payload())
        elif tag == _KV_HAS_MORE:
            has_more = bool(reader.varint())
        elif tag == _KV_LOG_OFFSET:
            log_offset = reader.int64()
        elif tag == _SCAN_ERROR_CODE:
            error_code = reader.int32()
        elif tag == _SCAN_ERROR_MESSAGE:
            error_message = reader.text()
        else:
            reader.skip(tag)
    error = part_error(error_code, error_message)
    return ScannedKv(error, scanner_id, has_more, records, log_offset)
