"""Plans of changes without a cluster: what they read is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from fluss_orchestrate.core.plan import BucketRange, Generation, ScanPlan
from fluss_orchestrate.core.row_schema import with_keys
from fluss_orchestrate.core.sinks.base import ReadPlan
from tests.orchestrate.sinks.plans import IDENTITY

CHANGE_TYPE = pa.field("_change_type", pa.string())


def plan_of(
    start: int,
    stop: int,
    *,
    kind: str = "changelog",
    name: str = "m",
    generation: int = -1,
    **fields: Any,
) -> ScanPlan:
    """A plan of one bucket without partitions."""
    plan = ScanPlan(
        name=name,
        run_key=f"run-{start}-{stop}-{generation}",
        table=IDENTITY,
        schema_id=1,
        columns=(),
        metadata_columns=("_change_type",),
        ranges=(BucketRange(None, None, 0, start, stop),) if stop > start else (),
        kind=kind,
        sequence=0,
        created_ms=1_700_000_000_000,
        generation=None if generation < 0 else Generation(generation, f"nonce {generation}"),
    )
    return replace(plan, **fields)


def reading(
    rows: pa.Table, changes: Sequence[str], key: Sequence[str] = ("id",), batch_rows: int = 3
) -> ReadPlan:
    """Gives these rows as changes, in several batches."""
    column = pa.array(changes, CHANGE_TYPE.type)
    table = rows.append_column(CHANGE_TYPE, column)
    schema = with_keys(table.schema, key, ())

    def read(_: ScanPlan) -> pa.RecordBatchReader:
        batches = table.cast(schema).to_batches(max_chunksize=batch_rows)
        return pa.RecordBatchReader.from_batches(schema, batches)

    return read


def state(rows: pa.Table, key: Sequence[str] = ("id",)) -> ReadPlan:
    """Gives these rows as a state."""
    return reading(rows, ["+I"] * rows.num_rows, key)
