"""Log batches of any content, in every format and codec."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluss_client.codec.arrow_body import Compression
from fluss_client.codec.binary.crc32c import crc32c, seal
from fluss_client.codec.log_batch import (
    LENGTH_END,
    align_to,
    decode_log_batch,
    encode_log_batch,
    encode_log_body,
    iter_log_batches,
)
from fluss_client.errors import CorruptDataError, UnsupportedError
from fluss_client.model.schema import Column, Schema
from fluss_client.model.types import DataTypes
from tests.unit.codec.type_values import renamed, tables

COMPRESSIONS = st.sampled_from([Compression.NONE, Compression.LZ4_FRAME, Compression("ZSTD", 1)])
FORMATS = st.sampled_from(["ARROW", "indexed", "COMPACTED"])
SCHEMA = Schema(pa.schema([("a", pa.int64()), ("b", pa.string())]))


def rows(count: int) -> pa.RecordBatch:
    columns = [pa.array(range(count)), pa.array([f"value {i}" for i in range(count)])]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA.wire)


@given(tables(), FORMATS, COMPRESSIONS, st.booleans(), st.data())
def test_both_ways(
    table: tuple[Schema, pa.RecordBatch],
    log_format: str,
    compression: Compression,
    append_only: bool,
    data: st.DataObject,
) -> None:
    schema, batch = table
    count = batch.num_rows
    changes = None
    if not append_only:
        changes = bytes(data.draw(st.lists(st.integers(0, 4), min_size=count, max_size=count)))
    pieces = encode_log_batch(
        encode_log_body(batch, schema, log_format, compression, changes),
        schema_id=3,
        record_count=count,
        append_only=append_only,
    )
    (header,) = iter_log_batches(b"".join(pieces))
    header.check_crc()
    decoded = decode_log_batch(header, schema, log_format)
    assert decoded.batch.equals(batch)
    assert decoded.batch.schema.equals(schema.wire)
    found = decoded.change_types
    assert (None if found is None else found.tobytes()) == changes
    shown = align_to(decoded.batch, schema, renamed(schema, "x"))
    assert shown.schema.equals(renamed(schema, "x").arrow)
    assert shown.schema.names == [name + "x" for name in batch.schema.names]


@given(
    st.lists(st.binary(max_size=300), max_size=4),
    st.integers(-1, 2**63 - 1),
    st.integers(-1, 2**31 - 1),
)
def test_a_sealed_body_takes_any_stamp(
    parts: list[bytes], writer_id: int, batch_sequence: int
) -> None:
    sealed = seal(parts)
    pieces = encode_log_batch(
        sealed, schema_id=1, record_count=5, writer_id=writer_id, batch_sequence=batch_sequence
    )
    (header,) = iter_log_batches(b"".join(pieces))
    header.check_crc()
    assert (header.writer_id, header.batch_sequence) == (writer_id, batch_sequence)
    assert bytes(header.body) == b"".join(parts)
    assert sealed.crc == crc32c(b"".join(parts))


def test_server_edits_keep_the_checksum() -> None:
    body = encode_log_body(rows(3), SCHEMA, "ARROW", Compression.NONE)
    data = bytearray(b"".join(encode_log_batch(body, schema_id=1, record_count=3)))
    data[0:8] = (1_000).to_bytes(8, "little")
    data[13:21] = (1_700_000_000_000).to_bytes(8, "little")
    (header,) = iter_log_batches(data)
    header.check_crc()
    assert (header.base_offset, header.last_offset, header.next_offset) == (1000, 1002, 1003)
    assert header.commit_timestamp == 1_700_000_000_000
    data[-1] ^= 1
    (header,) = iter_log_batches(data)
    with pytest.raises(CorruptDataError, match="checksum"):
        header.check_crc()


def test_projected_body() -> None:
    batch = rows(4).select(["b"])
    body = encode_log_body(batch, SCHEMA, "ARROW", Compression.ZSTD)
    (header,) = iter_log_batches(b"".join(encode_log_batch(body, schema_id=1, record_count=4)))
    assert decode_log_batch(header, SCHEMA, projection=[1]).batch.equals(batch)
    with pytest.raises(CorruptDataError):
        decode_log_batch(header, SCHEMA)


def test_a_wrong_count_is_found() -> None:
    body = encode_log_body(rows(4), SCHEMA, "ARROW", Compression.NONE)
    for count in (3, 5):
        pieces = encode_log_batch(body, schema_id=1, record_count=count)
        (header,) = iter_log_batches(b"".join(pieces))
        with pytest.raises(CorruptDataError, match="claims"):
            decode_log_batch(header, SCHEMA)


def test_unknown_change_types_and_formats() -> None:
    body = encode_log_body(rows(2), SCHEMA, "ARROW", Compression.NONE, b"\x01\x05")
    pieces = encode_log_batch(body, schema_id=1, record_count=2, append_only=False)
    (header,) = iter_log_batches(b"".join(pieces))
    with pytest.raises(CorruptDataError, match="change type"):
        decode_log_batch(header, SCHEMA)
    with pytest.raises(UnsupportedError, match="AVRO"):
        decode_log_batch(header, SCHEMA, "AVRO")


def test_headers_that_cannot_be() -> None:
    good = b"".join(encode_log_batch([], schema_id=1, record_count=0, append_only=False))
    assert [h.next_offset for h in iter_log_batches(good)] == [1]
    for at, damage in ((12, b"\x09"), (8, b"\x00" * 4), (44, b"\xff" * 4), (28, b"\x07")):
        bad = bytearray(good)
        bad[at : at + len(damage)] = damage
        with pytest.raises(CorruptDataError):
            list(iter_log_batches(bad))
    assert int.from_bytes(good[8:12], "little") == len(good) - LENGTH_END


def test_alignment_by_column_id() -> None:
    old = Schema.of(
        [Column("a", DataTypes.int(), id=0), Column("t", DataTypes.timestamp_ltz(), id=1)]
    )
    new = Schema.of(
        [
            Column("a2", DataTypes.int(), id=0),
            Column("t", DataTypes.timestamp_ltz(), id=1),
            Column("n", DataTypes.row([]), id=2),
        ]
    )
    batch = pa.RecordBatch.from_arrays(
        [pa.array([1, 2], pa.int32()), pa.array([5, None], pa.timestamp("us"))], schema=old.wire
    )
    shown = align_to(batch, old, new)
    assert shown.schema.equals(new.arrow)
    assert shown.column(1).type == pa.timestamp("us", "UTC")
    assert shown.column(1).buffers()[1].address == batch.column(1).buffers()[1].address
    assert shown.column(2).null_count == 2
    assert align_to(batch.select([1]), old, new, [2, 1]).schema.names == ["n", "t"]


def test_parsing_many_batches_is_lazy() -> None:
    one = b"".join(encode_log_batch([b"x" * 10], schema_id=1, record_count=1))
    stream = np.frombuffer(one * 1_000, np.uint8)
    first = next(iter_log_batches(memoryview(stream)))
    assert first.body.nbytes == 10
    assert sum(h.record_count for h in iter_log_batches(memoryview(stream))) == 1_000
