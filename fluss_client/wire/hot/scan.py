"""Reading of the scans of one bucket, with the records as a view into the frame.

LimitScanResponse  1 error_code?, 2 error_message?, 3 is_log_table?, 4 records?
ScanKvResponse     1 error_code?, 2 error_message?, 3 scanner_id?, 4 has_more_results?,
                   5 records?, 6 log_offset?
"""

from __future__ import annotations

from dataclasses import dataclass

from fluss_client.errors import FlussError
from fluss_client.wire.buffers import Buffer
from fluss_client.wire.hot.reader import Reader
from fluss_client.wire.messages import part_error

_ERROR_CODE, _ERROR_MESSAGE = 0x08, 0x12
_LIMIT_IS_LOG, _LIMIT_RECORDS = 0x18, 0x22
_KV_SCANNER_ID, _KV_HAS_MORE, _KV_RECORDS, _KV_LOG_OFFSET = 0x1A, 0x20, 0x2A, 0x30


@dataclass(frozen=True, slots=True, eq=False)
class LimitScanned:
    """Whole log batches of a log table, or one value batch of a key table."""

    error: FlussError | None
    is_log_table: bool
    records: memoryview | None


@dataclass(frozen=True, slots=True, eq=False)
class ScannedKv:
    """One piece of a scan of a key table: a value batch, and whether more will come."""

    error: FlussError | None
    scanner_id: bytes
    has_more: bool
    records: memoryview | None
    log_offset: int | None


def decode_limit_scan(body: Buffer) -> LimitScanned:
    """A LimitScanResponse; `CorruptDataError` for anything else."""
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
        elif tag == _ERROR_CODE:
            error_code = reader.int32()
        elif tag == _ERROR_MESSAGE:
            error_message = reader.text()
        else:
            reader.skip(tag)
    return LimitScanned(part_error(error_code, error_message), is_log_table, records)


def decode_scan_kv(body: Buffer) -> ScannedKv:
    """A ScanKvResponse; `CorruptDataError` for anything else."""
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
        elif tag == _ERROR_CODE:
            error_code = reader.int32()
        elif tag == _ERROR_MESSAGE:
            error_message = reader.text()
        else:
            reader.skip(tag)
    error = part_error(error_code, error_message)
    return ScannedKv(error, scanner_id, has_more, records, log_offset)
