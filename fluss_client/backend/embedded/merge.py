"""What a batch of upserts and deletes does to the key state, and the changelog it makes.

Records act one after the other, as on the server; here whole columns are worked out at once. For
each record one needs to know whether its key has a row just before it, and which. Both follow from
the record before it with the same key, or from the key state when it is the first of its key:

    full update    before a record stands the earlier record's row, or nothing after a delete
    first row      only the first record of a key that has no row does anything
    partial        records set the target columns only, so the other columns of a key stay what
                   they were stored as; a delete clears the target columns, and removes the row
                   when all the others are null

Records are given in the order of their keys (`order`), equal keys in the order of the batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from fluss_client.codec.blobs import FEW, Blobs

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
        """Which distinct key each record has, in key order."""
        return np.cumsum(self.first) - 1

    def key_of_record(self) -> Ints:
        """Which distinct key each record of the batch has."""
        keys = np.empty(self.order.size, np.int64)
        keys[self.order] = self.key_of
        return keys

    def previous(self) -> Ints:
        """Per record of the batch the earlier record with the same key, or -1."""
        before = np.full(self.order.size, -1, np.int64)
        before[self.order[1:]] = np.where(self.first[1:], -1, self.order[:-1])
        return before


def group_keys(keys: Blobs) -> Groups:
    """The records of a batch by their keys."""
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
    """What happens per record: is there a row before it, is there one after, does it count."""

    before: Bools
    after: Bools
    counts: Bools


def full_effect(stored: Bools, deletes: Bools, previous: Ints) -> Effect:
    """Upserts replace, deletes remove. `stored`: does the record's key have a row at all."""
    before = np.where(previous < 0, stored, ~deletes[previous])
    return Effect(before, ~deletes, ~deletes | before)


def first_row_effect(stored: Bools, previous: Ints) -> Effect:
    """Only the first upsert of a key without a row counts; there are no deletes."""
    before = stored | (previous >= 0)
    return Effect(before, np.ones_like(before), ~before)


def partial_effect(stored: Bools, others_null: Bools, deletes: Bools, previous: Ints) -> Effect:
    """`others_null`: has the key no value outside of the target columns."""
    kept_by_delete = stored & ~others_null
    after_previous = np.where(deletes[previous], kept_by_delete, True)
    before = np.where(previous < 0, stored, after_previous)
    after = np.where(deletes, before & ~others_null, True)
    return Effect(before, after, ~deletes | before)


@dataclass(frozen=True, slots=True)
class Changelog:
    """Change types, and per change the record it comes from: the row before it, or after it."""

    types: npt.NDArray[np.uint8]
    records: Ints
    is_old: Bools


def changelog(effect: Effect, *, full_image: bool) -> Changelog:
    """The changes of the records that count, in the order of the batch.

    Without the full image an update shows its new row only.
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
