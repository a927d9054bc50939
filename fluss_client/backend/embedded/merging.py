"""From records and stored rows to changelog rows and new values, for each merge engine.

Rows are picked out of two batches laid end to end: the stored rows of the keys, then the new rows
of the records; every change is an index into that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_client.backend.embedded import options as opt
from fluss_client.backend.embedded.key_rows import decode_wire
from fluss_client.backend.embedded.key_state import OldValues
from fluss_client.backend.embedded.merge import (
    Bools,
    Changelog,
    Effect,
    Groups,
    Ints,
    changelog,
    first_row_effect,
    full_effect,
)
from fluss_client.backend.embedded.partial import merge_partial
from fluss_client.backend.embedded.upserts import UpsertPayload
from fluss_client.codec.blobs import Blobs
from fluss_client.model.schema import Schema
from fluss_client.model.table import TableInfo


@dataclass(frozen=True, slots=True)
class Merged:
    """What a batch does. Keys are numbered as the distinct keys of the batch, in key order."""

    types: npt.NDArray[np.uint8]
    changes: pa.RecordBatch
    written: Ints
    """Keys that get a new value."""
    values: Blobs
    removed: Ints
    """Keys that lose their row."""
    rows_added: int


def is_first_row(table: TableInfo) -> bool:
    """Whether only the first row of a key is kept."""
    return bool(opt.option(table.properties, opt.MERGE_ENGINE) == "FIRST_ROW")


def has_full_image(table: TableInfo) -> bool:
    """Whether updates show the row before them, too."""
    return bool(opt.option(table.properties, opt.CHANGELOG_IMAGE) == "FULL")


def is_blind(table: TableInfo, target_columns: Sequence[int] | None) -> bool:
    """Whether upserts do not look at what they replace: every one shows as an update then."""
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
    """`new`: the payload's rows in the table's newest schema; `old`: by distinct key."""
    if is_first_row(table):
        return _merge_first_row(payload, groups, new, old)
    stored = decode_wire(table, schemas, old.schema_ids, old.rows)
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
    """Per distinct key whether any of its records is marked."""
    if not marks.size:
        return marks
    starts = np.flatnonzero(groups.first)
    return np.logical_or.reduceat(marks[groups.order], starts)
