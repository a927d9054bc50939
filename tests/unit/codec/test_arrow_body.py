"""Arrow bodies: codecs, large values, alignment, and damage."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluss_client.codec.arrow_body import (
    BLOCK_BYTES_MAX,
    COMPRESSION_TYPE,
    COMPRESSION_ZSTD_LEVEL,
    DECODED_BYTES_MAX,
    FRAME_HEADER,
    Compression,
    compression_of,
    decode_bodies,
    decode_body,
    encode_body,
    lz4_metadata,
    read_metadata,
)
from fluss_client.errors import ConfigError, CorruptDataError
from fluss_client.model.schema import Schema
from tests.unit.codec.type_values import tables

CODECS = [Compression.NONE, Compression.LZ4_FRAME, Compression.ZSTD]


def body_of(batch: pa.RecordBatch, compression: Compression) -> bytes:
    return bytes(memoryview(encode_body(batch, compression)))


@given(tables(), st.sampled_from(CODECS), st.integers(0, 7))
def test_both_ways_at_any_address(
    table: tuple[Schema, pa.RecordBatch], compression: Compression, shift: int
) -> None:
    schema, batch = table
    body = bytes(shift) + body_of(batch, compression)
    assert decode_body(memoryview(body)[shift:], schema.wire).equals(batch)


@pytest.mark.parametrize("compression", CODECS, ids=lambda c: c.codec)
@pytest.mark.parametrize("size", [0, 1, BLOCK_BYTES_MAX, BLOCK_BYTES_MAX + 1, 200_000, 3_000_000])
def test_values_of_any_size(compression: Compression, size: int) -> None:
    noise = np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()
    batch = pa.record_batch({"s": ["é" * (size // 2), None], "b": [noise, b"x" * size]})
    assert decode_body(body_of(batch, compression), batch.schema).equals(batch)


@given(tables(), st.lists(st.sampled_from(CODECS), max_size=5))
def test_several_at_once(
    table: tuple[Schema, pa.RecordBatch], compressions: list[Compression]
) -> None:
    schema, batch = table
    parts = [batch.slice(at % max(1, batch.num_rows)) for at in range(len(compressions))]
    bodies = [body_of(part, one) for part, one in zip(parts, compressions, strict=True)]
    found = decode_bodies(bodies, schema.wire)
    assert len(found) == len(parts)
    assert all(one.equals(part) for one, part in zip(found, parts, strict=True))


def test_a_damaged_one_among_several_says_what_it_says_alone() -> None:
    batch = pa.record_batch({"s": ["abc", "def"] * 1_000})
    whole = body_of(batch, Compression.ZSTD)
    broken = bytearray(whole)
    broken[-20:-12] = b"\xff" * 8
    with pytest.raises(CorruptDataError) as alone:
        decode_body(bytes(broken), batch.schema)
    for bodies in ([whole, broken], [broken, whole], [whole, broken, whole]):
        with pytest.raises(CorruptDataError) as among:
            decode_bodies(bodies, batch.schema)
        assert str(among.value) == str(alone.value)


def test_bytes_behind_a_message_do_not_reach_the_next() -> None:
    batch = pa.record_batch({"a": [1, 2, 3]})
    body = body_of(batch, Compression.ZSTD)
    found = decode_bodies([body + bytes(16), body], batch.schema)
    assert [one.to_pydict() for one in found] == [batch.to_pydict()] * 2


def test_text_that_is_no_text_is_found() -> None:
    batch = pa.record_batch({"s": ["é", "ab"]})
    body = bytearray(body_of(batch, Compression.NONE))
    at = body.index("é".encode())
    for text in (b"\xc3b", b"a\xc3", b"\x80b"):
        body[at : at + 2] = text
        with pytest.raises(CorruptDataError):
            decode_body(bytes(body), batch.schema)
    # Whole, but cut by the offsets: neither value is text.
    split = bytearray(body_of(batch, Compression.NONE))
    at = split.index(struct.pack("<3i", 0, 2, 4))
    struct.pack_into("<3i", split, at, 0, 1, 4)
    with pytest.raises(CorruptDataError):
        decode_body(bytes(split), batch.schema)


def test_lz4_blocks_stand_alone() -> None:
    batch = pa.record_batch({"a": pa.array(np.arange(100_000))})
    body = body_of(batch, Compression.LZ4_FRAME)
    metadata = read_metadata(memoryview(body))
    assert metadata.compressed
    assert metadata.nodes.tolist() == [[100_000, 0]]
    offset, length = metadata.buffers[1].tolist()
    frame = body[metadata.body_start + offset + 8 : metadata.body_start + offset + length]
    assert frame.startswith(FRAME_HEADER)
    version_and_independent_blocks = 0b0110_0000
    assert frame[4] == version_and_independent_blocks
    # Any one block can be read without the ones before it.
    codec, at, sizes = pa.Codec("lz4_raw"), len(FRAME_HEADER), []
    plain = b""
    while size := struct.unpack_from("<I", frame, at)[0]:
        block = frame[at + 4 : at + 4 + size]
        left = min(BLOCK_BYTES_MAX, 800_000 - len(plain))
        plain += codec.decompress(block, decompressed_size=left, asbytes=True)
        sizes.append(size)
        at += 4 + size
    assert plain == np.arange(100_000).tobytes()
    assert len(sizes) == -(-800_000 // BLOCK_BYTES_MAX)
    assert at + 4 == len(frame)


def test_buffers_that_do_not_shrink_are_stored_plain() -> None:
    noise = np.random.default_rng(1).integers(0, 256, 1_000, np.uint8).tobytes()
    batch = pa.record_batch({"b": [noise]})
    body = body_of(batch, Compression.LZ4_FRAME)
    assert noise in body
    assert decode_body(body, batch.schema).equals(batch)


def test_aligned_plain_buffers_are_not_copied() -> None:
    batch = pa.record_batch({"a": pa.array(range(1_000))})
    body = pa.py_buffer(body_of(batch, Compression.NONE))
    found = decode_body(body, batch.schema)
    address = found.column(0).buffers()[1].address
    assert body.address <= address < body.address + body.size


def test_compression_of_a_table() -> None:
    assert compression_of({}) == Compression.ZSTD == Compression("ZSTD", 1)
    assert compression_of({COMPRESSION_TYPE: "lz4_frame"}) == Compression.LZ4_FRAME
    assert compression_of({COMPRESSION_ZSTD_LEVEL: "22"}).level == 22
    for wrong in (
        {COMPRESSION_TYPE: "gzip"},
        {COMPRESSION_ZSTD_LEVEL: "0"},
        {COMPRESSION_ZSTD_LEVEL: "x"},
    ):
        with pytest.raises(ConfigError):
            compression_of(wrong)


def test_another_schema_is_a_typed_error() -> None:
    body = body_of(pa.record_batch({"a": [1, 2]}), Compression.NONE)
    for schema in (
        pa.schema([("a", pa.string())]),
        pa.schema([("a", pa.int64()), ("b", pa.int64())]),
        pa.schema([("a", pa.list_(pa.int64()))]),
        pa.schema([("a", pa.decimal128(38, 1))]),
    ):
        with pytest.raises(CorruptDataError):
            decode_body(body, schema)


def test_offsets_that_run_backwards_are_found() -> None:
    batch = pa.record_batch({"s": ["abc", "def", "ghi"]})
    body = bytearray(body_of(batch, Compression.NONE))
    at = body.index(struct.pack("<4i", 0, 3, 6, 9))
    for offsets in ((0, 1 << 30, 6, 9), (0, 9, 3, 9), (-8, 3, 6, 9)):
        struct.pack_into("<4i", body, at, *offsets)
        with pytest.raises(CorruptDataError):
            decode_body(bytes(body), batch.schema)


def test_a_claimed_size_is_not_allocated() -> None:
    batch = pa.record_batch({"s": ["abc" * 1_000]})
    body = bytearray(body_of(batch, Compression.ZSTD))
    at = body.rindex(struct.pack("<q", 3_000))
    for claimed in (DECODED_BYTES_MAX + 1, 1 << 62):
        struct.pack_into("<q", body, at, claimed)
        before = pa.total_allocated_bytes()
        with pytest.raises(CorruptDataError, match="claims"):
            decode_body(bytes(body), batch.schema)
        assert pa.total_allocated_bytes() == before


@settings(max_examples=200)
@given(tables(min_rows=1), st.sampled_from(CODECS), st.data())
def test_damaged_bodies(
    table: tuple[Schema, pa.RecordBatch], compression: Compression, data: st.DataObject
) -> None:
    schema, batch = table
    body = bytearray(body_of(batch, compression))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)))
    for damaged in (bytes(body), bytes(body[:cut]), bytes(body[cut:])):
        try:
            found = decode_body(damaged, schema.wire)
        except CorruptDataError:
            continue
        found.serialize()
        found.take(pa.array(range(found.num_rows), pa.int64()))
        whole = body_of(batch, compression)
        _, among, _ = decode_bodies([whole, damaged, whole], schema.wire)
        # As bytes: damage may have made a number NaN, which equals nothing.
        assert among.serialize().equals(found.serialize())


@given(st.binary(max_size=300))
def test_random_bytes(data: bytes) -> None:
    schema = pa.schema([("a", pa.int64()), ("s", pa.string())])
    for candidate in (data, struct.pack("<Ii", 0xFFFFFFFF, len(data)) + data):
        with pytest.raises(CorruptDataError):
            decode_body(candidate, schema)


def _as_java_writes_it(batch: pa.RecordBatch) -> bytes:
    """Every empty buffer is the length 0 without a frame; the others are stored plain."""
    plain = bytes(memoryview(batch.serialize()))
    metadata = read_metadata(memoryview(plain))
    parts: list[bytes] = []
    places = np.zeros_like(metadata.buffers)
    position = 0
    for index, (offset, length) in enumerate(metadata.buffers.tolist()):
        start = metadata.body_start + offset
        part = struct.pack("<q", -1 if length else 0) + plain[start : start + length]
        places[index] = position, len(part)
        parts.append(part + bytes(-len(part) % 8))
        position += len(parts[-1])
    return lz4_metadata(batch.num_rows, metadata.nodes, places, position) + b"".join(parts)


@given(tables())
def test_empty_buffers_without_a_frame(table: tuple[Schema, pa.RecordBatch]) -> None:
    schema, batch = table
    body = _as_java_writes_it(batch)
    assert decode_body(body, schema.wire).equals(batch)
    for found in decode_bodies([body, body_of(batch, Compression.LZ4_FRAME), body], schema.wire):
        assert found.equals(batch)
