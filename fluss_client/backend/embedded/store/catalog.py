"""The catalog: descriptions of tables, read from the database and cached in parsed form.

The row of a table has a random stamp that every change replaces. A cached description is current if
its stamp equals the stored one, which takes one small read. The stamp is random and not a counter,
because a transaction that is rolled back would give the same number to two different changes.
"""

from __future__ import annotations

import secrets
import sqlite3
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fluss_client.backend.embedded.store.layout import NO_PARTITION
from fluss_client.errors import (
    PartitionNotExistError,
    SchemaNotExistError,
    TableNotExistError,
    UnknownTableOrBucketError,
)
from fluss_client.model.json import descriptor_from_json, schema_from_json
from fluss_client.model.schema import Schema
from fluss_client.model.table import TableBucket, TableDescriptor, TableInfo, TablePath

_TABLE = "id, database, name, descriptor, schema_id, created, modified, stamp"
_BUCKET = "no, bucket_id, log_start, log_end, max_time, row_count, lake_end"


@dataclass(frozen=True, slots=True)
class Stored:
    """The stored description of a table, with its schemas as far as they were read."""

    info: TableInfo
    descriptor: TableDescriptor
    stamp: int
    schemas: dict[int, Schema] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Bucket:
    """A row of the table `bucket`."""

    no: int
    bucket_id: int
    log_start: int
    log_end: int
    max_time: int
    row_count: int
    lake_end: int


def now_ms() -> int:
    """Return the current time in milliseconds, for commits and creations."""
    return time.time_ns() // 1_000_000


def new_stamp() -> int:
    """Return a random number for a change of a table."""
    return secrets.randbits(62)


def take_number(connection: sqlite3.Connection, counter: str, count: int = 1) -> int:
    """Take `count` numbers of a counter and return the first; no number is used twice."""
    (value,) = connection.execute(
        "UPDATE meta SET value = value + ? WHERE name = ? RETURNING value - ?",
        (count, counter, count),
    ).fetchone()
    return int(value)


@contextmanager
def all_or_nothing(connection: sqlite3.Connection) -> Iterator[None]:
    """Roll back the writes of the block if it raises, and keep the transaction open.

    A savepoint lets one job or batch of a shared transaction fail without the others.
    """
    connection.execute("SAVEPOINT part")
    try:
        yield
    except BaseException:
        # After some errors, such as a full disk, SQLite has rolled back the whole transaction.
        if connection.in_transaction:
            connection.execute("ROLLBACK TO part")
            connection.execute("RELEASE part")
        raise
    connection.execute("RELEASE part")


def end_statements(error: BaseException) -> None:
    """Free the cursors that the frames of an error hold, so that their statements end."""
    link: BaseException | None = error
    while link is not None:
        traceback.clear_frames(link.__traceback__)
        link = link.__cause__ or link.__context__


class Catalog:
    """The tables of one directory.

    All worker threads use it without a lock: an entry is replaced as a whole, and each reader
    compares the stamp with its own transaction.
    """

    def __init__(self, lake_properties: Callable[[TableDescriptor], Mapping[str, str]]) -> None:
        self._lake_properties = lake_properties
        self._tables: dict[int, Stored] = {}

    def by_path(self, connection: sqlite3.Connection, path: TablePath) -> Stored:
        """Return the table of a path; error 7 if there is none."""
        row = connection.execute(
            "SELECT id, stamp FROM tbl WHERE database = ? AND name = ?",
            (path.database_name, path.table_name),
        ).fetchone()
        if row is None:
            raise TableNotExistError(f"table {path} does not exist")
        return self._stored(connection, *row)

    def by_id(self, connection: sqlite3.Connection, table_id: int) -> Stored:
        """Return the table of an id; error 21 if there is none (any more)."""
        row = connection.execute("SELECT stamp FROM tbl WHERE id = ?", (table_id,)).fetchone()
        if row is None:
            raise UnknownTableOrBucketError(f"there is no table with id {table_id} (any more)")
        return self._stored(connection, table_id, row[0])

    def _stored(self, connection: sqlite3.Connection, table_id: int, stamp: int) -> Stored:
        known = self._tables.get(table_id)
        if known is not None and known.stamp == stamp:
            return known
        row = connection.execute(f"SELECT {_TABLE} FROM tbl WHERE id = ?", (table_id,)).fetchone()
        stored = self._parsed(connection, row)
        self._tables[table_id] = stored
        return stored

    def _parsed(self, connection: sqlite3.Connection, row: Any) -> Stored:
        table_id, database, name, text, schema_id, created, modified, stamp = row
        descriptor = descriptor_from_json(text)
        schema = _read_schema(connection, table_id, schema_id)
        info = TableInfo(
            table_id=table_id,
            table_path=TablePath(database, name),
            schema_id=schema_id,
            schema=schema,
            partition_keys=descriptor.partition_keys,
            bucket_keys=descriptor.bucket_keys,
            num_buckets=descriptor.bucket_count or 1,
            properties={**descriptor.properties, **self._lake_properties(descriptor)},
            custom_properties=descriptor.custom_properties,
            comment=descriptor.comment,
            created_time=created,
            modified_time=modified,
        )
        return Stored(info, descriptor, stamp, {schema_id: schema})

    def schema(self, connection: sqlite3.Connection, stored: Stored, schema_id: int) -> Schema:
        """Return a schema of the table by id; error 9 if it has none of that id."""
        known = stored.schemas.get(schema_id)
        if known is None:
            known = _read_schema(connection, stored.info.table_id, schema_id)
            stored.schemas[schema_id] = known
        return known


def _read_schema(connection: sqlite3.Connection, table_id: int, schema_id: int) -> Schema:
    row = connection.execute(
        "SELECT schema FROM tbl_schema WHERE table_id = ? AND schema_id = ?",
        (table_id, schema_id),
    ).fetchone()
    if row is None:
        raise SchemaNotExistError(f"table {table_id} has no schema {schema_id}")
    return schema_from_json(row[0])


def find_bucket(connection: sqlite3.Connection, bucket: TableBucket) -> Bucket:
    """Return the row of a bucket; error 21 if there is none (any more)."""
    partition = NO_PARTITION if bucket.partition_id is None else bucket.partition_id
    row = connection.execute(
        f"SELECT {_BUCKET} FROM bucket WHERE table_id = ? AND partition_id = ? AND bucket_id = ?",
        (bucket.table_id, partition, bucket.bucket_id),
    ).fetchone()
    if row is None:
        raise no_bucket(bucket)
    return Bucket(*row)


def no_bucket(bucket: TableBucket) -> UnknownTableOrBucketError:
    """Return the error for a bucket that does not exist."""
    return UnknownTableOrBucketError(f"there is no {bucket} (any more)")


def check_exists(
    connection: sqlite3.Connection, table: TableInfo, partition_id: int | None
) -> None:
    """Raise error 7 or 36 if the table, or the partition, does not exist any more."""
    found = connection.execute("SELECT 1 FROM tbl WHERE id = ?", (table.table_id,)).fetchone()
    if found is None:
        raise TableNotExistError(f"table {table.table_path} does not exist (any more)")
    if partition_id is None:
        return
    found = connection.execute(
        "SELECT 1 FROM part WHERE id = ? AND table_id = ?", (partition_id, table.table_id)
    ).fetchone()
    if found is None:
        raise PartitionNotExistError(
            f"partition {partition_id} of table {table.table_path} does not exist (any more)"
        )
