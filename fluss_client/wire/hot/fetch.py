"""Reading of FetchLogResponse, with the record batches as views into the frame.

FetchLogResponse  1 table*
table             1 table_id, 2 bucket*
bucket            1 partition_id?, 2 bucket_id, 3 error_code?, 4 error_message?,
                  5 high_watermark?, 6 log_start_offset?, 7 remote_log_fetch_info?,
                  8 records?, 9 filtered_end_offset?
"""

from __future__ import annotations

from dataclasses import dataclass

from fluss_client.errors import FlussError
from fluss_client.wire import fluss_pb2 as pb
from fluss_client.wire.buffers import Buffer
from fluss_client.wire.hot.reader import Reader, check_bucket_count, need
from fluss_client.wire.messages import parse, part_error

_TABLE = 0x0A
_TABLE_ID, _TABLE_BUCKET = 0x08, 0x12
_PARTITION_ID, _BUCKET_ID, _ERROR_CODE, _ERROR_MESSAGE = 0x08, 0x10, 0x18, 0x22
_HIGH_WATERMARK, _LOG_START, _REMOTE, _RECORDS, _FILTERED_END = 0x28, 0x30, 0x3A, 0x42, 0x48

_NUMBERS = {
    _PARTITION_ID: "partition_id",
    _HIGH_WATERMARK: "high_watermark",
    _LOG_START: "log_start_offset",
    _FILTERED_END: "filtered_end_offset",
}


@dataclass(frozen=True, slots=True, eq=False)
class FetchedBucket:
    """What a fetch brought for one bucket.

    `records` is a view into the frame and keeps it alive; its last batch may be cut short. It is
    None when the answer has none, for instance when `remote` says where the records are instead.
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
    """All buckets of a FetchLogResponse in the order in which they stand there.

    Raises `CorruptDataError` for anything that is not such a message.
    """
    reader = Reader.over(body)
    found: list[FetchedBucket] = []
    while reader.more():
        tag = reader.tag()
        if tag == _TABLE:
            _read_table(reader.inner(), found)
        else:
            reader.skip(tag)
    return found


def _read_table(reader: Reader, found: list[FetchedBucket]) -> None:
    table_id: int | None = None
    buckets: list[Reader] = []
    while reader.more():
        tag = reader.tag()
        if tag == _TABLE_ID:
            table_id = reader.int64()
        elif tag == _TABLE_BUCKET:
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
    # Pieces of one message add up to the message; a server sends a single one.
    remote: bytearray | None = None
    records: memoryview | None = None
    while reader.more():
        tag = reader.tag()
        if tag in _NUMBERS:
            numbers[_NUMBERS[tag]] = reader.int64()
        elif tag == _BUCKET_ID:
            bucket_id = reader.int32()
        elif tag == _RECORDS:
            records = reader.payload()
        elif tag == _REMOTE:
            remote = bytearray() if remote is None else remote
            remote += reader.payload()
        elif tag == _ERROR_CODE:
            error_code = reader.int32()
        elif tag == _ERROR_MESSAGE:
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
