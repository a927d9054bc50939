"""Reading a table as a stream: every offset in one micro-batch, new partitions found on the way.

An offset of the stream is JSON: the table's id, and the next offset of each place. A place that a
start does not name begins at 0, so that nothing of a new partition is passed over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from fluss_client.engine import async_connection, backend_of, run_blocking
from fluss_client.errors import ConfigError, LogOffsetOutOfRangeError
from fluss_orchestrate.core.checkpoints.position import place_order
from fluss_orchestrate.core.errors import TableIdentityChangedError
from fluss_orchestrate.core.incremental.planning.bounds import first_starts
from fluss_orchestrate.core.incremental.planning.limits import (
    PLACES_AT_ONCE_MAX,
    offsets_of_bytes,
    share,
)
from fluss_orchestrate.core.incremental.planning.observation import TableView
from fluss_orchestrate.core.incremental.planning.settings import ScanSettings
from fluss_orchestrate.core.incremental.time.timestamps import Prober
from fluss_orchestrate.core.loading.units import CHANGE_TYPE
from fluss_orchestrate.core.plan import METADATA_COLUMNS, Place, ScanPlan
from fluss_orchestrate.spark.compat import (
    HAS_READ_LIMITS,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    needs_version,
)
from fluss_orchestrate.spark.source.options import SourceOptions, offsets_json, offsets_of
from fluss_orchestrate.spark.source.parts import PLAN, Part, PartsPartition, parts_of, read_parts
from fluss_orchestrate.spark.source.planning import (
    NAME,
    check_filter,
    column_numbers,
    empty_plan,
    in_partitions,
    projected,
    read_names,
    row_bytes_of,
    split_plan,
    view_of,
)
from fluss_orchestrate.spark.source.types import arrow_schema

StreamOffset = dict[str, Any]
LIMITS = ("max.rows.per.trigger", "max.bytes.per.trigger")


class FlussStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver and reads their parts on executors."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        for name in ("plan", "until", "read", "limit"):
            if options.text(name):
                raise ConfigError(f"a stream has no option '{name}'")
        self._options = options
        self._target: pa.Schema = arrow_schema(schema)
        info = self._view().info
        check_filter(options, info, info.get_column_names(), METADATA_COLUMNS)
        if info.has_primary_key() and CHANGE_TYPE not in self._target.names:
            raise ConfigError(
                f"a stream of {options.table}, which has a primary key, has updates and deletes "
                "in it: add option('metadata', '_change_type') to tell them apart"
            )
        self._frozen: StreamOffset | None = None
        self._row_bytes: float | None = None
        """Measured once for all micro-batches: it costs a few fetches."""

    def _view(self) -> TableView:
        return view_of(self._options.cluster.connection(), self._options, stream=True)

    def _offset(self, view: TableView, offsets: Mapping[Place, int]) -> StreamOffset:
        ordered = dict(sorted(offsets.items(), key=lambda item: place_order(item[0])))
        return {"table_id": view.info.table_id, "offsets": offsets_json(ordered)}

    def initialOffset(self) -> StreamOffset:  # noqa: N802
        """Return where a new query begins: `start`, by default earliest."""
        view = self._view()
        core = async_connection(self._options.cluster.connection())
        settings = ScanSettings(name=NAME, path=view.info.table_path)
        begin = self._options.start
        begin = "earliest" if begin is None else begin
        starts = run_blocking(first_starts(backend_of(core), core.config, view, begin, settings))
        return self._offset(view, starts)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return how much a micro-batch takes: all, unless an option says otherwise."""
        rows, size = (self._options.number(name) for name in LIMITS)
        if rows is not None and size is not None:
            raise ConfigError("set max.rows.per.trigger or max.bytes.per.trigger, not both")
        if size is not None:
            return ReadMaxBytes(size)
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end: later rows wait for the next query."""
        view = self._view()
        self._frozen = self._offset(view, view.latest)

    def latestOffset(self, start: StreamOffset, limit: ReadLimit) -> StreamOffset:  # noqa: N802
        """Return where the next micro-batch ends."""
        view = self._view()
        self._check_table(view, start)
        begin = offsets_of(start["offsets"])
        latest = view.latest if self._frozen is None else offsets_of(self._frozen["offsets"])
        stops = {place: max(stop, begin.get(place, 0)) for place, stop in latest.items()}
        if isinstance(limit, (ReadMaxRows, ReadMaxBytes)):
            starts = {place: begin.get(place, 0) for place in stops}
            stops = self._capped(view, starts, stops, limit)
        # A partition that was dropped keeps its place, so that an offset never moves back.
        return self._offset(view, {**begin, **stops})

    def reportLatestOffset(self) -> StreamOffset:  # noqa: N802
        """Return where the logs end, for the query's progress."""
        view = self._view()
        return self._offset(view, view.latest)

    def _capped(
        self,
        view: TableView,
        starts: Mapping[Place, int],
        stops: Mapping[Place, int],
        limit: ReadMaxRows | ReadMaxBytes,
    ) -> dict[Place, int]:
        """Return stops with at most a number of offsets, or about a number of bytes."""
        core = async_connection(self._options.cluster.connection())

        async def ask() -> dict[Place, int]:
            if isinstance(limit, ReadMaxRows):
                rows = limit.max_rows
            else:
                numbers = self._column_numbers(view)
                weigher = Prober(backend_of(core), core.config, view.info, numbers)
                rows = await offsets_of_bytes(weigher, starts, stops, limit.max_bytes)
            shares = share({place: stop - starts[place] for place, stop in stops.items()}, rows)
            ends = {place: starts[place] + shares.get(place, 0) for place in stops}
            if not view.info.has_primary_key():
                return ends
            prober = Prober(backend_of(core), core.config, view.info)
            return await _whole_updates(prober, starts, ends, stops)

        return run_blocking(ask())

    def _column_numbers(self, view: TableView) -> tuple[int, ...]:
        return column_numbers(view.info, read_names(self._options, self._target.names))

    def _check_table(self, view: TableView, offset: StreamOffset) -> None:
        if offset["table_id"] != view.info.table_id:
            known = replace(view.identity, table_id=int(offset["table_id"]))
            raise TableIdentityChangedError(known, view.identity)

    def partitions(self, start: StreamOffset, end: StreamOffset) -> list[InputPartition]:
        """Return the parts of one micro-batch; the same offsets always give the same rows."""
        view = self._view()
        for offset in (start, end):
            self._check_table(view, offset)
        begin = offsets_of(start["offsets"])
        ranges = [
            view.range_of(place, begin.get(place, 0), stop)
            for place, stop in offsets_of(end["offsets"]).items()
            if stop > begin.get(place, 0)
        ]
        ranges = list(in_partitions(self._options, view, ranges))
        if not ranges:
            return [PartsPartition([])]
        names = read_names(self._options, self._target.names)
        plan = projected(empty_plan(view), view.info.get_column_names(), names)
        plan = replace(plan, ranges=tuple(ranges))
        plans = split_plan(plan, self._options, lambda: self._measured(plan))
        return [PartsPartition([Part(PLAN, some)]) for some in plans]

    def _measured(self, plan: ScanPlan) -> float:
        if self._row_bytes is None:
            self._row_bytes = row_bytes_of(self._options.cluster.connection(), plan)
        return self._row_bytes

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the rows of one Spark partition."""
        asked = self._options
        yield from read_parts(asked.cluster, parts_of(partition), self._target, asked.row_filter)

    def commit(self, end: StreamOffset) -> None:
        """Do nothing: the query's own checkpoint has its position."""

    def stop(self) -> None:
        """Do nothing: nothing is open."""


class UnlimitedStreamReader(FlussStreamReader):
    """The reader for a Spark without limits: a micro-batch ends where the logs end."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        for name in LIMITS:
            if options.text(name):
                raise needs_version(
                    "4.2", f"option('{name}')", "leave it out, and a micro-batch takes all rows"
                )
        super().__init__(options, schema)

    def latestOffset(self) -> StreamOffset:  # type: ignore[override]  # noqa: N802
        """Return where the logs end now. `partitions` compares the table with the start's."""
        return self.reportLatestOffset()


def stream_reader(options: SourceOptions, schema: StructType) -> FlussStreamReader:
    """Return the reader that fits this Spark."""
    made = FlussStreamReader if HAS_READ_LIMITS else UnlimitedStreamReader
    return made(options, schema)


async def _whole_updates(
    prober: Prober,
    starts: Mapping[Place, int],
    ends: Mapping[Place, int],
    stops: Mapping[Place, int],
) -> dict[Place, int]:
    """Return ends of which none lies between the two rows of an update.

    Such an end is moved before the update, or behind it if there is nothing else, so that the
    stream continues.
    """
    gate = asyncio.Semaphore(PLACES_AT_ONCE_MAX)

    async def moved(place: Place, end: int) -> int:
        if not starts[place] < end < stops[place]:
            return end
        async with gate:
            try:
                cuts = await prober.is_update_before(place, end - 1)
            except LogOffsetOutOfRangeError:
                return end  # reading it says which offsets are gone
        if not cuts:
            return end
        return end - 1 if end - 1 > starts[place] else end + 1

    found = await asyncio.gather(*(moved(place, end) for place, end in ends.items()))
    return dict(zip(ends, found, strict=True))
