"""Partitions: created and dropped by calls, and by time for auto-partitioned tables.

The server creates and drops auto-partitions in the background. The embedded engine has no
background task for that: it does so when the directory is opened, when the table is created, and
when its partitions are listed or looked up.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from fluss_client.backend.embedded.store import options, validation
from fluss_client.backend.embedded.store.catalog import (
    Catalog,
    Stored,
    check_exists,
    now_ms,
    take_number,
)
from fluss_client.backend.embedded.store.tables import add_buckets
from fluss_client.codec.auto_partition import AutoPartition, TimeUnit
from fluss_client.codec.partition_names import (
    SEPARATOR,
    VALUE_LENGTH_MAX,
    parse_partition_name,
    validate_partition_value,
)
from fluss_client.errors import (
    InvalidPartitionError,
    PartitionAlreadyExistError,
    PartitionNotExistError,
    TableNotPartitionedError,
    TooManyBucketsError,
    TooManyPartitionsError,
    UnknownServerError,
)
from fluss_client.model.table import PartitionInfo, TableInfo, TablePath

_VALUE = re.compile(r"[A-Za-z0-9_-]+\Z")


def create_partition(
    connection: sqlite3.Connection,
    catalog: Catalog,
    path: TablePath,
    spec: Mapping[str, str],
    ignore_if_exists: bool,
) -> None:
    """Create a partition with its buckets; errors 7, 37, 43, 42, 45 and 49."""
    stored = _partitioned(connection, catalog, path)
    name = _name(stored.info, spec, creating=True)
    validation.check_replication(stored.descriptor)
    if _id_of(connection, stored.info.table_id, name) is not None:
        if ignore_if_exists:
            return
        raise PartitionAlreadyExistError(f"table {path} has a partition '{name}' already")
    add_partition(connection, stored.info, name)


def add_partition(connection: sqlite3.Connection, table: TableInfo, name: str) -> None:
    """Create a partition that does not exist; errors 45 and 49 above the limits."""
    (count,) = connection.execute(
        "SELECT count(*) FROM part WHERE table_id = ?", (table.table_id,)
    ).fetchone()
    if count + 1 > validation.PARTITIONS_MAX:
        raise TooManyPartitionsError(
            f"table {table.table_path} has {count} partitions and takes no more"
        )
    (buckets,) = connection.execute(
        "SELECT count(*) FROM bucket WHERE table_id = ?", (table.table_id,)
    ).fetchone()
    if buckets + table.num_buckets > validation.BUCKETS_MAX:
        raise TooManyBucketsError(
            f"partition '{name}' would give table {table.table_path} more than "
            f"{validation.BUCKETS_MAX} buckets"
        )
    partition_id = take_number(connection, "next_partition_id")
    connection.execute("INSERT INTO part VALUES (?, ?, ?)", (partition_id, table.table_id, name))
    add_buckets(connection, table.table_id, partition_id, table.num_buckets)


def drop_partition(
    connection: sqlite3.Connection,
    catalog: Catalog,
    path: TablePath,
    spec: Mapping[str, str],
    ignore_if_not_exists: bool,
) -> None:
    """Remove a partition with its data; errors 7, 37, 43 and 36."""
    stored = _partitioned(connection, catalog, path)
    name = _name(stored.info, spec, creating=False)
    partition_id = _id_of(connection, stored.info.table_id, name)
    if partition_id is None:
        if ignore_if_not_exists:
            return
        raise PartitionNotExistError(f"table {path} has no partition '{name}'")
    _remove(connection, partition_id)


def _remove(connection: sqlite3.Connection, partition_id: int) -> None:
    connection.execute(
        "INSERT INTO garbage SELECT no FROM bucket WHERE partition_id = ?", (partition_id,)
    )
    connection.execute("DELETE FROM bucket WHERE partition_id = ?", (partition_id,))
    connection.execute("DELETE FROM part WHERE id = ?", (partition_id,))


def list_partitions(
    connection: sqlite3.Connection,
    catalog: Catalog,
    path: TablePath,
    spec: Mapping[str, str] | None,
) -> list[PartitionInfo]:
    """Return the partitions with the values of `spec`; errors 7 and 37, -1 for other keys."""
    stored = _partitioned(connection, catalog, path)
    keys = stored.info.partition_keys
    rows = connection.execute(
        "SELECT id, name, (SELECT max(bucket_id) + 1 FROM bucket "
        "WHERE bucket.table_id = part.table_id AND partition_id = part.id) "
        "FROM part WHERE table_id = ? ORDER BY id",
        (stored.info.table_id,),
    ).fetchall()
    found = []
    for partition_id, name, count in rows:
        values = parse_partition_name(name, keys)
        for key in spec or ():
            if key not in values:
                raise UnknownServerError(f"table {path} has no partition key '{key}'")
        if all(values[key] == value for key, value in (spec or {}).items()):
            found.append(PartitionInfo(partition_id, name, values, count))
    return found


def partition_id(connection: sqlite3.Connection, table: TableInfo, name: str) -> int:
    """Return the id of a partition; errors 7 and 37 for the table, 36 for the name."""
    check_exists(connection, table, None)
    if not table.is_partitioned():
        raise TableNotPartitionedError(f"table {table.table_path} has no partitions")
    found = _id_of(connection, table.table_id, name)
    if found is None:
        raise PartitionNotExistError(
            f"table {table.table_path} has no partition '{name}': create it before writing to it"
        )
    return found


def _id_of(connection: sqlite3.Connection, table_id: int, name: str) -> int | None:
    row = connection.execute(
        "SELECT id FROM part WHERE table_id = ? AND name = ?", (table_id, name)
    ).fetchone()
    return None if row is None else int(row[0])


def _partitioned(connection: sqlite3.Connection, catalog: Catalog, path: TablePath) -> Stored:
    stored = catalog.by_path(connection, path)
    if not stored.info.is_partitioned():
        raise TableNotPartitionedError(f"table {path} has no partitions")
    return stored


def _name(table: TableInfo, spec: Mapping[str, str], *, creating: bool) -> str:
    keys = table.partition_keys
    if spec.keys() != set(keys):
        raise InvalidPartitionError(
            f"a partition of {table.table_path} is given by {list(keys)}, not by {list(spec)}"
        )
    for key in keys:
        if creating:
            validate_partition_value(spec[key])
        elif not _VALUE.match(spec[key]) or len(spec[key]) > VALUE_LENGTH_MAX:
            raise InvalidPartitionError(f"'{spec[key]}' cannot be part of a partition name")
    return SEPARATOR.join(spec[key] for key in keys)


@dataclass(frozen=True, slots=True)
class Due:
    """The auto-partitions that are due: names to create, ids to drop."""

    create: list[str]
    drop: list[int]

    def __bool__(self) -> bool:
        return bool(self.create or self.drop)


def due_partitions(connection: sqlite3.Connection, stored: Stored) -> Due:
    """Return the auto-partitions that are missing and those past their retention."""
    properties = stored.descriptor.properties
    if not options.option(properties, options.AUTO_ENABLED):
        return Due([], [])
    rule = AutoPartition(
        TimeUnit[options.option(properties, options.AUTO_UNIT)], options.zone_of(properties)
    )
    now = datetime.fromtimestamp(now_ms() / 1000, UTC)
    rows = connection.execute(
        "SELECT name, id FROM part WHERE table_id = ?", (stored.info.table_id,)
    )
    held = dict(rows.fetchall())
    create = [
        name
        for name in rule.names(now, 0, options.option(properties, options.AUTO_PRECREATE))
        if name not in held
    ]
    retained = options.option(properties, options.AUTO_RETENTION)
    if retained < 0:
        return Due(create, [])
    oldest = rule.name(now, -retained)
    # Times are compared as text, as the server does: names of one unit have the same length.
    drop = [held[name] for name in held if _time_value(stored, name) < oldest]
    return Due(create, drop)


def _time_value(stored: Stored, name: str) -> str:
    keys = stored.info.partition_keys
    if len(keys) == 1:
        return name
    return parse_partition_name(name, keys)[stored.descriptor.properties[options.AUTO_KEY]]


def keep_auto_partitions(connection: sqlite3.Connection, stored: Stored) -> None:
    """Create and drop the auto-partitions that are due, as far as the limits allow."""
    due = due_partitions(connection, stored)
    for partition in due.drop:
        _remove(connection, partition)
    for name in due.create:
        try:
            add_partition(connection, stored.info, name)
        except (TooManyPartitionsError, TooManyBucketsError):
            return


def auto_partitioned(connection: sqlite3.Connection, catalog: Catalog) -> list[Stored]:
    """Return the tables with auto-partitions."""
    rows = connection.execute(
        "SELECT id FROM tbl WHERE json_extract(descriptor, '$.properties.\"'||?||'\"') IS NOT NULL",
        (options.AUTO_ENABLED,),
    ).fetchall()
    tables = [catalog.by_id(connection, table_id) for (table_id,) in rows]
    return [t for t in tables if options.option(t.descriptor.properties, options.AUTO_ENABLED)]
