"""Maintenance of an embedded directory: checking whether it is consistent, and vacuuming.

The check covers SQLite's own structure, the counters and references between tables, the log of each
bucket (contiguous, in time order, every batch readable), and the key state of each bucket (values,
row count, and the same rows as a replay of the changelog). It reads one snapshot, so other
processes may use the directory at the same time. Each problem is one sentence.

A vacuum deletes expired and dropped data and shrinks the database file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from fluss_client.backend.embedded.keys.merge_engines import (
    DELETE,
    INSERT,
    UPDATE_BEFORE,
    has_full_image,
)
from fluss_client.backend.embedded.keys.state import BUCKET_BYTES, bucket_range
from fluss_client.backend.embedded.lake import producer_offsets
from fluss_client.backend.embedded.lake.iceberg import Lake
from fluss_client.backend.embedded.log.appends import BATCHES_KEPT, batch_id, forget_expired, unpack
from fluss_client.backend.embedded.log.batches import decode_batch
from fluss_client.backend.embedded.log.reader import HEADER, Header, load
from fluss_client.backend.embedded.log.retention import expire_everything, reclaim_step
from fluss_client.backend.embedded.store.catalog import Bucket, Catalog, Stored, now_ms
from fluss_client.backend.embedded.store.database import Database, Settings, WriteLock
from fluss_client.backend.embedded.store.layout import NO_PARTITION, OFFSET_BITS, OFFSET_MAX
from fluss_client.backend.rows import decode_key_rows, distinct_ids, row_format
from fluss_client.codec.arrow_columns import align_to
from fluss_client.codec.binary.blobs import Blobs
from fluss_client.codec.keys import encode_keys, key_encoding_for
from fluss_client.codec.kv_batch import decode_values
from fluss_client.codec.rows import encode_rows
from fluss_client.errors import FlussError
from fluss_client.model.table import TableInfo

PROBLEMS_MAX = 100
"""No more problems are listed: they nearly always have the same cause."""
ROWS_AT_ONCE = 10_000
SHOWN_MAX = 3


def check(path: str | Path, settings: Settings | None = None) -> list[str]:
    """List the problems of an embedded directory. Blocks, so never call it on an event loop.

    Args:
        path: The directory.
        settings: How to open it; the default waits up to a minute for a lock.

    Returns:
        One sentence per problem; an empty list if the directory is consistent.
    """
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
        (table_id, partition_id): (count, ids)
        for table_id, partition_id, count, ids in connection.execute(
            "SELECT table_id, partition_id, count(*), max(bucket_id) + 1 FROM bucket "
            "GROUP BY table_id, partition_id"
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
        held, ids = counts.get((table_id, partition_id), (0, 0))
        wanted = stored.info.num_buckets if (table_id, partition_id) in expected else 0
        if wanted and stored.info.bucket_count_epoch and held:
            # Each partition has the count of its time: at least, no bucket is missing in between.
            wanted = ids
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
    (expected,) = connection.execute("SELECT total(column_count) FROM log").fetchone()
    if held != expected:
        yield f"log_column has {held} columns, the batches refer to {int(expected)}"


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
                f"writer {writer_id} of bucket number {bucket} has recorded offset "
                f"{batches[-1].next_offset}, the log ends at {log_end}"
            )


def _check_lake(connection: sqlite3.Connection) -> Iterator[str]:
    rows = connection.execute(
        "SELECT table_id, snapshot_id FROM lake_snapshot "
        "WHERE path NOT IN (SELECT path FROM lake_offsets)"
    )
    for table_id, snapshot_id in rows:
        yield f"table {table_id}: the offsets of lake snapshot {snapshot_id} are missing"


def check_log(
    connection: sqlite3.Connection, catalog: Catalog, stored: Stored, bucket: Bucket, place: str
) -> Iterator[str]:
    """Yield the problems of one bucket's log."""
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
    """Return every batch of a bucket, also those outside of its start and end."""
    rows = connection.execute(
        f"SELECT {HEADER} FROM log WHERE id BETWEEN ? AND ? ORDER BY id",
        (batch_id(bucket.no, 0), batch_id(bucket.no, OFFSET_MAX)),
    )
    return [Header(*row) for row in rows]


def read_batch(
    connection: sqlite3.Connection, catalog: Catalog, stored: Stored, header: Header, place: str
) -> tuple[pa.RecordBatch, bytes | None]:
    """Return the validated rows of a batch in its own schema, and its change types."""
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


def check_keys(
    connection: sqlite3.Connection, catalog: Catalog, stored: Stored, bucket: Bucket, place: str
) -> Iterator[str]:
    """Yield the problems of one bucket's key state."""
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
        # The start of the changelog has expired, so a replay gives only a part of the state.
        return
    state: dict[bytes, bytes] = {}
    try:
        yield from _replay(connection, catalog, stored, bucket, place, state)
    except FlussError as error:
        yield f"{place}: its changelog cannot be replayed: {error}"
        return
    if state != held:
        yield from _differences(place, state, held)


def _stored_rows(
    connection: sqlite3.Connection, catalog: Catalog, stored: Stored, bucket: Bucket
) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Yield keys and rows, with all rows encoded again in the table's current schema."""
    cursor = connection.execute(
        "SELECT key, value FROM kv WHERE key >= ? AND key < ? ORDER BY key",
        bucket_range(bucket.no),
    )
    table = stored.info
    while pairs := cursor.fetchmany(ROWS_AT_ONCE):
        ids, rows = decode_values(Blobs.from_list([value for _, value in pairs]))
        schemas = {i: catalog.schema(connection, stored, i) for i in distinct_ids(ids)}
        batch = decode_key_rows(table, schemas, ids, rows, None)
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


@dataclass(frozen=True, slots=True)
class Vacuumed:
    """The result of a vacuum: the number of deleted batches, the size before and after."""

    batches_expired: int
    bytes_before: int
    bytes_after: int


def vacuum(path: str | Path, settings: Settings | None = None) -> Vacuumed:
    """Delete expired batches, rows of dropped tables and expired writers; then shrink the file.

    Other processes may read meanwhile; writers wait. Blocks, so never call it on an event loop.

    Args:
        path: The directory.
        settings: How to open it; the default waits up to a minute for the write lock.

    Returns:
        What was deleted, and the size before and after.

    Raises:
        EmbeddedLockedError: Other processes were writing for longer than the lock timeout.
    """
    database = Database(Path(path).expanduser().absolute(), settings)
    database.prepare(create=False)
    before = _size(database)
    try:
        connection = database.connect(writer=True)
        try:
            expired = _clean(database, connection)
            database.retry_locked(lambda: connection.execute("VACUUM"))
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise database.wrap(error) from error
    return Vacuumed(expired, before, _size(database))


def _clean(database: Database, connection: sqlite3.Connection) -> int:
    write_lock = WriteLock(database.file)
    try:
        database.begin(connection, write_lock)
    finally:
        write_lock.close()
    try:
        catalog = Catalog(Lake(database.directory).properties)
        expired = expire_everything(connection, catalog, now_ms())
        forget_expired(connection, now_ms())
        producer_offsets.sweep(connection)
        while reclaim_step(connection):
            pass
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return expired


def _size(database: Database) -> int:
    files = (database.file, database.file.with_name(database.file.name + "-wal"))
    return sum(file.stat().st_size for file in files if file.exists())
