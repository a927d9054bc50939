"""Look-ups: requests from arrays, responses as arrays, both as the generated code has them."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluss_client.errors import CorruptDataError, NotLeaderOrFollowerError, error_for
from fluss_client.wire import fluss_pb2 as pb
from fluss_client.wire.hot import (
    BucketKeys,
    LookedUp,
    PrefixLookedUp,
    decode_lookup,
    decode_prefix_lookup,
    encode_lookup,
    encode_prefix_lookup,
    fields,
    lookup,
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

# Lengths around the places where a varint grows.
SIZES = st.sampled_from([0, 1, 2, 5, 126, 127, 128, 129, 130, 131, 300, 16_383, 16_384])
blobs = st.binary(max_size=20) | SIZES.map(
    lambda size: b"\x0a\x2a" * (size // 2) + b"x" * (size % 2)
)


def bucket_keys(
    bucket_id: int,
    keys: list[bytes],
    partition_id: int | None,
    before: bytes,
    count: int | None = None,
) -> BucketKeys:
    offsets = np.cumsum([len(before), *map(len, keys)], dtype=np.int64)
    data = np.frombuffer(before + b"".join(keys) + b"behind", np.uint8)
    return BucketKeys(bucket_id, data, offsets, partition_id, count)


requests = st.lists(
    st.tuples(
        INT32,
        st.lists(blobs, max_size=5),
        st.none() | INT64,
        st.binary(max_size=3),
        st.none() | INT32,
    ),
    max_size=3,
)


@untimed
@given(INT64, requests, st.none() | st.booleans(), st.none() | INT32, st.none() | INT32)
def test_lookup_requests_equal_the_generated_code(
    table_id: int, buckets: Any, insert: bool | None, acks: int | None, timeout_ms: int | None
) -> None:
    message = pb.LookupRequest(
        table_id=table_id, insert_if_not_exists=insert, acks=acks, timeout_ms=timeout_ms
    )
    prefix = pb.PrefixLookupRequest(table_id=table_id)
    for bucket_id, keys, partition_id, _, count in buckets:
        for request in (message, prefix):
            request.buckets_req.add(
                bucket_id=bucket_id,
                keys=keys,
                partition_id=partition_id,
                routing_bucket_count=count,
            )
    given_keys = [bucket_keys(*bucket) for bucket in buckets]
    parts = encode_lookup(
        table_id, given_keys, insert_if_not_exists=insert, acks=acks, timeout_ms=timeout_ms
    )
    assert b"".join(parts) == message.SerializeToString()
    assert b"".join(encode_prefix_lookup(table_id, given_keys)) == prefix.SerializeToString()


@pytest.mark.parametrize("size", [2**21 - 1, 2**21, 2**21 + 1])
def test_very_long_keys(size: int) -> None:
    keys = [bytes(size), b"", b"short"]
    message = pb.LookupRequest(table_id=1)
    message.buckets_req.add(bucket_id=2, keys=keys)
    parts = encode_lookup(1, [bucket_keys(2, keys, None, b"")])
    assert b"".join(parts) == message.SerializeToString()


@pytest.mark.parametrize("offsets", [[0, 5], [-1, 2], [2, 1, 3]])
def test_offsets_that_do_not_cut_the_keys(offsets: list[int]) -> None:
    keys = BucketKeys(0, np.zeros(4, np.uint8), np.array(offsets, np.int64))
    with pytest.raises(ValueError, match="offsets"):
        encode_lookup(1, [keys])


def same_head(message: Any, found: Any) -> bool:
    partition_id = message.partition_id if message.HasField("partition_id") else None
    if (found.bucket_id, found.partition_id) != (message.bucket_id, partition_id):
        return False
    if not message.error_code:
        return found.error is None
    told = shown(message.error_message)
    return found.error.error_code == message.error_code and (
        found.error.message == error_for(message.error_code, told).message
    )


def spans(found: LookedUp | PrefixLookedUp) -> list[bytes | None]:
    return [
        bytes(found.data[offset : offset + length]) if length >= 0 else None
        for offset, length in zip(found.offsets.tolist(), found.lengths.tolist(), strict=True)
    ]


def same_lookup(message: pb.LookupResponse, found: list[LookedUp]) -> bool:
    return len(message.buckets_resp) == len(found) and all(
        same_head(bucket, got)
        and spans(got) == [v.values if v.HasField("values") else None for v in bucket.values]
        for bucket, got in zip(message.buckets_resp, found, strict=True)
    )


def same_prefix_lookup(message: pb.PrefixLookupResponse, found: list[PrefixLookedUp]) -> bool:
    return len(message.buckets_resp) == len(found) and all(
        same_head(bucket, got)
        and got.list_offsets[0] == 0
        and [spans(got)[a:b] for a, b in pairwise(got.list_offsets.tolist())]
        == [list(values.values) for values in bucket.value_lists]
        for bucket, got in zip(message.buckets_resp, found, strict=True)
    )


@st.composite
def responses(draw: st.DrawFn, values_max: int) -> bytes:
    """A response with unknown fields at every level; a key has at most `values_max` values."""
    raw = b""
    for _ in range(draw(st.integers(0, 3))):
        head = pb.PbLookupRespForBucket(
            bucket_id=draw(INT32),
            partition_id=draw(st.none() | INT64),
            error_code=draw(st.none() | INT32),
            error_message=draw(st.none() | st.text(max_size=9)),
            original_partition_name=draw(st.none() | st.text(max_size=9)),
        )
        fields = [head.SerializeToString()]
        for values in draw(st.lists(st.lists(blobs, max_size=values_max), max_size=6)):
            inner = b"".join(delimited(1, value) for value in values)
            fields.append(delimited(5, inner + draw(unknown_fields)))
        fields.insert(draw(st.integers(0, len(fields))), draw(unknown_fields))
        raw += draw(unknown_fields) + delimited(1, b"".join(fields))
    return raw


@untimed
@given(responses(values_max=2))
def test_lookup_responses_equal_the_generated_code(raw: bytes) -> None:
    assert same_lookup(pb.LookupResponse.FromString(raw), decode_lookup(raw))


@untimed
@given(responses(values_max=4))
def test_prefix_responses_equal_the_generated_code(raw: bytes) -> None:
    assert same_prefix_lookup(pb.PrefixLookupResponse.FromString(raw), decode_prefix_lookup(raw))


@untimed
@given(responses(values_max=2), st.integers(0, 2**32))
def test_mutated_responses(raw: bytes, seed: int) -> None:
    raw = mutate(raw, seed)
    assert agrees(pb.LookupResponse, decode_lookup, same_lookup, raw)
    assert agrees(pb.PrefixLookupResponse, decode_prefix_lookup, same_prefix_lookup, raw)


@untimed
@given(st.binary(max_size=60))
def test_any_bytes(raw: bytes) -> None:
    bucket = delimited(1, b"\x10\x01" + raw)
    for body in (raw, bucket):
        assert agrees(pb.LookupResponse, decode_lookup, same_lookup, body)
        assert agrees(pb.PrefixLookupResponse, decode_prefix_lookup, same_prefix_lookup, body)


@pytest.mark.parametrize("chunk", [1, 3, 65_536])
def test_chunks_make_no_difference(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "CHUNK_FIELDS", chunk)
    message = pb.LookupResponse()
    bucket = message.buckets_resp.add(bucket_id=1)
    for number in range(20):
        bucket.values.add(values=bytes(number * 13) if number % 3 else None)
    raw = message.SerializeToString()
    assert same_lookup(message, decode_lookup(raw))
    prefix = pb.PrefixLookupResponse.FromString(raw)
    assert same_prefix_lookup(prefix, decode_prefix_lookup(raw))


def test_values_lie_in_the_frame_and_errors_are_typed() -> None:
    message = pb.LookupResponse()
    message.buckets_resp.add(bucket_id=1).values.add(values=b"abc")
    message.buckets_resp.add(bucket_id=2, error_code=12)
    frame = bytearray(message.SerializeToString())
    found = decode_lookup(frame)
    assert found[0].data.obj is frame
    assert isinstance(found[1].error, NotLeaderOrFollowerError)
    assert len(found[1].offsets) == len(found[1].lengths) == 0


def test_the_number_of_buckets_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fields, "BUCKETS_MAX", 2)
    with pytest.raises(CorruptDataError, match="buckets"):
        decode_lookup(delimited(1, b"\x10\x01") * 3)


@pytest.mark.parametrize("decode", [decode_lookup, decode_prefix_lookup])
@pytest.mark.parametrize("field", [b"\x2a\x00", b"\x2a\x02\x0a\x00", b"\x2a\x02\x50\x00"])
def test_hostile_answers_need_memory_in_proportion(
    decode: Any, field: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "CHUNK_FIELDS", 1000)
    keys = 20_000
    raw = delimited(1, b"\x10\x01" + field * keys)
    tracemalloc.start()
    try:
        found = decode(raw)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(found) == 1
    # Up to six numbers of eight bytes per key; read all at once it would be more than twice that.
    assert peak < 60 * keys
