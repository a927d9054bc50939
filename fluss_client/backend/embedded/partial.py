"""Partial updates: records that set some columns of their rows and leave the others alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fluss_client.backend.embedded.key_rows import row_format, with_schema_id
from fluss_client.backend.embedded.key_state import OldValues
from fluss_client.backend.embedded.merge import Bools, Effect, Groups, Ints, partial_effect
from fluss_client.codec.blobs import Blobs
from fluss_client.codec.rows import encode_rows
from fluss_client.errors import InvalidTargetColumnError, UnknownServerError
from fluss_client.model.table import TableInfo


def check_targets(table: TableInfo, target_columns: Sequence[int], *, first_row: bool) -> None:
    """Error 35 for columns that cannot be updated by themselves; -1 with the first_row engine."""
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
    """The effect of each record, and the row that stands after it (anything where none does)."""

    table: TableInfo
    effect: Effect
    after_rows: pa.RecordBatch

    def encode(self, records: Ints) -> Blobs:
        """The rows after these records as values of the key state."""
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
    """Records that set `target_columns`; see `merge` for why one pass is enough."""
    targets = set(target_columns)
    keys = groups.key_of_record()
    position = old.position[keys]
    others_null = _others_null(stored, targets)
    none = np.append(others_null, True)[position]
    effect = partial_effect(old.found[keys], none, deletes, groups.previous())
    if targets == {table.schema.index[name] for name in table.schema.primary_keys}:
        # The key alone changes nothing where there is a row.
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
    """Per stored row whether every column outside of the targets is null."""
    null = np.ones(stored.num_rows, np.bool_)
    for at in range(stored.num_columns):
        if at not in targets:
            null &= stored.column(at).is_null().to_numpy(zero_copy_only=False)
    return null
