"""Whether a directory is sound: every promise that the engine makes, held against what is there.

The check reads one moment of the directory; others may go on using it. What it finds it says in
sentences, one per problem; an empty list means that all is well.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from fluss_client.backend.embedded.catalog import Bucket, Catalog, Stored
from fluss_client.backend.embedded.check_keys import check_keys
from fluss_client.backend.embedded.check_log import check_log
from fluss_client.backend.embedded.database import Database, Settings
from fluss_client.backend.embedded.ddl import NO_PARTITION, OFFSET_BITS
from fluss_client.backend.embedded.iceberg import Lake
from fluss_client.backend.embedded.key_state import BUCKET_BYTES
from fluss_client.backend.embedded.writers import BATCHES_KEPT, unpack
from fluss_client.errors import FlussError

PROBLEMS_MAX = 100
"""More are not listed: what is that broken has one cause."""


def check(path: str | Path, settings: Settings | None = None) -> list[str]:
    """Every problem of the embedded directory at `path`. Blocks."""
    database = Database(Path(path).expanduser().absolute(), settings)
    database.prepare(create=False)
    problems: list[str] = []
    try:
        connection = database.connect(writer=False)
        try:
            connection.execute("BEGIN")
            for problem in _problems(database, connection):
                problems.append(problem)
                if len(problems) >= PROBLEMS_MAX:
                    problems.append("... and more")
                    break
        finally:
            connection.close()
    except sqlite3.DatabaseError as error:
        problems.append(f"the database cannot be read: {error}")
    return problems


def _problems(database: Database, connection: sqlite3.Connection) -> Iterator[str]:
    broken = [text for (text,) in connection.execute("PRAGMA integrity_check") if text != "ok"]
    yield from (f"SQLite: {text}" for text in broken)
    catalog = Catalog(Lake(database.directory).properties)
    tables: dict[int, Stored] = {}
    for (table_id,) in connection.execute("SELECT id FROM tbl ORDER BY id").fetchall():
        try:
            tables[table_id] = catalog.by_id(connection, table_id)
        except FlussError as error:
            yield f"table {table_id}: its description cannot be read: {error}"
    yield from _check_counters(connection)
    yield from _check_bucket_sets(connection, tables)
    yield from _check_orphans(connection)
    yield from _check_writers(connection)
    yield from _check_lake(connection)
    rows = connection.execute(
        "SELECT table_id, partition_id, no, bucket_id, log_start, log_end, max_time, row_count, "
        "lake_end FROM bucket ORDER BY no"
    ).fetchall()
    for table_id, partition_id, *fields in rows:
        if table_id not in tables:
            yield f"bucket number {fields[0]} belongs to table {table_id}, which does not exist"
            continue
        stored, bucket = tables[table_id], Bucket(*fields)
        place = _place(stored, partition_id, bucket)
        yield from check_log(connection, catalog, stored, bucket, place)
        if stored.info.has_primary_key():
            yield from check_keys(connection, catalog, stored, bucket, place)


def _place(stored: Stored, partition_id: int, bucket: Bucket) -> str:
    partition = "" if partition_id == NO_PARTITION else f", partition {partition_id}"
    return f"table {stored.info.table_path}{partition}, bucket {bucket.bucket_id}"


def _check_counters(connection: sqlite3.Connection) -> Iterator[str]:
    for counter, table, column in (
        ("next_table_id", "tbl", "id"),
        ("next_partition_id", "part", "id"),
        ("next_bucket_number", "bucket", "no"),
    ):
        (highest,) = connection.execute(f"SELECT max({column}) FROM {table}").fetchone()
        row = connection.execute("SELECT value FROM meta WHERE name = ?", (counter,)).fetchone()
        if row is None:
            yield f"the counter {counter} is missing"
        elif highest is not None and highest >= row[0]:
            yield f"the counter {counter} is {row[0]}, but {highest} is in use"


def _check_bucket_sets(connection: sqlite3.Connection, tables: dict[int, Stored]) -> Iterator[str]:
    counts = {
        (table_id, partition_id): count
        for table_id, partition_id, count in connection.execute(
            "SELECT table_id, partition_id, count(*) FROM bucket GROUP BY table_id, partition_id"
        )
    }
    partitions = connection.execute("SELECT table_id, id FROM part").fetchall()
    expected = {(t, p) for t, p in partitions if t in tables}
    expected |= {
        (table_id, NO_PARTITION)
        for table_id, stored in tables.items()
        if not stored.info.is_partitioned()
    }
    for table_id, partition_id in sorted(expected | counts.keys()):
        stored = tables.get(table_id)
        if stored is None:
            continue
        wanted = stored.info.num_buckets if (table_id, partition_id) in expected else 0
        held = counts.get((table_id, partition_id), 0)
        if held != wanted:
            yield (
                f"table {stored.info.table_path}: {held} buckets instead of {wanted} "
                f"(partition {partition_id})"
            )


def _check_orphans(connection: sqlite3.Connection) -> Iterator[str]:
    rows = connection.execute("SELECT no FROM bucket UNION SELECT bucket FROM garbage")
    known = {number for (number,) in rows}
    for table, number in (
        ("log", f"id >> {OFFSET_BITS}"),
        ("kv", f"substr(key, 1, {BUCKET_BYTES})"),
        ("writer", "bucket"),
    ):
        for (found,) in connection.execute(f"SELECT DISTINCT {number} FROM {table}"):
            bucket = int.from_bytes(found, "big") if isinstance(found, bytes) else found
            if bucket not in known:
                yield f"{table} has rows of bucket number {bucket}, which does not exist"
    (held,) = connection.execute("SELECT count(*) FROM log_column").fetchone()
    (told,) = connection.execute("SELECT total(column_count) FROM log").fetchone()
    if held != told:
        yield f"log_column has {held} columns, the batches know of {int(told)}"


def _check_writers(connection: sqlite3.Connection) -> Iterator[str]:
    rows = connection.execute(
        "SELECT bucket, writer_id, batches, log_end FROM writer JOIN bucket ON no = bucket"
    )
    for bucket, writer_id, packed, log_end in rows:
        batches = unpack(packed)
        if not 1 <= len(batches) <= BATCHES_KEPT:
            yield f"writer {writer_id} of bucket number {bucket} has {len(batches)} batches"
        elif batches[-1].next_offset > log_end:
            yield (
                f"writer {writer_id} of bucket number {bucket} remembers offset "
                f"{batches[-1].next_offset}, the log ends at {log_end}"
            )


def _check_lake(connection: sqlite3.Connection) -> Iterator[str]:
    rows = connection.execute(
        "SELECT table_id, snapshot_id FROM lake_snapshot "
        "WHERE path NOT IN (SELECT path FROM lake_offsets)"
    )
    for table_id, snapshot_id in rows:
        yield f"table {table_id}: the offsets of lake snapshot {snapshot_id} are missing"
