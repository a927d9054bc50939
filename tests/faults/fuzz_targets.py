"""What the coverage-guided fuzzer feeds: every reader of foreign bytes, with whole inputs to start.

A target takes any bytes. It returns, or raises one of `REFUSALS`; anything else is a finding.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from fluss_client.codec.arrow_body import Compression, decode_body, encode_body
from fluss_client.codec.arrow_columns import to_wire
from fluss_client.codec.binary.blobs import Blobs
from fluss_client.codec.kv_batch import (
    decode_kv_batch,
    decode_value,
    decode_value_batch,
    encode_kv_batch,
)
from fluss_client.codec.log_batch import (
    decode_log_batches,
    encode_log_batch,
    encode_log_body,
    iter_log_batches,
)
from fluss_client.codec.rows import RowFormat, decode_row_scalar, decode_rows, encode_rows
from fluss_client.errors import FlussError
from fluss_client.model.json import (
    database_from_json,
    descriptor_from_json,
    descriptor_to_json,
    schema_from_json,
    schema_to_json,
)
from fluss_client.model.schema import Schema
from fluss_client.model.table import TableDescriptor
from fluss_client.wire import fluss_pb2 as pb
from fluss_client.wire import hot
from fluss_client.wire.rpc import decode_response
from fluss_orchestrate.cli.presentation.failures import UsageError
from fluss_orchestrate.core.row_filter import RowFilter
from fluss_orchestrate.spark.source.options import read_point
from tests.faults.specimens import EVENT, READERS, event_in
from tests.faults.test_bad_texts import PARSERS, WORDS

REFUSALS = (FlussError, UsageError)
CORPUS = Path(__file__).parent / "corpus"

SCHEMA = Schema(
    pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("name", pa.string()),
            ("price", pa.decimal128(22, 4)),
            ("at", pa.timestamp("us")),
            ("tags", pa.list_(pa.string())),
            ("counts", pa.map_(pa.string(), pa.int32())),
            ("place", pa.struct([("x", pa.float64()), ("y", pa.binary())])),
        ]
    )
)
TYPES = tuple(column.type for column in SCHEMA.columns)
NAMES = tuple(SCHEMA.get_column_names())
ROWS = to_wire(
    pa.RecordBatch.from_pylist(
        [
            {"id": 1, "name": "é", "tags": ["a", None], "counts": [("k", 2)], "place": {"x": 0.5}},
            {"id": -7, "price": None, "at": 1_700_000_000_000_000},
        ],
        schema=SCHEMA.arrow,
    ),
    SCHEMA.wire,
)


@dataclass(frozen=True)
class Target:
    """A reader and whole inputs of it."""

    read: Callable[[bytes], Any]
    seeds: tuple[bytes, ...]

    def __call__(self, data: bytes) -> None:
        """Read; a refusal is fine."""
        try:
            self.read(data)
        except REFUSALS:
            return


def _log(log_format: str) -> Target:
    def read(data: bytes) -> None:
        headers = list(iter_log_batches(data))
        for decoded in decode_log_batches(headers, SCHEMA, log_format):
            decoded.batch.serialize()

    seeds = []
    for codec in (Compression.NONE, Compression.LZ4_FRAME, Compression.ZSTD):
        for changes in (None, bytes([1, 2])):
            body = encode_log_body(ROWS, SCHEMA, log_format, codec, changes)
            parts = encode_log_batch(body, schema_id=1, record_count=2, append_only=changes is None)
            seeds.append(b"".join(bytes(part) for part in parts))
            seeds.append(seeds[-1] * 2)
    return Target(read, tuple(seeds))


def _rows(fmt: RowFormat) -> Target:
    def read(data: bytes) -> None:
        try:
            decode_row_scalar(data, TYPES, NAMES, fmt)
        finally:
            decode_rows(Blobs.from_list([data, data]), TYPES, NAMES, fmt).serialize()

    return Target(read, tuple(encode_rows(ROWS, TYPES, fmt).to_list()))


def _key_batch() -> bytes:
    keys = Blobs.from_list([b"a", b"bc"])
    rows = encode_rows(ROWS, TYPES, RowFormat.COMPACTED)
    return b"".join(bytes(part) for part in encode_kv_batch(keys, rows, schema_id=1))


def _answers() -> Iterator[tuple[str, Target]]:
    fetched = pb.FetchLogResponse()
    bucket = fetched.tables_resp.add(table_id=1).buckets_resp.add(bucket_id=0)
    bucket.records, bucket.high_watermark = b"abc", 9
    found = pb.LookupResponse()
    found.buckets_resp.add(bucket_id=0).values.add(values=b"\x01\x00xyz")
    for name, reader, seed in (
        ("answer of a fetch", hot.decode_fetch_log, fetched.SerializeToString()),
        ("answer of a look-up", hot.decode_lookup, found.SerializeToString()),
        ("answer of a prefix look-up", hot.decode_prefix_lookup, found.SerializeToString()),
        ("answer of a limit scan", hot.decode_limit_scan, b"\x22\x03abc"),
    ):
        yield name, Target(reader, (seed,))
    yield (
        "frame",
        Target(decode_response, (b"\x00\x00\x00\x00\x01abc", b"\x01\x00\x00\x00\x01\x08\x07")),
    )


def _json_readers() -> Iterator[tuple[str, Target]]:
    descriptor = TableDescriptor(SCHEMA, bucket_count=3, properties={"table.log.ttl": "1d"})
    yield "schema", Target(schema_from_json, (schema_to_json(SCHEMA),))
    yield "descriptor", Target(descriptor_from_json, (descriptor_to_json(descriptor),))
    yield "database", Target(database_from_json, (b'{"version":1,"comment":"c"}',))
    columns = {"name": EVENT.name, "seq": 5, "kind": "commit", "nonce": EVENT.nonce}
    yield "checkpoint", Target(lambda data: event_in(columns, data), (EVENT.body(),))
    for name, (whole, reader) in READERS.items():
        seed = json.dumps(whole).encode()
        yield name, Target(lambda data, reader=reader: _from_json(reader, data), (seed,))


def _from_json(reader: Callable[[Any], Any], data: bytes) -> Any:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return reader(value)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _texts() -> Iterator[tuple[str, Target]]:
    seeds = tuple(word.encode("utf-8", "surrogatepass") for word in WORDS)
    for name, parser in PARSERS.items():
        yield (
            name,
            Target(lambda data, parser=parser: parser(data.decode("utf-8", "replace")), seeds),
        )
    yield (
        "row filter",
        Target(
            lambda data: RowFilter.parse(_text(data)),
            (b"amount > 10 and (name in ('a', 'b') or not at is null)",),
        ),
    )
    yield (
        "starting point of a stream",
        Target(
            lambda data: read_point(_text(data), "starting"),
            (b"earliest", b"2026-01-01T00:00:00Z", b'{"0": 5, "3/1": 7}'),
        ),
    )


TARGETS: dict[str, Target] = {
    "log, ARROW": _log("ARROW"),
    "log, INDEXED": _log("INDEXED"),
    "log, COMPACTED": _log("COMPACTED"),
    "Arrow body": Target(
        lambda data: decode_body(data, SCHEMA.wire).serialize(),
        tuple(bytes(encode_body(ROWS, c)) for c in (Compression.NONE, Compression.ZSTD)),
    ),
    "row, INDEXED": _rows(RowFormat.INDEXED),
    "row, COMPACTED": _rows(RowFormat.COMPACTED),
    "key batch": Target(decode_kv_batch, (_key_batch(),)),
    "value": Target(decode_value, (b"\x01\x00abc",)),
    "values": Target(
        decode_value_batch, (b"\x0c\x00\x00\x00\x00\x01\x00\x00\x00\x03\x00\x00\x00\x01\x00x",)
    ),
    **dict(_answers()),
    **dict(_json_readers()),
    **dict(_texts()),
}


def folder_of(name: str) -> Path:
    """Where the inputs lie that broke a target once."""
    return CORPUS / name.replace(" ", "-").replace(",", "")
