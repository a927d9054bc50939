"""Log batches as the Java classes of the server write them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from fluss_client.codec.arrow_body import Compression, encode_body
from fluss_client.codec.binary.crc32c import seal
from fluss_client.codec.log_batch import (
    LogBatchHeader,
    decode_log_batch,
    encode_log_batch,
    encode_log_body,
    iter_log_batches,
)
from fluss_client.model.schema import Schema

VECTORS = json.loads((Path(__file__).parent / "wire-vectors.json").read_text())
BATCHES = {entry["name"]: bytes.fromhex(entry["hex"]) for entry in VECTORS["log_batches"]}

SCHEMA = Schema(pa.schema([("a", pa.int32()), ("b", pa.string())]))
THREE = [{"a": 1, "b": "a"}, {"a": 2, "b": None}, {"a": None, "b": "ccc"}]
FORTY = [{"a": i, "b": f"value-{i % 4}"} for i in range(40)]
CHANGES = [{"a": 1, "b": v} for v in ("a", "a", "b", "b")]
ARROW_ROWS = {
    "none": THREE,
    "none_writer": THREE,
    "lz4_40rows": FORTY,
    "zstd_40rows": FORTY,
    "zstd_3rows": THREE,
    "changelog_none": CHANGES,
    "changelog_empty": [],
    "v1_stats_none": THREE,
    "v2_none": THREE,
}
WRITERS = {"none": (-1, -1), "lz4_40rows": (100, 1), "changelog_none": (100, 3)}


def only(name: str) -> LogBatchHeader:
    (header,) = iter_log_batches(memoryview(BATCHES[name]))
    return header


@pytest.mark.parametrize("name", BATCHES)
def test_header(name: str) -> None:
    header = only(name)
    header.check_crc()
    assert (header.base_offset, header.commit_timestamp, header.schema_id) == (0, 0, 1)
    assert header.magic == {"v1_stats_none": 1, "v2_none": 2}.get(name, 0)
    assert header.append_only is not name.startswith("changelog")
    if name in WRITERS:
        assert (header.writer_id, header.batch_sequence) == WRITERS[name]


@pytest.mark.parametrize("name", ARROW_ROWS)
def test_arrow_rows(name: str) -> None:
    header = only(name)
    decoded = decode_log_batch(header, SCHEMA)
    assert decoded.batch.to_pylist() == ARROW_ROWS[name]
    assert decoded.batch.schema == SCHEMA.wire
    if name == "changelog_none":
        assert decoded.change_types is not None
        assert decoded.change_types.tolist() == [1, 2, 3, 4]
    elif name != "changelog_empty":
        assert decoded.change_types is None
    assert header.next_offset == max(len(ARROW_ROWS[name]), 1)


@pytest.mark.parametrize("name", ["indexed", "compacted"])
def test_row_formats(name: str) -> None:
    header = only(name)
    decoded = decode_log_batch(header, SCHEMA, name)
    assert decoded.batch.to_pylist() == THREE
    assert decoded.batch.schema == SCHEMA.wire
    assert decoded.change_types is None
    projected = decode_log_batch(header, SCHEMA, name.upper(), [1]).batch
    assert projected.to_pylist() == [{"b": row["b"]} for row in THREE]
    pieces = encode_log_batch(
        encode_log_body(decoded.batch, SCHEMA, name, Compression.NONE),
        schema_id=1,
        record_count=3,
        writer_id=header.writer_id,
        batch_sequence=header.batch_sequence,
    )
    assert b"".join(pieces) == BATCHES[name]


def test_stream_of_every_batch_and_a_cut_tail() -> None:
    stream = b"".join(BATCHES.values())
    assert len(list(iter_log_batches(stream))) == len(BATCHES)
    tail = BATCHES["none"]
    for cut in range(len(tail)):
        assert len(list(iter_log_batches(stream + tail[:cut]))) == len(BATCHES)


@pytest.mark.parametrize("name", ["none", "none_writer", "changelog_none", "changelog_empty"])
def test_header_bytes_around_the_same_body(name: str) -> None:
    header = only(name)
    change_types = b"" if header.append_only else bytes(header.body[: header.record_count])
    body = header.body[len(change_types) :]
    pieces = encode_log_batch(
        seal([body]),
        schema_id=1,
        record_count=header.record_count,
        writer_id=header.writer_id,
        batch_sequence=header.batch_sequence,
        append_only=header.append_only,
        change_types=change_types,
    )
    assert b"".join(pieces) == BATCHES[name]


@pytest.mark.parametrize("codec", ["NONE", "LZ4_FRAME", "ZSTD"])
def test_our_bytes_read_back(codec: str) -> None:
    batch = pa.RecordBatch.from_pylist(FORTY, schema=SCHEMA.wire)
    pieces = encode_log_batch(
        [encode_body(batch, Compression(codec))], schema_id=7, record_count=40
    )
    (header,) = iter_log_batches(b"".join(pieces))
    header.check_crc()
    assert header.schema_id == 7
    assert decode_log_batch(header, SCHEMA).batch == batch
