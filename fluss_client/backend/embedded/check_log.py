"""Checks of a bucket's log: contiguous, in time order, every batch whole and readable."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from fluss_client.backend.embedded.batches import decode_batch
from fluss_client.backend.embedded.catalog import Bucket, Catalog, Stored
from fluss_client.backend.embedded.ddl import OFFSET_MAX
from fluss_client.backend.embedded.log import batch_id
from fluss_client.backend.embedded.merge import DELETE, INSERT
from fluss_client.backend.embedded.reading import HEADER, Header, load
from fluss_client.errors import FlussError


def check_log(
    connection: sqlite3.Connection, catalog: Catalog, stored: Stored, bucket: Bucket, place: str
) -> Iterator[str]:
    """The problems of one bucket's log."""
    expected, latest = bucket.log_start, -1
    for header in all_headers(connection, bucket):
        at = f"{place}, offset {header.base_offset}"
        if header.base_offset != expected:
            yield f"{at}: the log should go on at offset {expected}"
        if header.next_offset - header.base_offset != max(header.row_count, 1):
            yield f"{at}: {header.row_count} rows end at offset {header.next_offset}"
        if header.commit_time < latest:
            yield f"{at}: its commit time lies before that of the batch before it"
        expected, latest = header.next_offset, max(latest, header.commit_time)
        yield from _check_batch(connection, catalog, stored, header, at)
    if expected != bucket.log_end:
        yield f"{place}: the batches end at offset {expected}, the log at {bucket.log_end}"
    if latest > bucket.max_time:
        yield f"{place}: a batch is newer than the bucket's newest commit time"


def all_headers(connection: sqlite3.Connection, bucket: Bucket) -> list[Header]:
    """Every batch of a bucket, also where they should not be."""
    rows = connection.execute(
        f"SELECT {HEADER} FROM log WHERE id BETWEEN ? AND ? ORDER BY id",
        (batch_id(bucket.no, 0), batch_id(bucket.no, OFFSET_MAX)),
    )
    return [Header(*row) for row in rows]


def read_batch(
    connection: sqlite3.Connection, catalog: Catalog, stored: Stored, header: Header, place: str
) -> tuple[pa.RecordBatch, bytes | None]:
    """A batch's rows as wire types of its own schema, fully validated, and its change types."""
    schema = catalog.schema(connection, stored, header.schema_id)
    encoded, changes = load(connection, header)
    if header.column_count:
        held = [message.position for message in encoded.messages]
        if held != list(range(len(schema.columns))):
            raise FlussError(f"it has columns {held} of {len(schema.columns)}")
    batch = decode_batch(encoded, schema.wire, header.row_count, place)
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        raise FlussError(f"its rows are not valid: {error}") from error
    return batch, changes


def _check_batch(
    connection: sqlite3.Connection, catalog: Catalog, stored: Stored, header: Header, at: str
) -> Iterator[str]:
    try:
        batch, changes = read_batch(connection, catalog, stored, header, at)
    except FlussError as error:
        yield f"{at}: {error}"
        return
    if batch.num_rows != header.row_count:
        yield f"{at}: holds {batch.num_rows} rows instead of {header.row_count}"
    if stored.info.has_primary_key() != (changes is not None):
        yield f"{at}: change types are there in a log table, or missing in a changelog"
    if changes is not None:
        types = np.frombuffer(changes, np.uint8)
        if types.size != header.row_count or ((types < INSERT) | (types > DELETE)).any():
            yield f"{at}: its change types are not one per row, or unknown"
