"""The merge engines: what a batch of upserts and deletes does to the key state and the changelog.

Records take effect one after the other, as on the server, but all of them are computed at once on
whole columns. For each record one needs to know whether its key has a row before it, and which one.
Both follow from the previous record with the same key, or from the key state for the first record
of a key:

    full update    the row before a record is that of the previous record; none after a delete
    first row      only the first record of a key without a row has an effect
    partial        records set the target columns only, so the other columns of a key keep their
                   stored values; a delete sets the target columns to null, and removes the row if
                   all other columns are null

Rows of the changelog are taken from two batches in sequence: the stored rows of the keys, then the
new rows of the records. Every change is an index into that sequence. Records are grouped in the
order of their keys; records with the same key keep their order in the batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fluss_client.backend.embedded.keys.payload import UpsertPayload, with_schema_id
from fluss_client.backend.embedded.keys.state import OldValues
from fluss_client.backend.embedded.store import options
from fluss_client.backend.rows import decode_key_rows, row_format
from fluss_client.codec.arrow_columns import to_wire
from fluss_client.codec.binary.blobs import FEW, Blobs
from fluss_client.codec.rows import encode_rows
from fluss_client.errors import InvalidTargetColumnError, UnknownServerError
from fluss_client.model.schema import Schema
from fluss_client.model.table import TableInfo

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = 1, 2, 3, 4


@dataclass(frozen=True, slots=True)
class Groups:
    """Records of one batch grouped by key.

    `order` sorts the records by key; `first` marks, in that order, where a new key begins.
    """

    order: Ints
    first: Bools

    @property
    def last(self) -> Bools:
        """Marks the last record of each key, in key order."""
        last = np.ones(self.first.size, np.bool_)
        last[:-1] = self.first[1:]
        return last

    @property
    def key_of(self) -> Ints:
        """The index of the distinct key of each record, in key order."""
        return np.cumsum(self.first) - 1

    def key_of_record(self) -> Ints:
        """Return the index of the distinct key of each record, in batch order."""
        keys = np.empty(self.order.size, np.int64)
        keys[self.order] = self.key_of
        return keys

    def previous(self) -> Ints:
        """Return for each record the previous record with the same key, or -1."""
        before = np.full(self.order.size, -1, np.int64)
        before[self.order[1:]] = np.where(self.first[1:], -1, self.order[:-1])
        return before


def group_keys(keys: Blobs) -> Groups:
    """Group the records of a batch by key."""
    if len(keys) <= FEW:
        return _group_few(keys.to_list())
    array = keys.to_arrow()
    order = pc.array_sort_indices(array)
    ordered = array.take(order)
    first = np.ones(len(array), np.bool_)
    first[1:] = pc.not_equal(ordered[1:], ordered[:-1]).to_numpy(zero_copy_only=False)
    return Groups(order.to_numpy().astype(np.int64), first)


def _group_few(keys: list[bytes]) -> Groups:
    order = sorted(range(len(keys)), key=keys.__getitem__)
    first = [at == 0 or keys[order[at]] != keys[order[at - 1]] for at in range(len(keys))]
    return Groups(np.array(order, np.int64), np.array(first, np.bool_))


@dataclass(frozen=True, slots=True)
class Effect:
    """Per record: is there a row before it, is there one after it, does it change anything."""

    before: Bools
    after: Bools
    counts: Bools


def full_effect(stored: Bools, deletes: Bools, previous: Ints) -> Effect:
    """Upserts replace, deletes remove. `stored` marks records whose key has a stored row."""
    before = np.where(previous < 0, stored, ~deletes[previous])
    return Effect(before, ~deletes, ~deletes | before)


def first_row_effect(stored: Bools, previous: Ints) -> Effect:
    """Only the first upsert of a key without a row has an effect; there are no deletes."""
    before = stored | (previous >= 0)
    return Effect(before, np.ones_like(before), ~before)


def partial_effect(stored: Bools, others_null: Bools, deletes: Bools, previous: Ints) -> Effect:
    """Set target columns. `others_null` marks keys whose other columns are all null."""
    kept_by_delete = stored & ~others_null
    after_previous = np.where(deletes[previous], kept_by_delete, True)
    before = np.where(previous < 0, stored, after_previous)
    after = np.where(deletes, before & ~others_null, True)
    return Effect(before, after, ~deletes | before)


@dataclass(frozen=True, slots=True)
class Changelog:
    """Change types; per change its record, and whether it shows the row before the record."""

    types: npt.NDArray[np.uint8]
    records: Ints
    is_old: Bools


def changelog(effect: Effect, *, full_image: bool) -> Changelog:
    """Return the changes of the records that have an effect, in the order of the batch.

    Without the full image an update has its new row only.
    """
    records = np.flatnonzero(effect.counts)
    before, after = effect.before[records], effect.after[records]
    pairs = before & after & full_image
    sizes = np.where(pairs, 2, 1)
    starts = np.cumsum(sizes) - sizes
    types = np.empty(int(sizes.sum()), np.uint8)
    types[starts] = np.where(after, np.where(before, UPDATE_AFTER, INSERT), DELETE)
    is_old = np.zeros(types.size, np.bool_)
    is_old[starts[~after]] = True
    two = starts[pairs]
    types[two], types[two + 1] = UPDATE_BEFORE, UPDATE_AFTER
    is_old[two] = True
    return Changelog(types, np.repeat(records, sizes), is_old)


def check_targets(table: TableInfo, target_columns: Sequence[int], *, first_row: bool) -> None:
    """Raise error 35 for invalid target columns, -1 for a partial update with first_row."""
    if first_row:
        raise UnknownServerError("the first_row merge engine takes no partial updates")
    schema = table.schema
    targets = set(target_columns)
    missing = [key for key in schema.primary_keys if schema.index[key] not in targets]
    if missing:
        raise InvalidTargetColumnError(f"a partial update needs the key columns {missing}")
    for column in schema.columns:
        if column.name not in schema.primary_keys and not column.type.nullable:
            raise InvalidTargetColumnError(
                f"column '{column.name}' is NOT NULL, so the table takes no partial updates"
            )


@dataclass(frozen=True, slots=True)
class Partial:
    """The effect of each record, and the row after it (undefined if there is none)."""

    table: TableInfo
    effect: Effect
    after_rows: pa.RecordBatch

    def encode(self, records: Ints) -> Blobs:
        """Encode the rows after these records as values of the key state."""
        rows = self.after_rows.take(pa.array(records))
        types = [column.type for column in self.table.schema.columns]
        encoded = encode_rows(rows, types, row_format(self.table))
        return with_schema_id(encoded, self.table.schema_id)


def merge_partial(
    table: TableInfo,
    deletes: Bools,
    groups: Groups,
    new: pa.RecordBatch,
    old: OldValues,
    stored: pa.RecordBatch,
    target_columns: Sequence[int],
) -> Partial:
    """Compute a partial update in one pass over columns.

    One pass is enough: columns outside the targets keep their stored values, whatever the number of
    records of a key.
    """
    targets = set(target_columns)
    keys = groups.key_of_record()
    position = old.position[keys]
    others_null = _others_null(stored, targets)
    none = np.append(others_null, True)[position]
    effect = partial_effect(old.found[keys], none, deletes, groups.previous())
    if targets == {table.schema.index[name] for name in table.schema.primary_keys}:
        # An upsert of key columns only changes nothing if there is a row.
        changes = np.where(deletes, effect.counts, effect.counts & ~effect.before)
        effect = Effect(effect.before, effect.after, changes)
    row_of = np.cumsum(~deletes) - 1
    columns = []
    for at, column in enumerate(table.schema.columns):
        is_key = column.name in table.schema.primary_keys
        both = pa.concat_arrays([stored.column(at), new.column(at)])
        kept = position
        taken = stored.num_rows + row_of
        if at not in targets:
            rows = kept
        elif is_key:
            rows = np.where(deletes, kept, taken)
        else:
            rows = np.where(deletes, -1, taken)
        columns.append(both.take(pa.array(rows, mask=rows < 0)))
    return Partial(table, effect, pa.RecordBatch.from_arrays(columns, schema=new.schema))


def _others_null(stored: pa.RecordBatch, targets: set[int]) -> Bools:
    """Return for each stored row whether every column outside the targets is null."""
    null = np.ones(stored.num_rows, np.bool_)
    for at in range(stored.num_columns):
        if at not in targets:
            null &= stored.column(at).is_null().to_numpy(zero_copy_only=False)
    return null


@dataclass(frozen=True, slots=True)
class Merged:
    """The result of a batch. Keys are indexes of its distinct keys, in key order."""

    types: npt.NDArray[np.uint8]
    changes: pa.RecordBatch
    written: Ints
    """The keys that get a new value."""
    values: Blobs
    removed: Ints
    """The keys whose row is deleted."""
    rows_added: int


def is_first_row(table: TableInfo) -> bool:
    """Return whether the table keeps only the first row of a key."""
    return bool(options.option(table.properties, options.MERGE_ENGINE) == "FIRST_ROW")


def has_full_image(table: TableInfo) -> bool:
    """Return whether the changelog has the row before an update, too."""
    return bool(options.option(table.properties, options.CHANGELOG_IMAGE) == "FULL")


def is_blind(table: TableInfo, target_columns: Sequence[int] | None) -> bool:
    """Return whether upserts do not read the row that they replace.

    Every upsert is an update in the changelog then.
    """
    return not has_full_image(table) and not is_first_row(table) and target_columns is None


def merge_records(
    table: TableInfo,
    payload: UpsertPayload,
    groups: Groups,
    new: pa.RecordBatch,
    old: OldValues,
    schemas: Mapping[int, Schema],
    target_columns: Sequence[int] | None,
) -> Merged:
    """Merge the records of a batch with the stored rows of their keys.

    Args:
        table: The table, which decides the merge engine.
        payload: The records.
        groups: The records grouped by key.
        new: The rows of the payload in the table's current schema.
        old: The stored rows, by distinct key.
        schemas: The schemas of the stored rows, by id.
        target_columns: The columns of a partial update; None for a full update.

    Returns:
        The changelog rows, the new values and the deleted keys.
    """
    if is_first_row(table):
        return _merge_first_row(payload, groups, new, old)
    stored = decode_key_rows(table, schemas, old.schema_ids, old.rows, None)
    stored = to_wire(stored, table.schema.wire)
    if target_columns is not None:
        return _merge_partial(table, payload, groups, new, old, stored, target_columns)
    return _merge_full(table, payload, groups, new, old, stored)


def _merge_first_row(
    payload: UpsertPayload, groups: Groups, new: pa.RecordBatch, old: OldValues
) -> Merged:
    effect = first_row_effect(old.found[groups.key_of_record()], groups.previous())
    log = changelog(effect, full_image=True)
    firsts = groups.order[groups.first]
    written = np.flatnonzero(effect.counts[firsts])
    return Merged(
        log.types,
        _rows_at(new, log.records),
        written,
        payload.values.take(firsts[written]),
        np.empty(0, np.int64),
        written.size,
    )


def _merge_full(
    table: TableInfo,
    payload: UpsertPayload,
    groups: Groups,
    new: pa.RecordBatch,
    old: OldValues,
    stored: pa.RecordBatch,
) -> Merged:
    deletes, previous = payload.deletes, groups.previous()
    keys = groups.key_of_record()
    effect = full_effect(old.found[keys], deletes, previous)
    if is_blind(table, None):
        effect = Effect(effect.before | ~deletes, effect.after, effect.counts)
    log = changelog(effect, full_image=has_full_image(table))
    new_at = stored.num_rows + np.cumsum(~deletes) - 1
    old_at = np.where(previous < 0, old.position[keys], new_at[previous])
    lasts = groups.order[groups.last]
    stays = effect.after[lasts]
    return Merged(
        log.types,
        _picked(stored, new, log, old_at, new_at),
        np.flatnonzero(stays),
        payload.values.take(lasts[stays]),
        np.flatnonzero(~stays & old.found),
        int(stays.sum()) - int(old.found.sum()),
    )


def _picked(
    stored: pa.RecordBatch, new: pa.RecordBatch, log: Changelog, old_at: Ints, new_at: Ints
) -> pa.RecordBatch:
    rows = np.where(log.is_old, old_at[log.records], new_at[log.records])
    return _rows_at(pa.concat_batches([stored, new]) if stored.num_rows else new, rows)


def _rows_at(batch: pa.RecordBatch, rows: Ints) -> pa.RecordBatch:
    if rows.size == batch.num_rows and (rows == np.arange(rows.size)).all():
        return batch
    return batch.take(pa.array(rows))


def _merge_partial(
    table: TableInfo,
    payload: UpsertPayload,
    groups: Groups,
    new: pa.RecordBatch,
    old: OldValues,
    stored: pa.RecordBatch,
    target_columns: Sequence[int],
) -> Merged:
    result = merge_partial(table, payload.deletes, groups, new, old, stored, target_columns)
    effect, rows = result.effect, result.after_rows
    log = changelog(effect, full_image=has_full_image(table))
    previous, keys = groups.previous(), groups.key_of_record()
    new_at = stored.num_rows + np.arange(len(payload.keys))
    old_at = np.where(previous < 0, old.position[keys], new_at[previous])
    lasts = groups.order[groups.last]
    stays, touched = effect.after[lasts], _any_of_key(effect.counts, groups)
    written = np.flatnonzero(stays & touched)
    return Merged(
        log.types,
        _picked(stored, rows, log, old_at, new_at),
        written,
        result.encode(lasts[written]),
        np.flatnonzero(~stays & old.found),
        int(stays.sum()) - int(old.found.sum()),
    )


def _any_of_key(marks: Bools, groups: Groups) -> Bools:
    """Return for each distinct key whether any of its records is marked."""
    if not marks.size:
        return marks
    starts = np.flatnonzero(groups.first)
    return np.logical_or.reduceat(marks[groups.order], starts)
