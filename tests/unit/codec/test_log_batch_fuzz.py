"""Streams of log batches that are damaged: a value or a typed error, nothing else."""

from __future__ import annotations

import struct
from contextlib import suppress

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from fluss_client.codec.arrow_body import Compression
from fluss_client.codec.log_batch import (
    decode_log_batch,
    encode_log_batch,
    encode_log_body,
    iter_log_batches,
)
from fluss_client.errors import CorruptDataError
from fluss_client.model.schema import Schema
from tests.unit.codec.type_values import tables

FORMATS = st.sampled_from(["ARROW", "INDEXED", "COMPACTED"])
CODECS = st.sampled_from([Compression.NONE, Compression.LZ4_FRAME, Compression.ZSTD])
SCHEMA = Schema(pa.schema([("a", pa.int64()), ("b", pa.string())]))


def read_all(data: bytes, schema: Schema, log_format: str) -> None:
    with suppress(CorruptDataError):
        for header in iter_log_batches(data):
            with suppress(CorruptDataError):
                header.check_crc()
            with suppress(CorruptDataError):
                decode_log_batch(header, schema, log_format).batch.serialize()


@settings(max_examples=200)
@given(tables(), FORMATS, CODECS, st.booleans(), st.data())
def test_damaged_batches(
    table: tuple[Schema, pa.RecordBatch],
    log_format: str,
    compression: Compression,
    append_only: bool,
    data: st.DataObject,
) -> None:
    schema, batch = table
    count = batch.num_rows
    changes = None if append_only else bytes(count)
    pieces = encode_log_batch(
        encode_log_body(batch, schema, log_format, compression, changes),
        schema_id=1,
        record_count=count,
        append_only=append_only,
    )
    stream = bytearray(b"".join(pieces) * 2)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(stream) - 1))
        if data.draw(st.booleans()):
            stream[at] = data.draw(st.integers(0, 255))
        else:
            word = data.draw(st.sampled_from([0, 1, -1, 2**31 - 1, -(2**31)]))
            stream[at : at + 4] = struct.pack("<i", word)
    read_all(bytes(stream), schema, log_format)


@given(st.binary(max_size=400), st.sampled_from([0, 1, 2]), FORMATS)
def test_random_streams(data: bytes, magic: int, log_format: str) -> None:
    read_all(data, SCHEMA, log_format)
    framed = struct.pack("<qiB", 0, len(data) + 1, magic) + data
    read_all(framed, SCHEMA, log_format)


@given(st.binary(max_size=120), st.integers(0, 60), FORMATS, st.booleans())
def test_random_bodies_behind_good_headers(
    body: bytes, count: int, log_format: str, append_only: bool
) -> None:
    pieces = encode_log_batch([body], schema_id=1, record_count=count, append_only=append_only)
    read_all(b"".join(pieces), SCHEMA, log_format)
