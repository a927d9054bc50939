"""What can be said of a table right now: its ends, rows, size, readers and lake.

It is what a scheduler shows beside a table: numbers that are worth a line in a chart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fluss_client import FlussConnection, OffsetSpec, TablePath
from fluss_client.aio import FlussConnection as AsyncConnection
from fluss_client.engine import async_connection, backend_of, run_blocking
from fluss_client.errors import InvalidTableError, LogOffsetOutOfRangeError, UnsupportedError
from fluss_orchestrate.core.checkpoints.events import Event, IntervalName
from fluss_orchestrate.core.checkpoints.report import Lag, lag_in
from fluss_orchestrate.core.checkpoints.store import CheckpointStore
from fluss_orchestrate.core.incremental.planning.observation import (
    TableView,
    observe_table,
    offsets_of,
)
from fluss_orchestrate.core.incremental.time.timestamps import Prober
from fluss_orchestrate.core.lake.status import LakeStatus, lake_status
from fluss_orchestrate.core.provisioning.guards import store_or_default
from fluss_orchestrate.core.provisioning.spec import LAKE_ENABLED

SAMPLE_ROWS = 1_000
SAMPLE_BYTES = 1 << 20
CHECKPOINTS_MAX = 100
"""Checkpoints of one table that a report shows; a chart cannot name more."""


@dataclass(frozen=True, slots=True)
class TableReport:
    """One look at a table."""

    view: TableView
    row_counts: Mapping[int | None, int] | None
    """Rows by partition id (None for a table without partitions); None if servers do not count."""
    bytes_per_row: float | None
    """Bytes of a row in Arrow's form, of a sample from the end of the longest log."""
    lags: tuple[Lag, ...]
    """How far the checkpoints of this table are behind it, by name."""
    lake: LakeStatus | None
    """The lake's status; None for a table without a lake."""

    @property
    def offsets(self) -> int:
        """The sum of the end offsets of all places."""
        return sum(self.view.latest.values())

    @property
    def rows(self) -> int | None:
        """The rows that the servers hold; None if they do not count them."""
        return None if self.row_counts is None else sum(self.row_counts.values())

    @property
    def bytes(self) -> int | None:
        """The size, estimated from the sample: servers of 0.9 do not report the size of a table."""
        if self.rows is None or self.bytes_per_row is None:
            return None
        return round(self.rows * self.bytes_per_row)


def report_table(
    connection: FlussConnection,
    table: TablePath | str,
    heads: Sequence[Event] = (),
    *,
    times: bool = True,
) -> TableReport:
    """Look at a table. Blocks.

    Args:
        connection: The cluster.
        table: The table's path.
        heads: The checkpoints to compare, from `checkpoint_heads`; others' tables are left out.
        times: Whether lags have times, which costs a request per bucket that is behind.

    Raises:
        TableNotExistError: There is no such table.
    """
    path = TablePath.parse(table) if isinstance(table, str) else table
    core = async_connection(connection)
    view, counts, size, lags = run_blocking(_look(core, path, heads, times))
    tiered = view.info.properties.get(LAKE_ENABLED, "false").lower() == "true"
    lake = lake_status(connection, path, times=times) if tiered else None
    return TableReport(view, counts, size, lags, lake)


def checkpoint_heads(
    connection: FlussConnection, store: CheckpointStore | None = None
) -> list[Event]:
    """The last events of all checkpoints that are in use, of the store or the default one.

    Intervals are left out, because they follow no table. Nothing is created: where there is no
    default store yet, there are no checkpoints.
    """
    found = store_or_default(connection, store)
    if found is None:
        return []
    heads = [found.require(name) for name in found.names() if IntervalName.of(name) is None]
    return [head for head in heads if head.state.position is not None and not head.state.retired]


async def _look(
    core: AsyncConnection, path: TablePath, heads: Sequence[Event], times: bool
) -> tuple[TableView, dict[int | None, int] | None, float | None, tuple[Lag, ...]]:
    view = await observe_table(core, path)
    of_table = [
        head
        for head in heads
        if head.state.position is not None and head.state.position.table == view.identity
    ]
    lags = [await lag_in(core, view, head, times=times) for head in of_table[:CHECKPOINTS_MAX]]
    return view, await row_counts(core, view), await bytes_per_row(core, view), tuple(lags)


async def row_counts(core: AsyncConnection, view: TableView) -> dict[int | None, int] | None:
    admin = core.get_admin()
    try:
        counts = await admin.get_table_stats(view.info.table_path)
    except (InvalidTableError, UnsupportedError):
        return None
    totals = {place[0]: 0 for place in view.latest}
    for bucket, count in counts.items():
        if bucket.partition_id in totals:
            totals[bucket.partition_id] += count
    return totals


async def bytes_per_row(core: AsyncConnection, view: TableView) -> float | None:
    longest = max(view.latest, key=lambda place: view.latest[place], default=None)
    if longest is None or not view.latest[longest]:
        return None
    backend, latest = backend_of(core), view.latest[longest]
    earliest = await offsets_of(backend, view.info, [longest[0]], OffsetSpec.earliest())
    first = max(earliest.get(longest, 0), latest - SAMPLE_ROWS)
    columns = tuple(range(len(view.info.schema.columns)))
    try:
        rows, size = await Prober(backend, core.config, view.info, columns).sizes(
            longest, first, SAMPLE_BYTES
        )
    except LogOffsetOutOfRangeError:
        return None  # retention was faster
    return size / rows if rows else None
