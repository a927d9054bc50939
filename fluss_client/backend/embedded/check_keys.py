"""Checks of a bucket's key state: its values, its count, and its changelog played again."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from fluss_client.backend.embedded.catalog import Bucket, Catalog, Stored
from fluss_client.backend.embedded.check_log import all_headers, read_batch
from fluss_client.backend.embedded.key_rows import decode_shown, distinct_ids, row_format
from fluss_client.backend.embedded.key_state import BUCKET_BYTES, bucket_range
from fluss_client.backend.embedded.merge import DELETE, INSERT, UPDATE_BEFORE
from fluss_client.backend.embedded.merging import has_full_image
from fluss_client.codec.blobs import Blobs
from fluss_client.codec.columns import align_to
from fluss_client.codec.keys import encode_keys, key_encoding_for
from fluss_client.codec.rows import encode_rows
from fluss_client.codec.value_batch import decode_values
from fluss_client.errors import FlussError
from fluss_client.model.table import TableInfo

ROWS_AT_ONCE = 10_000
SHOWN_MAX = 3


def check_keys(
    connection: sqlite3.Connection, catalog: Catalog, stored: Stored, bucket: Bucket, place: str
) -> Iterator[str]:
    """The problems of one bucket's key state."""
    held: dict[bytes, bytes] = {}
    try:
        for keys, rows in _stored_rows(connection, catalog, stored, bucket):
            held.update(zip(keys, rows, strict=True))
    except FlussError as error:
        yield f"{place}: its key state cannot be read: {error}"
        return
    if has_full_image(stored.info) and len(held) != bucket.row_count:
        yield f"{place}: has {len(held)} keys, its row count says {bucket.row_count}"
    if bucket.log_start:
        # The beginning of the changelog has expired: it cannot tell the whole state any more.
        return
    state: dict[bytes, bytes] = {}
    try:
        yield from _replay(connection, catalog, stored, bucket, place, state)
    except FlussError as error:
        yield f"{place}: its changelog cannot be played again: {error}"
        return
    if state != held:
        yield from _differences(place, state, held)


def _stored_rows(
    connection: sqlite3.Connection, catalog: Catalog, stored: Stored, bucket: Bucket
) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Keys and rows, all rows encoded anew in the table's newest schema."""
    cursor = connection.execute(
        "SELECT key, value FROM kv WHERE key >= ? AND key < ? ORDER BY key",
        bucket_range(bucket.no),
    )
    table = stored.info
    while pairs := cursor.fetchmany(ROWS_AT_ONCE):
        ids, rows = decode_values(Blobs.from_list([value for _, value in pairs]))
        schemas = {i: catalog.schema(connection, stored, i) for i in distinct_ids(ids)}
        batch = decode_shown(table, schemas, ids, rows, None)
        keys = [key[BUCKET_BYTES:] for key, _ in pairs]
        if keys != _keys(table, batch):
            raise FlussError("a key does not belong to its row")
        yield keys, _rows(table, batch)


def _keys(table: TableInfo, batch: pa.RecordBatch) -> list[bytes]:
    names = list(table.physical_primary_keys)
    encoding, _ = key_encoding_for(table.properties, table.bucket_keys, names)
    columns = [batch.column(table.schema.index[name]) for name in names]
    types = [table.schema.column(name).type for name in names]
    return encode_keys(columns, types, names, encoding).to_list()


def _rows(table: TableInfo, batch: pa.RecordBatch) -> list[bytes]:
    types = [column.type for column in table.schema.columns]
    return encode_rows(batch, types, row_format(table)).to_list()


def _replay(
    connection: sqlite3.Connection,
    catalog: Catalog,
    stored: Stored,
    bucket: Bucket,
    place: str,
    state: dict[bytes, bytes],
) -> Iterator[str]:
    table = stored.info
    full = has_full_image(table)
    for header in all_headers(connection, bucket):
        if not header.row_count:
            continue
        raw, changes = read_batch(connection, catalog, stored, header, place)
        written = catalog.schema(connection, stored, header.schema_id)
        batch = align_to(raw, written, table.schema)
        types = np.frombuffer(changes or b"", np.uint8).tolist()
        if len(types) != batch.num_rows:
            raise FlussError(f"{len(types)} change types at offset {header.base_offset}")
        wrong = 0
        for kind, key, row in zip(types, _keys(table, batch), _rows(table, batch), strict=True):
            if kind in (UPDATE_BEFORE, DELETE) and state.get(key) != row:
                wrong += 1
            if full and kind == INSERT and key in state:
                wrong += 1
            if kind == DELETE:
                state.pop(key, None)
            elif kind != UPDATE_BEFORE:
                state[key] = row
        if wrong:
            yield (
                f"{place}, offset {header.base_offset}: {wrong} changes do not follow from what "
                "was there before"
            )


def _differences(place: str, state: dict[bytes, bytes], held: dict[bytes, bytes]) -> Iterator[str]:
    keys = sorted(k for k in state.keys() | held.keys() if state.get(k) != held.get(k))
    shown = ", ".join(key.hex() for key in keys[:SHOWN_MAX])
    yield f"{place}: key state and changelog disagree on {len(keys)} keys ({shown} ...)"
