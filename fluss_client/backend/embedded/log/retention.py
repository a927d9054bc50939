"""Deletes expired batches and the rows of dropped buckets.

Expired batches are deleted when their bucket is written to, and by `vacuum`. Rows of dropped
buckets are deleted in small steps while the writing thread has no other job. A batch of a
lake-enabled table is not deleted before it is in the lake.
"""

from __future__ import annotations

import sqlite3

from fluss_client.backend.embedded.keys.state import bucket_range
from fluss_client.backend.embedded.log.appends import batch_id
from fluss_client.backend.embedded.store import options
from fluss_client.backend.embedded.store.catalog import Bucket, Catalog, Stored
from fluss_client.backend.embedded.store.layout import OFFSET_MAX
from fluss_client.backend.embedded.store.validation import is_lake_enabled

EXPIRED_PER_WRITE_MAX = 64
RECLAIMED_PER_STEP_MAX = 512
RECLAIMED_BYTES_PER_STEP_MAX = 8 << 20


def expire_batches(
    connection: sqlite3.Connection, stored: Stored, bucket: Bucket, now: int, count_max: int
) -> int:
    """Delete batches of a bucket that are older than `table.log.ttl`; return their number."""
    properties = stored.descriptor.properties
    kept_ms = options.option(properties, options.LOG_TTL)
    limit = now - kept_ms
    if kept_ms <= 0 or limit <= 0:  # 0 keeps rows for ever, as a server does
        return 0
    bound = bucket.log_end
    if is_lake_enabled(properties):
        bound = min(bound, bucket.lake_end)
    start = batch_id(bucket.no, bucket.log_start)
    rows = connection.execute(
        "SELECT id, next_offset, commit_time FROM log WHERE id >= ? AND id <= ? "
        "ORDER BY id LIMIT ?",
        (start, batch_id(bucket.no, OFFSET_MAX), count_max),
    )
    gone = []
    for batch, next_offset, commit_time in rows:
        if commit_time >= limit or next_offset > bound:
            break
        gone.append((batch, next_offset))
    if not gone:
        return 0
    _delete_batches(connection, gone[0][0], gone[-1][0])
    connection.execute("UPDATE bucket SET log_start = ? WHERE no = ?", (gone[-1][1], bucket.no))
    return len(gone)


def _delete_batches(connection: sqlite3.Connection, first: int, last: int) -> None:
    connection.execute(
        "DELETE FROM log_column WHERE id IN (SELECT c.id FROM log JOIN log_column AS c "
        "ON c.id BETWEEN first_column AND first_column + column_count - 1 "
        "WHERE column_count > 0 AND log.id BETWEEN ? AND ?)",
        (first, last),
    )
    connection.execute("DELETE FROM log WHERE id BETWEEN ? AND ?", (first, last))


def has_garbage(connection: sqlite3.Connection) -> bool:
    """Return whether rows of dropped buckets are left."""
    return connection.execute("SELECT 1 FROM garbage LIMIT 1").fetchone() is not None


def reclaim_step(connection: sqlite3.Connection) -> bool:
    """Delete some rows of one dropped bucket; return whether there may be more."""
    row = connection.execute("SELECT bucket FROM garbage LIMIT 1").fetchone()
    if row is None:
        return False
    (bucket,) = row
    low, high = batch_id(bucket, 0), batch_id(bucket, OFFSET_MAX)
    batches = connection.execute(
        "SELECT id, nbytes FROM log WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?",
        (low, high, RECLAIMED_PER_STEP_MAX),
    )
    last, room = -1, RECLAIMED_BYTES_PER_STEP_MAX
    for batch, nbytes in batches:
        last, room = batch, room - nbytes
        if room <= 0:
            break
    if last >= 0:
        _delete_batches(connection, low, last)
        return True
    removed = connection.execute(
        "DELETE FROM kv WHERE key IN "
        "(SELECT key FROM kv WHERE key >= ? AND key < ? ORDER BY key LIMIT ?)",
        (*bucket_range(bucket), RECLAIMED_PER_STEP_MAX * 8),
    ).rowcount
    if removed:
        return True
    connection.execute("DELETE FROM writer WHERE bucket = ?", (bucket,))
    connection.execute("DELETE FROM garbage WHERE bucket = ?", (bucket,))
    return True


def expire_everything(connection: sqlite3.Connection, catalog: Catalog, now: int) -> int:
    """Delete every expired batch of every bucket; return their number."""
    rows = connection.execute(
        "SELECT table_id, no, bucket_id, log_start, log_end, max_time, row_count, lake_end "
        "FROM bucket"
    ).fetchall()
    gone = 0
    for table_id, *fields in rows:
        stored = catalog.by_id(connection, table_id)
        gone += expire_batches(connection, stored, Bucket(*fields), now, 1 << 40)
    return gone
