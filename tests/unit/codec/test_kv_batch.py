"""KV and value batches of any content, and damaged ones."""

from __future__ import annotations

import struct
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluss_client.codec.binary.blobs import Blobs
from fluss_client.codec.binary.crc32c import crc32c
from fluss_client.codec.kv_batch import (
    HEADER_SIZE,
    decode_kv_batch,
    decode_value,
    decode_value_batch,
    decode_values,
    encode_kv_batch,
    kv_record_sizes,
)
from fluss_client.errors import CorruptDataError, FlussError, RowError

KEYS = st.binary(max_size=10) | st.integers(120, 300).map(bytes)
ROWS = st.none() | st.binary(min_size=1, max_size=40)
RECORDS = st.lists(st.tuples(KEYS, ROWS), max_size=30)


def pieces_of(records: list[tuple[bytes, bytes | None]]) -> tuple[Blobs, Blobs, np.ndarray]:
    keys = Blobs.from_list([key for key, _ in records])
    rows = Blobs.from_list([b"left out" if row is None else row for _, row in records])
    return keys, rows, np.array([row is None for _, row in records], np.bool_)


@given(RECORDS, st.integers(-1, 2**15 - 1), st.integers(-1, 2**63 - 1), st.integers(-1, 2**31 - 1))
def test_kv_batch_both_ways(
    records: list[tuple[bytes, bytes | None]], schema_id: int, writer_id: int, sequence: int
) -> None:
    keys, rows, deletes = pieces_of(records)
    data = b"".join(
        encode_kv_batch(
            keys, rows, deletes, schema_id=schema_id, writer_id=writer_id, batch_sequence=sequence
        )
    )
    found = decode_kv_batch(data)
    assert (found.schema_id, found.writer_id, found.batch_sequence) == (
        schema_id,
        writer_id,
        sequence,
    )
    assert found.keys.to_list() == keys.to_list()
    assert found.deletes.tolist() == deletes.tolist()
    assert found.rows.to_list() == [row or b"" for _, row in records]


@given(RECORDS)
def test_sizes_are_what_the_batch_takes(records: list[tuple[bytes, bytes | None]]) -> None:
    keys, rows, _ = pieces_of(records)
    for given_rows in (rows, None):
        data = b"".join(encode_kv_batch(keys, given_rows, schema_id=1))
        assert len(data) == HEADER_SIZE + kv_record_sizes(keys, given_rows).sum()


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 2_097_152])
def test_key_lengths_at_the_varints_steps(size: int) -> None:
    keys = Blobs.from_list([bytes(size), b"k"])
    found = decode_kv_batch(b"".join(encode_kv_batch(keys, schema_id=1)))
    assert found.keys.to_list() == keys.to_list()
    assert found.deletes.all()


def test_an_empty_row_is_not_a_delete_by_accident() -> None:
    keys = Blobs.from_list([b"a", b"b"])
    with pytest.raises(RowError, match="delete"):
        encode_kv_batch(keys, Blobs.from_list([b"x", b""]), schema_id=1)
    with pytest.raises(RowError, match="2 keys and 1 rows"):
        encode_kv_batch(keys, Blobs.from_list([b"x"]), schema_id=1)


@given(st.lists(st.tuples(st.integers(-(2**15), 2**15 - 1), st.binary(max_size=30)), max_size=30))
def test_values_both_ways(values: list[tuple[int, bytes]]) -> None:
    encoded = [struct.pack("<h", schema_id) + row for schema_id, row in values]
    records = b"".join(struct.pack("<i", len(value)) + value for value in encoded)
    batch = struct.pack("<iBi", 5 + len(records), 0, len(values)) + records
    for ids, rows in (decode_values(Blobs.from_list(encoded)), decode_value_batch(batch)):
        assert ids.tolist() == [schema_id for schema_id, _ in values]
        assert rows.to_list() == [row for _, row in values]
    assert [decode_value(value) for value in encoded] == values


def with_right_crc(data: bytes) -> bytes:
    """Damage behind a valid checksum reaches the code behind the check."""
    length = struct.pack("<iB", len(data) - 4, 0)
    return length + struct.pack("<I", crc32c(data[9:])) + data[9:]


@settings(max_examples=300)
@given(RECORDS, st.data())
def test_damaged_kv_batches(records: list[tuple[bytes, bytes | None]], data: st.DataObject) -> None:
    keys, rows, deletes = pieces_of(records)
    good = bytearray(b"".join(encode_kv_batch(keys, rows, deletes, schema_id=1)))
    for _ in range(data.draw(st.integers(1, 4))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(good[: data.draw(st.integers(0, len(good)))])
    for damaged in (bytes(good), cut, with_right_crc(bytes(good)), with_right_crc(cut)):
        with suppress(CorruptDataError):
            decode_kv_batch(damaged)


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_random_bytes(data: bytes) -> None:
    framed = struct.pack("<iB", len(data) + 1, 0) + data
    for decode in (decode_kv_batch, decode_value_batch, decode_value):
        for candidate in (data, framed, with_right_crc(data + bytes(28))):
            with suppress(FlussError):
                decode(candidate)


def test_a_claimed_count_allocates_nothing() -> None:
    with pytest.raises(CorruptDataError, match="cannot lie in"):
        decode_value_batch(struct.pack("<iBi", 5, 0, 2**31 - 1))
