"""The SQLite tables of an embedded directory.

    meta          format version, the counters that ids come from (ids are never reused), and how
                  often the bucket count of a table was changed
    part          partitions; how many buckets one has is the number of its rows in `bucket`
    bucket        one row per bucket: its number, where its log starts and ends
    log           one row per batch; id = bucket number << 40 | base offset, so that a bucket's
                  batches are adjacent and in order, and an offset is found by one index search
    log_column    the columns of a large batch, one row each: `column_count` rows from
                  `first_column` on (a plain integer key, because SQLite would read whole columns
                  to compare a compound key)
    kv            the key state; a key is the bucket's number (4 bytes, big endian) and the
                  table's own key
    writer        the last batches of each idempotent writer, per bucket
    garbage       numbers of dropped buckets whose rows are not deleted yet
    lake_*        committed lake snapshots, prepared offsets, tiering states
    producer      offsets registered under a producer id

One transaction commits everything that a write changes, in all tables.
"""

from __future__ import annotations

FORMAT_VERSION = 2
"""The highest version that this code reads."""
FORMAT_VERSION_NEW = 1
"""The version of a new directory. It becomes 2 with the first change of a bucket count: older code
takes the count of the table for that of each partition, and must refuse the directory."""
APPLICATION_ID = 0x464C5553
PAGE_BYTES = 16384
FILE_NAME = "fluss.db"
DEFAULT_DATABASE = "fluss"
OFFSET_BITS = 40
OFFSET_MAX = (1 << OFFSET_BITS) - 1
BUCKET_NUMBER_MAX = (1 << (63 - OFFSET_BITS)) - 1
NO_PARTITION = -1

TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE database (
    name TEXT PRIMARY KEY, descriptor TEXT NOT NULL,
    created INTEGER NOT NULL, modified INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE tbl (
    id INTEGER PRIMARY KEY, database TEXT NOT NULL, name TEXT NOT NULL,
    descriptor TEXT NOT NULL, schema_id INTEGER NOT NULL,
    created INTEGER NOT NULL, modified INTEGER NOT NULL, stamp INTEGER NOT NULL,
    UNIQUE (database, name)
);
CREATE TABLE tbl_schema (
    table_id INTEGER NOT NULL, schema_id INTEGER NOT NULL, schema TEXT NOT NULL,
    PRIMARY KEY (table_id, schema_id)
) WITHOUT ROWID;
CREATE TABLE part (
    id INTEGER PRIMARY KEY, table_id INTEGER NOT NULL, name TEXT NOT NULL,
    UNIQUE (table_id, name)
);
CREATE TABLE bucket (
    no INTEGER PRIMARY KEY,
    table_id INTEGER NOT NULL, partition_id INTEGER NOT NULL, bucket_id INTEGER NOT NULL,
    log_start INTEGER NOT NULL DEFAULT 0, log_end INTEGER NOT NULL DEFAULT 0,
    max_time INTEGER NOT NULL DEFAULT -1, row_count INTEGER NOT NULL DEFAULT 0,
    lake_end INTEGER NOT NULL DEFAULT -1,
    UNIQUE (table_id, partition_id, bucket_id)
);
CREATE TABLE log (
    id INTEGER PRIMARY KEY, next_offset INTEGER NOT NULL, commit_time INTEGER NOT NULL,
    schema_id INTEGER NOT NULL, row_count INTEGER NOT NULL, nbytes INTEGER NOT NULL,
    first_column INTEGER NOT NULL, column_count INTEGER NOT NULL,
    crc INTEGER NOT NULL, changes BLOB, body BLOB
);
CREATE TABLE log_column (id INTEGER PRIMARY KEY, crc INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE kv (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE writer (
    bucket INTEGER NOT NULL, writer_id INTEGER NOT NULL, last_time INTEGER NOT NULL,
    batches BLOB NOT NULL, PRIMARY KEY (bucket, writer_id)
) WITHOUT ROWID;
CREATE TABLE garbage (bucket INTEGER PRIMARY KEY);
CREATE TABLE lake_offsets (
    path TEXT PRIMARY KEY, table_id INTEGER NOT NULL, offsets TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE lake_snapshot (
    position INTEGER PRIMARY KEY, table_id INTEGER NOT NULL, snapshot_id INTEGER NOT NULL,
    path TEXT NOT NULL
);
CREATE INDEX lake_snapshot_by_table ON lake_snapshot (table_id, position);
CREATE TABLE lake_tiering (
    table_id INTEGER PRIMARY KEY, state TEXT NOT NULL, epoch INTEGER NOT NULL,
    last_tiered INTEGER NOT NULL, heartbeat INTEGER NOT NULL, queued INTEGER NOT NULL
);
CREATE TABLE producer (
    id TEXT PRIMARY KEY, expires INTEGER NOT NULL, offsets TEXT NOT NULL
) WITHOUT ROWID;
"""

COUNTERS = {
    "next_table_id": 1,
    "next_partition_id": 0,
    "next_bucket_number": 0,
    "next_writer_id": 0,
    "next_in_queue": 0,
}


def statements() -> list[str]:
    """Return the statements of `TABLES`, to run them in one transaction."""
    return [text.strip() for text in TABLES.split(";") if text.strip()]
