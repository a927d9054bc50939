"""The batches of a scan: the plan's columns, then the metadata columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_client import ChangeType, RecordBatch, TableInfo
from fluss_orchestrate.core.plan import BucketRange, ScanPlan
from fluss_orchestrate.core.row_schema import with_keys

STATE_OFFSET = -1
"""`_offset` and `_timestamp` (ms) of rows of a state, which come from no place of the log."""

TIMESTAMP = pa.timestamp("ms", "UTC")
METADATA_FIELDS = {
    "_change_type": pa.field("_change_type", pa.string(), nullable=False),
    "_offset": pa.field("_offset", pa.int64(), nullable=False),
    "_timestamp": pa.field("_timestamp", TIMESTAMP, nullable=False),
    "_bucket": pa.field("_bucket", pa.int32(), nullable=False),
    "_partition": pa.field("_partition", pa.string()),
}
Codes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one place, before they get their metadata columns."""

    batch: pa.RecordBatch
    change_types: Codes | None
    base_offset: int
    """The offset of the first row; the others follow. `STATE_OFFSET` for rows of a state."""
    timestamp: int

    @classmethod
    def of(cls, fetched: RecordBatch, start: int) -> Rows:
        """Return the rows of a fetched batch from an offset on."""
        skip = max(0, start - fetched.base_offset)
        changes = None if fetched.change_types is None else fetched.change_types.to_numpy()
        if not skip:
            return cls(fetched.batch, changes, fetched.base_offset, fetched.timestamp)
        batch = fetched.batch.slice(skip)
        changes = None if changes is None else changes[skip:]
        return cls(batch, changes, fetched.base_offset + skip, fetched.timestamp)


def plan_schema(plan: ScanPlan, table: TableInfo) -> pa.Schema:
    """Return the schema of all batches of a plan; `table` has the schema of the plan."""
    arrow = table.schema.arrow
    fields = [arrow.field(table.schema.index[name]) for name in plan.columns]
    schema = pa.schema(fields + [METADATA_FIELDS[name] for name in plan.metadata_columns])
    if not table.has_primary_key():
        return schema
    return with_keys(schema, table.primary_keys, table.partition_keys)


class Shaper:
    """Brings the batches of a plan into their final form."""

    def __init__(self, plan: ScanPlan, table: TableInfo) -> None:
        self.schema = plan_schema(plan, table)
        self._makers = [_MAKERS[name] for name in plan.metadata_columns]

    def shape(self, rows: Rows, where: BucketRange) -> pa.RecordBatch:
        """Return the final batch of some rows of one place."""
        columns = [*rows.batch.columns, *(make(rows, where) for make in self._makers)]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _change_type(rows: Rows, where: BucketRange) -> pa.Array:
    count = rows.batch.num_rows
    if rows.change_types is None:
        kind = ChangeType.Insert if rows.base_offset == STATE_OFFSET else ChangeType.AppendOnly
        return pa.repeat(pa.scalar(kind.sign), count)
    return ChangeType.signs_of(rows.change_types)


def _offset(rows: Rows, where: BucketRange) -> pa.Array:
    count = rows.batch.num_rows
    if rows.base_offset == STATE_OFFSET:
        return pa.repeat(pa.scalar(STATE_OFFSET, pa.int64()), count)
    return pa.array(np.arange(rows.base_offset, rows.base_offset + count, dtype=np.int64))


def _timestamp(rows: Rows, where: BucketRange) -> pa.Array:
    return pa.repeat(pa.scalar(rows.timestamp, TIMESTAMP), rows.batch.num_rows)


def _bucket(rows: Rows, where: BucketRange) -> pa.Array:
    return pa.repeat(pa.scalar(where.bucket, pa.int32()), rows.batch.num_rows)


def _partition(rows: Rows, where: BucketRange) -> pa.Array:
    if where.partition is None:
        return pa.nulls(rows.batch.num_rows, pa.string())
    return pa.repeat(pa.scalar(where.partition), rows.batch.num_rows)


_MAKERS: dict[str, Callable[[Rows, BucketRange], pa.Array]] = {
    "_change_type": _change_type,
    "_offset": _offset,
    "_timestamp": _timestamp,
    "_bucket": _bucket,
    "_partition": _partition,
}
