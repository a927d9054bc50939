"""Fetch and scan responses: what the generated code reads, with records as views."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluss_client.errors import CorruptDataError, LogOffsetOutOfRangeError, error_for
from fluss_client.wire import fluss_pb2 as pb
from fluss_client.wire.hot import (
    FetchedBucket,
    LimitScanned,
    ScannedKv,
    decode_fetch_log,
    decode_limit_scan,
    decode_scan_kv,
    fields,
)
from tests.unit.wire.protobytes import (
    INT32,
    INT64,
    agrees,
    delimited,
    mutate,
    shown,
    unknown_fields,
    untimed,
)

remotes = st.builds(
    pb.PbRemoteLogFetchInfo,
    remote_log_tablet_dir=st.text(max_size=9),
    partition_name=st.none() | st.text(max_size=9),
    remote_log_segments=st.lists(
        st.builds(
            pb.PbRemoteLogSegment,
            remote_log_segment_id=st.text(max_size=9),
            remote_log_start_offset=INT64,
            remote_log_end_offset=INT64,
            segment_size_in_bytes=INT32,
            max_timestamp=st.none() | INT64,
        ),
        max_size=2,
    ),
    first_start_pos=st.none() | INT32,
)
fetched_buckets = st.builds(
    pb.PbFetchLogRespForBucket,
    partition_id=st.none() | INT64,
    bucket_id=INT32,
    error_code=st.none() | INT32,
    error_message=st.none() | st.text(max_size=9),
    high_watermark=st.none() | INT64,
    log_start_offset=st.none() | INT64,
    remote_log_fetch_info=st.none() | remotes,
    records=st.none() | st.binary(max_size=300),
    filtered_end_offset=st.none() | INT64,
)
scans = st.builds(
    pb.LimitScanResponse,
    error_code=st.none() | INT32,
    error_message=st.none() | st.text(max_size=9),
    is_log_table=st.none() | st.booleans(),
    records=st.none() | st.binary(max_size=300),
)
kv_scans = st.builds(
    pb.ScanKvResponse,
    error_code=st.none() | INT32,
    error_message=st.none() | st.text(max_size=9),
    scanner_id=st.none() | st.binary(max_size=9),
    has_more_results=st.none() | st.booleans(),
    records=st.none() | st.binary(max_size=300),
    log_offset=st.none() | INT64,
)


def optional(message: Any, name: str) -> Any:
    return getattr(message, name) if message.HasField(name) else None


def same_error(message: Any, error: Any) -> bool:
    if not message.error_code:
        return error is None
    told = shown(message.error_message)
    return error.error_code == message.error_code and (
        error.message == error_for(error.error_code, told).message
    )


def same_bucket(table_id: int, message: pb.PbFetchLogRespForBucket, found: FetchedBucket) -> bool:
    return (
        found.table_id == table_id
        and found.bucket_id == message.bucket_id
        and found.partition_id == optional(message, "partition_id")
        and same_error(message, found.error)
        and found.high_watermark == optional(message, "high_watermark")
        and found.log_start_offset == optional(message, "log_start_offset")
        and found.filtered_end_offset == optional(message, "filtered_end_offset")
        and found.remote == optional(message, "remote_log_fetch_info")
        and found.records == optional(message, "records")
    )


def same_fetch(message: pb.FetchLogResponse, found: list[FetchedBucket]) -> bool:
    expected = [(t.table_id, b) for t in message.tables_resp for b in t.buckets_resp]
    return len(expected) == len(found) and all(
        same_bucket(table_id, bucket, got)
        for (table_id, bucket), got in zip(expected, found, strict=True)
    )


def same_scan(message: pb.LimitScanResponse, found: LimitScanned) -> bool:
    return (
        same_error(message, found.error)
        and found.is_log_table == message.is_log_table
        and found.records == optional(message, "records")
    )


def same_kv_scan(message: pb.ScanKvResponse, found: ScannedKv) -> bool:
    return (
        same_error(message, found.error)
        and found.scanner_id == message.scanner_id
        and found.has_more == message.has_more_results
        and found.records == optional(message, "records")
        and found.log_offset == optional(message, "log_offset")
    )


@st.composite
def fetch_responses(draw: st.DrawFn) -> bytes:
    """A response with unknown fields at every level, and table ids before or behind buckets."""
    raw = b""
    for _ in range(draw(st.integers(0, 2))):
        table = [delimited(2, draw(unknown_fields) + b.SerializeToString() + draw(unknown_fields))
                 for b in draw(st.lists(fetched_buckets, max_size=3))]  # fmt: skip
        table_id = pb.InitWriterResponse(writer_id=draw(INT64)).SerializeToString()
        table.insert(draw(st.integers(0, len(table))), table_id)
        raw += delimited(1, b"".join(table) + draw(unknown_fields)) + draw(unknown_fields)
    return raw


@untimed
@given(fetch_responses())
def test_fetch_equals_the_generated_code(raw: bytes) -> None:
    assert same_fetch(pb.FetchLogResponse.FromString(raw), decode_fetch_log(raw))


@untimed
@given(fetch_responses(), st.integers(0, 2**32))
def test_mutated_fetches(raw: bytes, seed: int) -> None:
    assert agrees(pb.FetchLogResponse, decode_fetch_log, same_fetch, mutate(raw, seed))


@untimed
@given(scans, kv_scans, unknown_fields, unknown_fields)
def test_scans_equal_the_generated_code(
    scan: pb.LimitScanResponse, kv: pb.ScanKvResponse, before: bytes, behind: bytes
) -> None:
    assert same_scan(scan, decode_limit_scan(before + scan.SerializeToString() + behind))
    assert same_kv_scan(kv, decode_scan_kv(before + kv.SerializeToString() + behind))


@untimed
@given(scans, kv_scans, st.integers(0, 2**32))
def test_mutated_scans(scan: pb.LimitScanResponse, kv: pb.ScanKvResponse, seed: int) -> None:
    raw = mutate(scan.SerializeToString(), seed)
    assert agrees(pb.LimitScanResponse, decode_limit_scan, same_scan, raw)
    raw = mutate(kv.SerializeToString(), seed)
    assert agrees(pb.ScanKvResponse, decode_scan_kv, same_kv_scan, raw)


@untimed
@given(st.binary(max_size=60))
def test_any_bytes(raw: bytes) -> None:
    assert agrees(pb.FetchLogResponse, decode_fetch_log, same_fetch, raw)
    assert agrees(pb.LimitScanResponse, decode_limit_scan, same_scan, raw)
    assert agrees(pb.ScanKvResponse, decode_scan_kv, same_kv_scan, raw)


def test_records_are_views_into_the_frame() -> None:
    message = pb.FetchLogResponse()
    message.tables_resp.add(table_id=1).buckets_resp.add(bucket_id=2, records=bytes(100))
    frame = bytearray(message.SerializeToString())
    records = decode_fetch_log(memoryview(frame))[0].records
    assert records is not None
    assert records.obj is frame
    scan = bytearray(pb.LimitScanResponse(records=b"abc").SerializeToString())
    views = decode_limit_scan(scan).records
    assert views is not None
    assert views.obj is scan


def test_a_bucket_error_is_typed() -> None:
    message = pb.FetchLogResponse()
    message.tables_resp.add(table_id=1).buckets_resp.add(
        bucket_id=2, error_code=19, error_message="too far"
    )
    error = decode_fetch_log(message.SerializeToString())[0].error
    assert isinstance(error, LogOffsetOutOfRangeError)
    assert error.message == "too far"


def test_the_number_of_buckets_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fields, "BUCKETS_MAX", 3)
    message = pb.FetchLogResponse()
    for number in range(4):
        message.tables_resp.add(table_id=number // 2).buckets_resp.add(bucket_id=number)
    with pytest.raises(CorruptDataError, match="buckets"):
        decode_fetch_log(message.SerializeToString())
    del message.tables_resp[3]
    assert len(decode_fetch_log(message.SerializeToString())) == 3
