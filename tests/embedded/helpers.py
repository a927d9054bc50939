"""Driving a backend by its contract: tables, rows in, rows out. Works on any backend."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from fluss_client.backend.contract import (
    NO_WRITER,
    Backend,
    BucketAck,
    BucketWrite,
    FetchPosition,
    FetchRequest,
    WriteRoute,
)
from fluss_client.backend.embedded.backend import EmbeddedBackend
from fluss_client.codec.binary.blobs import Blobs
from fluss_client.codec.keys import encode_keys, key_encoding_for
from fluss_client.codec.rows import RowFormat, encode_rows
from fluss_client.config import Config
from fluss_client.model.cluster import ChangeType, OffsetSpec
from fluss_client.model.schema import Schema
from fluss_client.model.table import TableBucket, TableDescriptor, TableInfo, TablePath

T = TypeVar("T")
Row = dict[str, Any]
Change = tuple[int, str, Row]
"""An offset, `+I` and its kind, a row."""

LOG_SCHEMA = pa.schema([("id", pa.int32()), ("name", pa.string())])
KEY_SCHEMA = pa.schema(
    [pa.field("k", pa.int32(), nullable=False), ("a", pa.string()), ("b", pa.int64())]
)
EVERYTHING = 1 << 40


def on_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a loop of its own."""
    return asyncio.run(coroutine)


@asynccontextmanager
async def opened(path: Path, **keys: Any) -> AsyncIterator[EmbeddedBackend]:
    """The directory's backend, closed at the end; not synced to disk unless asked for."""
    settings = {"embedded.synchronous": "off"} | {k.replace("__", "."): v for k, v in keys.items()}
    backend = await EmbeddedBackend.open(
        Config({"bootstrap.servers": f"embedded:{path}", **settings})
    )
    try:
        yield backend
    finally:
        await backend.close()


async def make_table(
    backend: Backend,
    name: str = "t",
    schema: pa.Schema | Schema = LOG_SCHEMA,
    keys: Sequence[str] = (),
    database: str = "fluss",
    **details: Any,
) -> TableInfo:
    """A new table."""
    path = TablePath(database, name)
    full = schema if isinstance(schema, Schema) else Schema(schema, primary_keys=list(keys))
    await backend.create_table(path, TableDescriptor(full, **details), False)
    return await backend.get_table_info(path)


async def key_table(backend: Backend, name: str = "k", **details: Any) -> TableInfo:
    """A new table of keys `k` with columns `a` and `b`."""
    return await make_table(backend, name, KEY_SCHEMA, ["k"], **details)


def place_of(table: TableInfo, bucket: int = 0, partition_id: int | None = None) -> TableBucket:
    """A bucket of a table."""
    return TableBucket(table.table_id, bucket, partition_id=partition_id)


async def append(
    backend: Backend,
    table: TableInfo,
    rows: Sequence[Row],
    *,
    place: TableBucket | None = None,
    writer_id: int = NO_WRITER,
    sequence: int = -1,
) -> BucketAck:
    """Append rows; the answer may hold an error."""
    batch = pa.RecordBatch.from_pylist(list(rows), schema=table.schema.wire)
    write = BucketWrite(
        place or place_of(table), backend.encode_append(table, batch), writer_id, sequence
    )
    node = await backend.locate(table, write.bucket)
    return (await backend.append(table, WriteRoute(node), [write], -1, 30_000))[0]


def encode(
    backend: Backend, table: TableInfo, rows: Sequence[Row], deletes: Sequence[bool] | None
) -> Any:
    """Rows as a payload for an upsert."""
    batch = pa.RecordBatch.from_pylist(list(rows), schema=table.schema.wire)
    names = list(table.physical_primary_keys)
    encoding, _ = key_encoding_for(table.properties, table.bucket_keys, names)
    columns = [batch.column(table.schema.index[name]) for name in names]
    types = [table.schema.column(name).type for name in names]
    keys = encode_keys(columns, types, names, encoding)
    kind = RowFormat[table.properties.get("table.kv.format", "COMPACTED").upper()]
    encoded = encode_rows(batch, [c.type for c in table.schema.columns], kind)
    marks = None if deletes is None else np.array(deletes, np.bool_)
    return backend.encode_upsert(table, keys, encoded, marks)


async def upsert(
    backend: Backend,
    table: TableInfo,
    rows: Sequence[Row],
    deletes: Sequence[bool] | None = None,
    *,
    targets: Sequence[int] | None = None,
    place: TableBucket | None = None,
    writer_id: int = NO_WRITER,
    sequence: int = -1,
) -> BucketAck:
    """Upsert and delete rows; the answer may hold an error."""
    payload = encode(backend, table, rows, deletes)
    write = BucketWrite(place or place_of(table), payload, writer_id, sequence)
    node = await backend.locate(table, write.bucket)
    return (await backend.upsert(table, WriteRoute(node), [write], targets, -1, 30_000))[0]


async def read_log(
    backend: Backend,
    table: TableInfo,
    place: TableBucket | None = None,
    offset: int = 0,
    columns: tuple[int, ...] | None = None,
) -> list[Change]:
    """Every record of a bucket from an offset on."""
    place = place or place_of(table)
    found: list[Change] = []
    node = await backend.locate(table, place)
    while True:
        position = FetchPosition(place, offset, 1 << 20)
        request = FetchRequest(table, [position], columns, wait_ms=0)
        answer = (await backend.fetch(node, request))[0]
        if answer.error is not None:
            raise answer.error
        if not answer.slices:
            return found
        for part in answer.slices:
            batch, changes = part.decode()
            kinds = [0] * batch.num_rows if changes is None else changes.tolist()
            for at, (kind, row) in enumerate(zip(kinds, batch.to_pylist(), strict=True)):
                found.append((part.base_offset + at, ChangeType(kind).short_string(), row))
        offset = answer.next_offset


async def read_rows(backend: Backend, table: TableInfo, **details: Any) -> list[Row]:
    """The rows of a log alone."""
    return [row for _, _, row in await read_log(backend, table, **details)]


async def key_state(
    backend: Backend, table: TableInfo, place: TableBucket | None = None
) -> list[Row]:
    """The rows of a bucket's key state, in key order."""
    batch = await backend.limit_scan(table, place or place_of(table), (1 << 31) - 1, None)
    rows: list[Row] = batch.to_pylist()
    return rows


async def end_of(backend: Backend, table: TableInfo, place: TableBucket | None = None) -> int:
    """Where a bucket's log ends."""
    place = place or place_of(table)
    found = await backend.list_offsets(
        table, place.partition_id, [place.bucket_id], OffsetSpec.latest()
    )
    return found[place.bucket_id]


def keys_of(table: TableInfo, rows: Sequence[Row]) -> Blobs:
    """The encoded keys of some rows, which need to hold the key columns only."""
    names = list(table.physical_primary_keys)
    encoding, _ = key_encoding_for(table.properties, table.bucket_keys, names)
    types = [table.schema.column(name).type for name in names]
    columns = [
        pa.array([row[name] for row in rows], table.schema.wire.field(name).type) for name in names
    ]
    return encode_keys(columns, types, names, encoding)
