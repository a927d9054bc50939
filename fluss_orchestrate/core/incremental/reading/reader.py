"""Reading a plan: every time the same rows, in the order of partition, bucket and offset.

Buckets are fetched and decoded ahead in parallel, within the bounds of the client's scanner, and
returned one after the other. A range that starts at the position of a checkpoint is read from one
offset earlier. That row was the last one of the run before. If its commit time is not the one that
the checkpoint recorded, the log is not the same any more.

Before a plan is read, its table is checked: it must be the same table, with every offset of the
plan.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from fluss_client import FlussConnection, OffsetSpec, RecordBatch, TableBucket, TableInfo
from fluss_client.engine import (
    Backend,
    OffsetUnavailableError,
    Projection,
    RangeReader,
    async_connection,
    backend_of,
    existing_partitions,
    run_blocking,
    runtime,
)
from fluss_client.errors import (
    CorruptDataError,
    FlussError,
    PartitionNotExistError,
    TableNotExistError,
    UnknownServerError,
)
from fluss_orchestrate.core.errors import (
    LogWentBackwardsError,
    PartitionGoneError,
    RetentionPassedError,
    TableIdentityChangedError,
)
from fluss_orchestrate.core.identity import TableIdentity
from fluss_orchestrate.core.incremental.planning.guards import check_identity, check_not_backwards
from fluss_orchestrate.core.incremental.planning.observation import TableView, offsets_of
from fluss_orchestrate.core.incremental.planning.settings import BACKWARDS_WAIT_MS, LakeReader
from fluss_orchestrate.core.incremental.reading.columns import Rows, Shaper
from fluss_orchestrate.core.incremental.reading.state import StateCost, read_state
from fluss_orchestrate.core.plan import BucketRange, Place, ScanPlan
from fluss_orchestrate.core.row_filter import RowFilter


@dataclass(frozen=True, slots=True)
class Prepared:
    """A checked plan: its table with the pinned schema, and which offsets the log still has."""

    table: TableInfo
    earliest: Mapping[Place, int]


async def pinned_table(backend: Backend, alias: str, plan: ScanPlan) -> TableInfo:
    """Return the table with the schema of the plan, also if its schema has changed since."""
    path = plan.table.path
    try:
        info = await backend.get_table_info(path)
    except TableNotExistError:
        raise TableIdentityChangedError(plan.table, None) from None
    check_identity(plan.table, TableIdentity.of(alias, info))
    if info.schema_id == plan.schema_id:
        return info
    _, schema = await backend.get_schema(path, plan.schema_id)
    return replace(info, schema=schema, schema_id=plan.schema_id)


async def prepare(
    backend: Backend, alias: str, plan: ScanPlan, backwards_wait_ms: int, lake: bool
) -> Prepared:
    """Check everything that can be checked before the first row is read.

    With `lake`, offsets that retention deleted are no error: they are read from the lake.
    """
    table = await pinned_table(backend, alias, plan)
    ids = list(dict.fromkeys(r.partition_id for r in plan.ranges))
    try:
        earliest, latest = await asyncio.gather(
            offsets_of(backend, table, ids, OffsetSpec.earliest()),
            offsets_of(backend, table, ids, OffsetSpec.latest()),
        )
    except TableNotExistError:
        raise TableIdentityChangedError(plan.table, None) from None
    gone = [r for r in plan.ranges if r.place not in earliest or r.place not in latest]
    if gone:
        raise PartitionGoneError(plan.table, gone)
    names = {r.partition_id: r.partition for r in plan.ranges}
    partitions = {i: n for i, n in names.items() if i is not None and n is not None}
    view = TableView(table, plan.table, partitions, latest)
    ends = {r.place: r.stop for r in plan.ranges}
    await check_not_backwards(backend, view, ends, backwards_wait_ms)
    if plan.kind != "state":
        lost = lost_ranges(plan.ranges, earliest)
        if lost and not (lake and plan.kind == "log"):
            raise RetentionPassedError(plan.table, lost)
    return Prepared(table, earliest)


def lost_ranges(ranges: Sequence[BucketRange], earliest: Mapping[Place, int]) -> list[BucketRange]:
    """Return the parts of ranges that the log does not have any more."""
    return [
        replace(r, stop=min(r.stop, earliest[r.place]))
        for r in ranges
        if earliest[r.place] > r.start
    ]


async def explained(backend: Backend, error: FlussError, plan: ScanPlan) -> FlussError:
    """Return the error of a guard for an error of reading; it names the ranges of the plan."""
    if isinstance(error, TableNotExistError):
        return TableIdentityChangedError(plan.table, None)
    if isinstance(error, PartitionNotExistError):
        info = await backend.get_table_info(plan.table.path)
        there = await existing_partitions(backend, info)
        ids = {partition.partition_id for partition in there}
        gone = [r for r in plan.ranges if r.partition_id not in ids]
        return PartitionGoneError(plan.table, gone)
    if isinstance(error, OffsetUnavailableError):
        place = (error.bucket.partition_id, error.bucket.bucket_id)
        ranges = [r for r in plan.ranges if r.place == place]
        if error.earliest is not None and error.offset < error.earliest:
            return RetentionPassedError(plan.table, lost_ranges(ranges, {place: error.earliest}))
        if error.latest is not None and error.offset > error.latest:
            return LogWentBackwardsError(plan.table, ranges, "it ends before the plan does")
    return error


BATCHES_AT_ONCE_MAX = 64
SERVER_FAILURES_MAX = 3


@dataclass(frozen=True, slots=True)
class ScanProgress:
    """How far the reading of a plan is."""

    rows: int
    bytes: int
    offsets: int
    offsets_total: int

    @property
    def fraction(self) -> float:
        """The part of the offsets that was read, from 0 to 1."""
        return self.offsets / self.offsets_total if self.offsets_total else 1.0


ProgressHook = Callable[[ScanProgress], None]


@dataclass(slots=True)
class Tally:
    """The counts of a reading."""

    rows: int = 0
    bytes: int = 0
    offsets: int = 0
    started: bool = False
    complete: bool = False
    commit_ms: dict[tuple[Place, int], int] = field(default_factory=dict)
    """The commit time of the last batch of each range that was read, by place and stop."""
    state: StateCost = field(default_factory=StateCost)
    """The cost of reading a `state` plan."""


@dataclass(frozen=True)
class ReadOptions:
    """What a reading may use besides the log."""

    commit_ms: Mapping[Place, int] = field(default_factory=dict)
    """Commit times of the last rows before the plan's ranges, from the checkpoint."""
    lake_reader: LakeReader | None = None
    backwards_wait_ms: int = BACKWARDS_WAIT_MS
    progress: ProgressHook | None = None
    pruning: RowFilter | None = None
    """Which rows the caller will keep. Servers may leave out others, of the log of a log table."""


def prepare_plan(connection: FlussConnection, plan: ScanPlan, options: ReadOptions) -> Prepared:
    """Check a plan that is read next with these options."""
    alias = connection.config.resolved_alias()
    lake = options.lake_reader is not None
    return run_blocking(
        prepare(backend_of(connection), alias, plan, options.backwards_wait_ms, lake)
    )


class PlanReading:
    """Reads one plan. It checks the plan first, unless that was done."""

    def __init__(
        self,
        connection: FlussConnection,
        plan: ScanPlan,
        options: ReadOptions | None = None,
        prepared: Prepared | None = None,
        tally: Tally | None = None,
    ) -> None:
        self.plan = plan
        self.tally = tally or Tally()
        self._options = options or ReadOptions()
        self._core = async_connection(connection)
        self._prepared = prepared or prepare_plan(connection, plan, self._options)
        self._shaper = Shaper(plan, self._prepared.table)

    @property
    def schema(self) -> pa.Schema:
        """The schema of every batch."""
        return self._shaper.schema

    def reader(self) -> pa.RecordBatchReader:
        """Return the rows in batches, in bounded memory. Dropping the reader stops the reading."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Iterate over the batches of the rows."""
        self.tally.started = True
        if self.plan.kind == "state":
            source = read_state(self._core, self.plan, self._prepared.table, self.tally.state)
            for rows, where in source:
                yield from self._given(rows, where)
                self._moved(where.count, where)
        else:
            for segment in _segments(self.plan.ranges):
                yield from self._segment(segment)
        self.tally.complete = True

    def _segment(self, ranges: Sequence[BucketRange]) -> Iterator[pa.RecordBatch]:
        """Read ranges of different places with one reader."""
        walk = _Walk(ranges)
        for fetched in self._fetch(ranges):
            for passed in walk.up_to((fetched.bucket.partition_id, fetched.bucket.bucket_id)):
                yield from self._from_lake(passed)
            where = walk.current
            assert where is not None
            self._check_lead(fetched, where)
            if fetched.next_offset <= where.start:
                continue
            yield from self._given(Rows.of(fetched, where.start), where)
            if fetched.timestamp >= 0 and fetched.next_offset >= where.stop:
                self.tally.commit_ms[where.place, where.stop] = fetched.timestamp
            first = max(where.start, fetched.base_offset)
            self._moved(fetched.next_offset - first, where)
        for passed in walk.rest():
            yield from self._from_lake(passed)

    def _given(self, rows: Rows, where: BucketRange) -> Iterator[pa.RecordBatch]:
        if rows.batch.num_rows:
            batch = self._shaper.shape(rows, where)
            yield batch
            self.tally.rows += batch.num_rows
            self.tally.bytes += batch.nbytes

    def _moved(self, offsets: int, where: BucketRange) -> None:
        tally = self.tally
        tally.offsets += offsets
        if self._options.progress is not None:
            self._options.progress(
                ScanProgress(tally.rows, tally.bytes, tally.offsets, self.plan.offsets)
            )

    def _check_lead(self, fetched: RecordBatch, where: BucketRange) -> None:
        expected = self._options.commit_ms.get(where.place)
        if expected is None or fetched.timestamp < 0 or fetched.base_offset >= where.start:
            return
        if fetched.timestamp != expected:
            raise LogWentBackwardsError(
                self.plan.table,
                [replace(where, start=where.start - 1, stop=where.start)],
                f"the last row that was read was committed at {expected}, the one that stands "
                f"there now at {fetched.timestamp}",
            )

    def _log_ranges(self, ranges: Sequence[BucketRange]) -> dict[TableBucket, tuple[int, int]]:
        found = {}
        for r in ranges:
            earliest = self._prepared.earliest[r.place]
            start = max(r.start, min(r.stop, earliest))
            if r.place in self._options.commit_ms and earliest < r.start:
                start = r.start - 1
            if start < r.stop:
                found[r.table_bucket(self.plan.table.table_id)] = (start, r.stop)
        return found

    def _fetch(self, ranges: Sequence[BucketRange]) -> Iterator[RecordBatch]:
        """Fetch the log in order, and continue at the same offset after a failure of the server."""
        wanted = self._log_ranges(ranges)
        failures = 0
        while wanted:
            try:
                for fetched in self._fetch_once(dict(wanted)):
                    yield fetched
                    failures = 0
                    stop = wanted[fetched.bucket][1]
                    wanted[fetched.bucket] = (fetched.next_offset, stop)
                    if fetched.next_offset >= stop:
                        del wanted[fetched.bucket]
            except UnknownServerError:
                # Servers answer with this error if a segment is moved to remote storage meanwhile.
                failures += 1
                if failures > SERVER_FAILURES_MAX:
                    raise

    def _fetch_once(self, wanted: dict[TableBucket, tuple[int, int]]) -> Iterator[RecordBatch]:
        table, core = self._prepared.table, self._core
        projection = Projection.of(table.schema, _indexes(self.plan, table))
        pruning = self._options.pruning
        if pruning is not None and self.plan.kind == "log":
            projection = replace(projection, pruning=pruning.predicate(table.schema))

        async def opened() -> RangeReader:
            return RangeReader(backend_of(core), table, wanted, projection, core.config, True)

        reader = run_blocking(opened())
        try:
            while batches := run_blocking(reader.read(BATCHES_AT_ONCE_MAX)):
                yield from batches
        except FlussError as error:
            raise run_blocking(explained(backend_of(core), error, self.plan)) from error
        finally:
            # A reader may be dropped on any thread, even on the event loop: do not wait here.
            asyncio.run_coroutine_threadsafe(reader.close(), runtime().loop)

    def _from_lake(self, where: BucketRange) -> Iterator[pa.RecordBatch]:
        """Read the offsets of a range that the log does not have any more."""
        stop = min(where.stop, self._prepared.earliest[where.place])
        reader = self._options.lake_reader
        if stop <= where.start or reader is None:
            return
        part = replace(where, stop=stop)
        rows = 0
        for batch in reader(replace(self.plan, ranges=(part,))):
            if not batch.schema.equals(self.schema):
                batch = batch.select(self.schema.names).cast(self.schema)
            rows += batch.num_rows
            yield batch
            self.tally.rows += batch.num_rows
            self.tally.bytes += batch.nbytes
        if rows != part.count:
            raise CorruptDataError(
                f"{self.plan.table.path}: the lake gave {rows} rows for the {part.count} offsets "
                f"[{part.start}, {part.stop}) of bucket {part.bucket}"
            )
        self._moved(part.count, where)


class _Walk:
    """The ranges of a segment, in the order in which the reader reaches them."""

    def __init__(self, ranges: Sequence[BucketRange]) -> None:
        self._ranges = list(ranges)
        self._at = -1

    @property
    def current(self) -> BucketRange | None:
        return self._ranges[self._at] if self._at >= 0 else None

    def up_to(self, place: Place) -> Iterator[BucketRange]:
        """Move on to the range of a place, and yield each range that is entered."""
        while self.current is None or self.current.place != place:
            self._at += 1
            yield self._ranges[self._at]

    def rest(self) -> Iterator[BucketRange]:
        """Yield the ranges that had no rows."""
        while self._at + 1 < len(self._ranges):
            self._at += 1
            yield self._ranges[self._at]


def _segments(ranges: Sequence[BucketRange]) -> Iterator[list[BucketRange]]:
    """Split ranges into groups in which each place occurs once."""
    group: dict[Place, BucketRange] = {}
    for r in ranges:
        if r.place in group:
            yield list(group.values())
            group = {}
        group[r.place] = r
    if group:
        yield list(group.values())


def _indexes(plan: ScanPlan, table: TableInfo) -> list[int] | None:
    index = table.schema.index
    if plan.columns == tuple(index):
        return None
    return [index[name] for name in plan.columns]
