"""Parts: what one Spark partition reads, as plain values, and the reading of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from fluss_client import FlussConnection, TableInfo
from fluss_client.engine import CHANGELOG_IMAGE, BlockingState, async_connection
from fluss_client.errors import UnsupportedError
from fluss_orchestrate.core.clusters import ClusterRef
from fluss_orchestrate.core.incremental.reading.reader import PlanReading, ReadOptions
from fluss_orchestrate.core.lake.key_reader import KeyPart, KeyReader
from fluss_orchestrate.core.lake.reader import lake_reader, planned_table
from fluss_orchestrate.core.lake.state import read_keys, read_lake_part
from fluss_orchestrate.core.plan import BucketRange, ScanPlan
from fluss_orchestrate.core.row_filter import RowFilter
from fluss_orchestrate.spark.compat import InputPartition
from fluss_orchestrate.spark.errors import FrameChangedError
from fluss_orchestrate.spark.source.types import gathered, shown

ROWS_AT_ONCE = 1 << 16
BYTES_AT_ONCE = 8 << 20
"""A batch for Spark has so many rows or bytes; then the next one begins."""
PLAN, KEYS, LAKE, UNION = "plan", "keys", "lake", "union"


@dataclass(frozen=True)
class Part:
    """Ranges of one kind.

    A plan, current rows of a key table, a snapshot of a log table's lake, or rows of a key
    table from a snapshot of its lake and the changelog after it (`KeyPart`).
    """

    kind: str
    plan: ScanPlan
    snapshot_id: int | None = None
    lake_fallback: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the part as plain values."""
        return {
            "kind": self.kind,
            "plan": self.plan.to_json(),
            "snapshot_id": self.snapshot_id,
            "lake_fallback": self.lake_fallback,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Part:
        """Return the part from what `to_json` returned."""
        plan = ScanPlan.from_json(value["plan"])
        return cls(value["kind"], plan, value["snapshot_id"], value["lake_fallback"])


class PartsPartition(InputPartition):
    """A Spark partition with parts, as the text that Spark pickles."""

    def __init__(self, parts: Sequence[Part]) -> None:
        super().__init__(json.dumps([part.to_json() for part in parts]))


def parts_of(partition: InputPartition) -> list[Part]:
    """Return the parts of a Spark partition."""
    return [Part.from_json(value) for value in json.loads(partition.value)]


def read_parts(
    cluster: ClusterRef,
    parts: Sequence[Part],
    target: pa.Schema,
    row_filter: RowFilter | None = None,
    limit: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Return the rows of parts in the form that Spark takes, in batches of a good size."""
    held: list[pa.RecordBatch] = []
    rows = size = given = 0
    # Servers leave out only some of what a filter drops, so only an unfiltered limit goes there.
    for batch in _batches(cluster, parts, limit if row_filter is None else None, row_filter):
        if row_filter is not None:
            batch = row_filter.apply(batch)
        if limit is not None:
            batch = batch.slice(0, limit - given)
        given += batch.num_rows
        rows += batch.num_rows
        size += batch.nbytes
        held.append(shown(batch, target))
        if rows >= ROWS_AT_ONCE or size >= BYTES_AT_ONCE:
            yield from gathered(held, target)
            held, rows, size = [], 0, 0
        if limit is not None and given >= limit:
            break
    yield from gathered(held, target)


def _batches(
    cluster: ClusterRef, parts: Sequence[Part], limit: int | None, pruning: RowFilter | None
) -> Iterator[pa.RecordBatch]:
    for part in parts:
        yield from _part_batches(cluster.connection(), part, limit, pruning)


def _part_batches(
    connection: FlussConnection, part: Part, limit: int | None, pruning: RowFilter | None
) -> Iterator[pa.RecordBatch]:
    plan = part.plan
    if part.kind == PLAN:
        lake = lake_reader(connection) if part.lake_fallback else None
        options = ReadOptions(lake_reader=lake, pruning=pruning)
        yield from PlanReading(connection, plan, options).batches()
        return
    info = planned_table(connection, plan)
    if part.kind == UNION:
        reader = KeyReader(connection, info, plan.columns)
        for one in plan.ranges:
            yield from reader.batches(KeyPart(part.snapshot_id, one))
        return
    for one in plan.ranges:
        if part.kind == KEYS:
            if limit is not None:
                yield from read_keys(connection, info, [one], plan.columns, limit)
            else:
                yield from _unchanged_keys(connection, info, one, plan)
        else:
            assert part.snapshot_id is not None
            yield from read_lake_part(connection, info, part.snapshot_id, one, plan.columns)


def _unchanged_keys(
    connection: FlussConnection, info: TableInfo, where: BucketRange, plan: ScanPlan
) -> Iterator[pa.RecordBatch]:
    """Return the rows of a bucket as it was planned, of a table whose changelog has no old rows.

    A base that is older than the plan is taken forward. A newer one cannot be taken back.

    Raises:
        FrameChangedError: The base is newer than the plan.
    """
    core, bucket = async_connection(connection), where.table_bucket(info.table_id)
    try:
        opened = BlockingState(core, info, bucket, stop=where.stop, columns=plan.columns)
    except UnsupportedError as error:
        raise FrameChangedError(
            f"bucket {where.bucket} of {plan.table.path} was at offset {where.stop} when this "
            f"frame was planned and was changed since; its changelog has no old rows "
            f"({CHANGELOG_IMAGE} is not FULL), so it cannot be read as it was: load() again while "
            "nobody writes, or read the changelog"
        ) from error
    with opened as state:
        yield from state


def part_of(plan: ScanPlan, ranges: Sequence[BucketRange], kind: str, **more: Any) -> Part:
    """Return a part for some ranges of a plan."""
    return Part(kind, replace(plan, ranges=tuple(ranges)), **more)
