"""Upserts and deletes of whole batches, with the changelog that they make.

A batch takes a few steps on whole columns: read the stored values of its keys, compute all changes
(`merge_engines`), write one changelog batch, then the new values. All of it is one transaction,
together with the state of the idempotent writer, so that key state and changelog always agree.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import numpy as np

from fluss_client.backend.contract import NO_WRITER, BucketAck, BucketWrite
from fluss_client.backend.embedded.keys import state
from fluss_client.backend.embedded.keys.merge_engines import (
    Groups,
    check_targets,
    group_keys,
    is_blind,
    is_first_row,
    merge_records,
)
from fluss_client.backend.embedded.keys.payload import UpsertPayload
from fluss_client.backend.embedded.log import appends
from fluss_client.backend.embedded.log.batches import EMPTY, encode_batch, stored_compression
from fluss_client.backend.embedded.store import options
from fluss_client.backend.embedded.store.catalog import (
    Bucket,
    Catalog,
    Stored,
    all_or_nothing,
    check_placed,
    end_statements,
    find_bucket,
    now_ms,
)
from fluss_client.backend.rows import distinct_ids
from fluss_client.codec.arrow_columns import align_to, to_wire
from fluss_client.codec.binary.blobs import Blobs
from fluss_client.errors import (
    DeletionDisabledError,
    FlussError,
    NonPrimaryKeyTableError,
    SchemaNotExistError,
)
from fluss_client.model.table import TableInfo


def upsert(
    connection: sqlite3.Connection,
    catalog: Catalog,
    table_id: int,
    writes: Sequence[BucketWrite],
    target_columns: Sequence[int] | None,
) -> list[BucketAck]:
    """Merge each batch into its bucket; return one answer per batch."""
    acks = []
    for write in writes:
        try:
            stored = catalog.by_id(connection, table_id)
            with all_or_nothing(connection):
                end = _upsert_one(connection, catalog, stored, write, target_columns)
            acks.append(BucketAck(write.bucket, end))
        except FlussError as error:
            end_statements(error)
            acks.append(BucketAck(write.bucket, error=error))
    return acks


def _upsert_one(
    connection: sqlite3.Connection,
    catalog: Catalog,
    stored: Stored,
    write: BucketWrite,
    target_columns: Sequence[int] | None,
) -> int:
    """Merge one batch; return the next offset of the changelog."""
    payload = write.payload
    assert isinstance(payload, UpsertPayload)
    bucket = find_bucket(connection, write.bucket)
    check_placed(connection, write.bucket, write.bucket_count)
    _check(stored.info, payload, target_columns)
    now = max(now_ms(), bucket.max_time)
    if write.writer_id != NO_WRITER:
        duplicate = appends.find_duplicate(
            connection, bucket.no, write.writer_id, write.sequence, now
        )
        if duplicate is not None:
            return duplicate.next_offset
    end = _merge(connection, catalog, stored, bucket, payload, target_columns, now)
    if write.writer_id != NO_WRITER:
        written = appends.Written(write.sequence, bucket.log_end, end)
        appends.remember(connection, bucket.no, write.writer_id, written, now)
    return end


def _check(table: TableInfo, payload: UpsertPayload, target_columns: Sequence[int] | None) -> None:
    if not table.has_primary_key():
        raise NonPrimaryKeyTableError(f"{table.table_path} has no primary key")
    if not 0 <= payload.schema_id <= table.schema_id:
        raise SchemaNotExistError(
            f"schema {payload.schema_id} is not known; the newest is {table.schema_id}"
        )
    if target_columns is not None:
        check_targets(table, target_columns, first_row=is_first_row(table))
    if payload.deletes.any() and delete_behavior(table) == "DISABLE":
        raise DeletionDisabledError(f"{table.table_path} does not take deletes")


def delete_behavior(table: TableInfo) -> str:
    """Return what a delete does: ALLOW, IGNORE or DISABLE."""
    default = "IGNORE" if is_first_row(table) else "ALLOW"
    return str(options.option(table.properties, options.DELETE_BEHAVIOR) or default)


def _merge(
    connection: sqlite3.Connection,
    catalog: Catalog,
    stored: Stored,
    bucket: Bucket,
    payload: UpsertPayload,
    target_columns: Sequence[int] | None,
    now: int,
) -> int:
    table = stored.info
    if payload.deletes.any() and delete_behavior(table) == "IGNORE":
        payload = payload.without_deletes()
    new = payload.rows
    if payload.schema_id != table.schema_id:
        written = catalog.schema(connection, stored, payload.schema_id)
        new = to_wire(align_to(new, written, table.schema), table.schema.wire)
    groups = group_keys(payload.keys)
    keys = state.bucket_keys(bucket.no, payload.keys.take(groups.order[groups.first]))
    blind = is_blind(table, target_columns)
    old = _find_old(connection, table, payload, groups, keys, blind=blind)
    schemas = {i: catalog.schema(connection, stored, i) for i in distinct_ids(old.schema_ids)}
    merged = merge_records(table, payload, groups, new, old, schemas, target_columns)
    encoded = EMPTY
    if merged.types.size:
        encoded = encode_batch(merged.changes, stored_compression(table.properties))
    end = appends.add_batch(
        connection,
        bucket,
        encoded,
        table.schema_id,
        merged.types.size,
        now,
        merged.types.tobytes(),
        0 if blind else merged.rows_added,
    )
    state.delete_keys(connection, keys.take(merged.removed))
    state.put_values(connection, keys.take(merged.written), merged.values)
    return end


def _find_old(
    connection: sqlite3.Connection,
    table: TableInfo,
    payload: UpsertPayload,
    groups: Groups,
    keys: Blobs,
    *,
    blind: bool,
) -> state.OldValues:
    if not blind:
        return state.find_old(connection, keys, with_values=not is_first_row(table))
    # Only deletes need the row that they remove.
    asked = np.unique(groups.key_of_record()[payload.deletes])
    old = state.find_old(connection, keys.take(asked), with_values=True)
    position = np.full(len(keys), -1, np.int64)
    position[asked] = old.position
    return state.OldValues(position, old.schema_ids, old.rows)
