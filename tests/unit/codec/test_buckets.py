"""Buckets of many keys, of one key, and of the reference libraries."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluss_client.codec import buckets
from fluss_client.codec.binary.blobs import Blobs
from fluss_client.codec.buckets import assign_buckets, bucket_of
from fluss_client.codec.keys import KeyEncoding
from fluss_client.errors import RowError


@settings(max_examples=200, deadline=None)
@given(
    keys=st.lists(st.binary(min_size=1, max_size=40), max_size=20),
    count=st.integers(1, 1 << 20),
    encoding=st.sampled_from(KeyEncoding),
)
def test_one_and_many_agree(keys: list[bytes], count: int, encoding: KeyEncoding) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buckets, "CHUNK_ROWS", 7)
        assigned = assign_buckets(Blobs.from_list(keys), count, encoding)
    assert assigned.dtype == np.int32
    assert assigned.tolist() == [bucket_of(key, count, encoding) for key in keys]
    assert all(0 <= bucket < count for bucket in assigned.tolist())


@pytest.mark.parametrize("encoding", KeyEncoding)
def test_a_few_long_keys_among_short_ones(encoding: KeyEncoding) -> None:
    source = random.Random(1)
    keys = [source.randbytes(n) for n in (5, 1, 100_003, 8, 70_000, 33)]
    expected = [bucket_of(key, 1000, encoding) for key in keys]
    assert assign_buckets(Blobs.from_list(keys), 1000, encoding).tolist() == expected


def test_iceberg_is_the_standard_murmur() -> None:
    mmh3 = pytest.importorskip("mmh3")
    source = random.Random(2)
    keys = [source.randbytes(1 + i % 29) for i in range(500)]
    expected = [(mmh3.hash(key, 0, signed=False) & 0x7FFFFFFF) % 997 for key in keys]
    assert assign_buckets(Blobs.from_list(keys), 997, KeyEncoding.ICEBERG).tolist() == expected


def test_tail_bytes_are_sign_extended() -> None:
    # INT keys 128 and 300 of 16 buckets, where a hash that zero-extends says 7 and 11.
    keys = [bytes.fromhex("8001"), bytes.fromhex("ac02")]
    assert [bucket_of(key, 16, KeyEncoding.COMPACTED) for key in keys] == [2, 5]


def test_iceberg_has_no_bucket_for_nothing() -> None:
    with pytest.raises(RowError, match="empty key"):
        assign_buckets(Blobs.from_list([b"a", b""]), 3, KeyEncoding.ICEBERG)
    with pytest.raises(RowError, match="empty key"):
        bucket_of(b"", 3, KeyEncoding.ICEBERG)


def test_no_keys() -> None:
    for encoding in KeyEncoding:
        assert assign_buckets(Blobs.from_list([]), 3, encoding).size == 0
