"""Reads logs from an offset on, up to a number of bytes; the batches stay encoded."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

from fluss_client.backend.contract import FetchedBucket, FetchPosition, FetchRequest, LogSlice
from fluss_client.backend.embedded.log.appends import batch_id
from fluss_client.backend.embedded.log.batches import (
    HEADER_BYTES,
    Decoder,
    Encoded,
    Message,
    StoredSlice,
)
from fluss_client.backend.embedded.store.catalog import (
    Bucket,
    Catalog,
    Stored,
    end_statements,
    find_bucket,
)
from fluss_client.backend.embedded.store.layout import OFFSET_MAX
from fluss_client.errors import FlussError, LogOffsetOutOfRangeError
from fluss_client.model.cluster import EARLIEST_OFFSET
from fluss_client.model.schema import Schema
from fluss_client.model.table import TableBucket, TableInfo

EVERYTHING_BYTES = 1 << 62


@dataclass(frozen=True, slots=True)
class Header:
    """A row of `log` without its messages."""

    id: int
    next_offset: int
    commit_time: int
    schema_id: int
    row_count: int
    nbytes: int
    first_column: int
    column_count: int

    @property
    def base_offset(self) -> int:
        """The offset of the batch's first row."""
        return self.id & OFFSET_MAX


HEADER = "id, next_offset, commit_time, schema_id, row_count, nbytes, first_column, column_count"
"""The columns of `log` that make a `Header`."""


def headers(connection: sqlite3.Connection, bucket: Bucket, start: int) -> Iterator[Header]:
    """Yield the batches from the one with offset `start` to the end of the log."""
    rows = connection.execute(
        f"SELECT {HEADER} FROM log "
        "WHERE id >= (SELECT max(id) FROM log WHERE id <= ?) AND id < ? ORDER BY id",
        (batch_id(bucket.no, start), batch_id(bucket.no, bucket.log_end)),
    )
    return (Header(*row) for row in rows)


def load(
    connection: sqlite3.Connection, header: Header, kept: list[int] | None = None
) -> tuple[Encoded, bytes | None]:
    """Return a batch's messages and change types.

    If the columns are stored separately, only those in `kept` are read.
    """
    if not header.column_count:
        changes, crc, body = connection.execute(
            "SELECT changes, crc, body FROM log WHERE id = ?", (header.id,)
        ).fetchone()
        messages = [] if body is None else [Message(0, crc, body)]
        return Encoded(messages, header.nbytes), changes
    (changes,) = connection.execute("SELECT changes FROM log WHERE id = ?", (header.id,)).fetchone()
    where, values = _columns(header, kept)
    rows = connection.execute(
        f"SELECT id - ?, crc, body FROM log_column WHERE {where}", (header.first_column, *values)
    )
    return Encoded([Message(*row) for row in rows], header.nbytes, by_column=True), changes


def _columns(header: Header, kept: list[int] | None) -> tuple[str, list[int]]:
    """Return the SQL condition, and its values, for the columns of a batch."""
    first = header.first_column
    if kept is None:
        return "id BETWEEN ? AND ?", [first, first + header.column_count - 1]
    return f"id IN ({','.join('?' * len(kept))})", [first + position for position in kept]


class Reader:
    """Reads some buckets of one table, up to a number of bytes."""

    def __init__(
        self, connection: sqlite3.Connection, catalog: Catalog, request: FetchRequest
    ) -> None:
        self._connection = connection
        self._catalog = catalog
        self._request = request
        self._left = request.bytes_max
        self.nbytes = 0
        self.failed = False

    def read(self) -> list[FetchedBucket]:
        """Read each bucket from its position on; return at least one batch if there is any."""
        answers = []
        for position in self._request.positions:
            try:
                answers.append(self._bucket(position))
            except FlussError as error:
                self.failed = True
                end_statements(error)
                answers.append(FetchedBucket(position.bucket, error=error))
        return answers

    def _bucket(self, position: FetchPosition) -> FetchedBucket:
        bucket = find_bucket(self._connection, position.bucket)
        earliest = position.offset == EARLIEST_OFFSET
        start = bucket.log_start if earliest else position.offset
        if not bucket.log_start <= start <= bucket.log_end:
            raise LogOffsetOutOfRangeError(
                f"{position.bucket} has offsets {bucket.log_start} to {bucket.log_end}, not {start}"
            )
        slices = []
        if start < bucket.log_end:
            stored = self._catalog.by_id(self._connection, position.bucket.table_id)
            slices = list(self._slices(stored, bucket, position, start))
        following = slices[-1].next_offset if slices else position.offset
        return FetchedBucket(position.bucket, slices, bucket.log_end, following)

    def _slices(
        self, stored: Stored, bucket: Bucket, position: FetchPosition, start: int
    ) -> Iterator[LogSlice]:
        room = min(position.bytes_max, self._left)
        for header in headers(self._connection, bucket, start):
            written = self._catalog.schema(self._connection, stored, header.schema_id)
            kept = None
            if header.column_count and self._request.columns is not None:
                kept = _kept_positions(self._request.table.schema, self._request.columns, written)
            size = header.nbytes if kept is None else self._size(header, kept)
            if size > room and self.nbytes:
                return
            room -= size
            self._left -= size
            self.nbytes += size
            yield self._slice(position.bucket, header, written, kept, start)

    def _size(self, header: Header, kept: list[int]) -> int:
        where, values = _columns(header, kept)
        (size,) = self._connection.execute(
            f"SELECT total(length(body)) FROM log_column WHERE {where}", values
        ).fetchone()
        return HEADER_BYTES + int(size)

    def _slice(
        self,
        place: TableBucket,
        header: Header,
        written: Schema,
        kept: list[int] | None,
        start: int,
    ) -> LogSlice:
        encoded, changes = load(self._connection, header, kept)
        table, columns = self._request.table, self._request.columns
        skip = max(0, start - header.base_offset)
        where = f"offset {header.base_offset} of {place}"
        return LogSlice(
            base_offset=header.base_offset + skip,
            next_offset=header.next_offset,
            row_count=max(0, header.row_count - skip),
            timestamp=header.commit_time,
            nbytes=encoded.nbytes,
            decoder=Decoder(written, table, columns),
            encoded=StoredSlice(encoded, changes, header.row_count, skip, where),
        )


def _kept_positions(shown: Schema, columns: tuple[int, ...], written: Schema) -> list[int]:
    """Return the positions of the wanted columns in the schema of a stored batch."""
    ids = {shown.columns[i].id for i in columns}
    # A batch from before all these columns were added still has a number of rows: read column 0.
    return [i for i, column in enumerate(written.columns) if column.id in ids] or [0]


def last_slices(
    connection: sqlite3.Connection,
    catalog: Catalog,
    table: TableInfo,
    place: TableBucket,
    limit: int,
    columns: tuple[int, ...] | None,
) -> list[LogSlice]:
    """Return the complete batches with the last `limit` offsets of a log."""
    bucket = find_bucket(connection, place)
    if limit <= 0 or bucket.log_start == bucket.log_end:
        return []
    # Empty batches take offsets too, so rows before `wanted` may be needed: read whole batches.
    wanted = max(bucket.log_start, bucket.log_end - limit)
    start = next(headers(connection, bucket, wanted)).base_offset
    position = FetchPosition(place, start, EVERYTHING_BYTES)
    request = FetchRequest(table, [position], columns, bytes_max=EVERYTHING_BYTES)
    answer = Reader(connection, catalog, request).read()[0]
    if answer.error is not None:
        raise answer.error
    return list(answer.slices)


def read_buckets(
    connection: sqlite3.Connection, catalog: Catalog, request: FetchRequest
) -> tuple[list[FetchedBucket], int, bool]:
    """Return the answers of the buckets, their size, and whether one of them failed."""
    reader = Reader(connection, catalog, request)
    answers = reader.read()
    return answers, reader.nbytes, reader.failed
