"""Sending a load: units are pinned in blocks and sent, those of a bucket in order.

At most two blocks are in memory: one is sent while the next one is cut. Whenever the load stops,
the next attempt sends the same units under the same numbers, and servers drop those that they have.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa

from fluss_client import FlussConnection, OffsetSpec, TableBucket, TableInfo
from fluss_client.aio import FlussConnection as AsyncConnection
from fluss_client.engine import (
    Backend,
    Deletes,
    append_pinned,
    async_connection,
    backend_of,
    parse_partition_name,
    run_blocking,
    runtime,
    upsert_pinned,
)
from fluss_client.errors import (
    InvalidBucketRoutingError,
    PartitionNotExistError,
    WriteError,
)
from fluss_orchestrate.core.checkpoints.fluss_rows import CheckpointTable
from fluss_orchestrate.core.checkpoints.position import place_order
from fluss_orchestrate.core.loading.errors import (
    PlacedElsewhereError,
    RowsDifferError,
    differ_text,
)
from fluss_orchestrate.core.loading.ledger import Cut, LoadLedger, Pins
from fluss_orchestrate.core.loading.units import BatchRows as BatchRows
from fluss_orchestrate.core.loading.units import LoadTarget, Placed, Unit, batch_rows_of
from fluss_orchestrate.core.plan import BucketRange, Place, Position

BLOCK_UNITS = 8

CutUnits = Callable[[BatchRows], Iterator[Unit]]
Progress = Callable[[int, int], None]
"""Called with the rows and bytes that were sent so far."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of a load."""

    rows: int
    bytes: int
    ranges: tuple[BucketRange, ...] = ()
    """Where each bucket's log ended before and after; others may have written there too."""

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain values."""
        ranges = [r.to_json() for r in self.ranges]
        return {"rows": self.rows, "bytes": self.bytes, "ranges": ranges}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Loaded:
        """Return the result from what `to_json` returned."""
        ranges = tuple(BucketRange.from_json(r) for r in value["ranges"])
        return cls(int(value["rows"]), int(value["bytes"]), ranges)


class PinnedLoad:
    """One load into one table. Calls block."""

    def __init__(
        self,
        connection: FlussConnection,
        ledger: CheckpointTable,
        target: LoadTarget,
        kind: str,
        load_id: str,
        *,
        columns: Sequence[str] = (),
        create_partitions: bool = False,
        progress: Progress | None = None,
    ) -> None:
        self._connection = connection
        self._core = async_connection(connection)
        self._target = target
        self._load_id = load_id
        self._pins = Pins(
            LoadLedger(backend_of(self._core), ledger, target.info, kind, load_id), columns
        )
        self._create_partitions = create_partitions
        self._progress = progress
        self._partition_ids: dict[str, int] = {}
        self._before: dict[Place, int] = {}
        self._last_of_place: dict[Place, asyncio.Task[None]] = {}

    def done(self) -> Loaded | None:
        """Return what was loaded, if the load is finished."""
        found = run_blocking(self._pins.done())
        return None if found is None else Loaded.from_json(found)

    def enter(self) -> None:
        """Record that the load is about to write. Everyone but a mirror itself calls it first.

        Raises:
            MirroredTableError: The table is a mirror.
        """
        run_blocking(self._pins.enter())

    def run(self, cut_units: CutUnits) -> Loaded:
        """Send every unit, then record that the load is finished.

        `cut_units(batch_rows)` returns the units of the load in order. `batch_rows` decides from a
        sample how many rows a batch has.
        """
        cut = run_blocking(self._pins.cut())
        units = cut_units(_CutRule(cut, self._begin, self._pins.check_age))
        rows = size = blocks = 0
        under_way: concurrent.futures.Future[None] | None = None
        try:
            for number, block in enumerate(_blocks(units)):
                if under_way is not None:
                    under_way.result()
                    self._report(rows, size)
                for refusal in filter(None, (unit.refusal for unit in block)):
                    raise refusal
                rows += sum(unit.mark.rows for unit in block)
                size += sum(unit.bytes for unit in block)
                blocks = number + 1
                under_way = runtime().start(self._send_block(number, block))
        finally:
            if under_way is not None:
                concurrent.futures.wait([under_way])
        if under_way is not None:
            under_way.result()
        self._report(rows, size)
        # Only an attempt that had rows has begun the load.
        if (cut is not None and not rows) or run_blocking(self._pins.holds_block(blocks)):
            raise self._other_count("more rows then than now")
        loaded = Loaded(rows, size, run_blocking(self._ranges()))
        run_blocking(self._pins.finish(loaded.to_json()))
        return self.done() or loaded

    def is_known(self) -> bool:
        """Return whether an attempt has begun this load."""
        return run_blocking(self._pins.cut()) is not None or self.done() is not None

    def verify(self, cut_units: CutUnits, loaded: Loaded) -> None:
        """Check that these are the rows of this load, which is finished.

        Raises:
            RowsDifferError: They are not.
        """
        cut = run_blocking(self._pins.cut())
        rows = 0

        async def never() -> Position:
            return {}

        # A load without rows has no cut.
        units = cut_units(_CutRule(cut or Cut(1)))
        for number, block in enumerate(_blocks(units)):
            rows += sum(unit.mark.rows for unit in block)
            if rows > loaded.rows:
                break
            run_blocking(self._pins.block(number, [unit.mark for unit in block], never))
        if rows != loaded.rows:
            word = "more" if rows > loaded.rows else "fewer"
            raise self._other_count(f"{loaded.rows} rows then, {word} now")

    def _other_count(self, what: str) -> RowsDifferError:
        return RowsDifferError(str(self._target.info.table_path), self._load_id, differ_text(what))

    def _report(self, rows: int, size: int) -> None:
        if self._progress is not None:
            self._progress(rows, size)

    def _begin(self, sample: pa.RecordBatch) -> Cut:
        return run_blocking(self._pins.begin(batch_rows_of(sample)))

    async def _send_block(self, number: int, units: Sequence[Unit]) -> None:
        names = {p.partition for unit in units for p in unit.placed if p.partition is not None}
        for name in sorted(names - self._partition_ids.keys()):
            self._partition_ids[name] = await partition_id_of(
                backend_of(self._core), self._target.info, name, self._create_partitions
            )
        places = {self._place(p) for unit in units for p in unit.placed}
        new = places - self._before.keys()
        block = await self._pins.block(number, [u.mark for u in units], lambda: self._ends(new))
        self._before.update(block.before)
        calls = [
            self._in_turn(placed, writer_id, unit)
            for unit, writer_id in zip(units, block.writer_ids, strict=True)
            for placed in unit.placed
        ]
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    def _in_turn(self, placed: Placed, writer_id: int, unit: Unit) -> asyncio.Task[None]:
        """Send rows after those that were sent to the same bucket before."""
        place = self._place(placed)
        earlier = self._last_of_place.get(place)

        async def send() -> None:
            if earlier is not None:
                await earlier
            await self._send(placed, writer_id, unit)

        task = asyncio.get_running_loop().create_task(send())
        self._last_of_place[place] = task
        return task

    async def _send(self, placed: Placed, writer_id: int, unit: Unit) -> None:
        info = self._target.info
        bucket = placed.table_bucket(info.table_id, self._partition_ids)
        batches = placed.cut(unit.batch_rows)
        numbers = (writer_id, placed.bucket_count)
        await send_pinned(self._core, info, bucket, batches, numbers, unit.target_columns)

    def _place(self, placed: Placed) -> Place:
        if placed.partition is None:
            return None, placed.bucket
        return self._partition_ids[placed.partition], placed.bucket

    async def _ends(self, places: Iterable[Place]) -> Position:
        wanted: dict[int | None, list[int]] = {}
        for partition_id, bucket in places:
            wanted.setdefault(partition_id, []).append(bucket)
        ends: dict[Place, int] = {}
        for partition_id, buckets in wanted.items():
            found = await backend_of(self._core).list_offsets(
                self._target.info, partition_id, sorted(buckets), OffsetSpec.latest()
            )
            ends.update({(partition_id, bucket): offset for bucket, offset in found.items()})
        return ends

    async def _ranges(self) -> tuple[BucketRange, ...]:
        after = await self._ends(self._before)
        names = {number: name for name, number in self._partition_ids.items()}
        return tuple(
            BucketRange(
                place[0],
                None if place[0] is None else names[place[0]],
                place[1],
                start,
                after[place],
            )
            for place, start in sorted(self._before.items(), key=lambda item: place_order(item[0]))
        )


class _CutRule:
    """The cut of a load that was begun, or of one that begins with the first rows."""

    def __init__(
        self,
        cut: Cut | None,
        begin: Callable[[pa.RecordBatch], Cut] | None = None,
        check: Callable[[Cut], None] | None = None,
    ) -> None:
        self._cut = cut
        self._begin = begin
        self._check = check

    def __call__(self, sample: pa.RecordBatch) -> int:
        if self._cut is None:
            assert self._begin is not None
            self._cut = self._begin(sample)
        if self._check is not None:
            self._check(self._cut)
        return self._cut.batch_rows

    @property
    def cut(self) -> Cut:
        assert self._cut is not None
        return self._cut


async def send_pinned(
    core: AsyncConnection,
    info: TableInfo,
    bucket: TableBucket,
    batches: Sequence[tuple[pa.RecordBatch, Deletes]],
    numbers: tuple[int, int],
    target_columns: Sequence[int] | None,
) -> None:
    """Append batches to a bucket, or upsert them, under a writer id that was pinned.

    `numbers` are the writer id, and the bucket count by which the rows were placed.

    Raises:
        PlacedElsewhereError: The partition has another bucket count. It was created while the
            table was rescaled; nothing of these rows was written.
    """
    try:
        await _send(core, info, bucket, batches, numbers, target_columns)
    except WriteError as error:
        if isinstance(error.__cause__, InvalidBucketRoutingError):
            raise PlacedElsewhereError(str(info.table_path), bucket, numbers[1]) from error
        raise


async def _send(
    core: AsyncConnection,
    info: TableInfo,
    bucket: TableBucket,
    batches: Sequence[tuple[pa.RecordBatch, Deletes]],
    numbers: tuple[int, int],
    target_columns: Sequence[int] | None,
) -> None:
    writer_id, bucket_count = numbers
    if info.has_primary_key():
        await upsert_pinned(
            backend_of(core),
            info,
            bucket,
            batches,
            writer_id,
            target_columns=target_columns,
            config=core.config,
            bucket_count=bucket_count,
        )
    else:
        rows = [batch for batch, _ in batches]
        await append_pinned(
            backend_of(core),
            info,
            bucket,
            rows,
            writer_id,
            config=core.config,
            bucket_count=bucket_count,
        )


async def partition_id_of(backend: Backend, info: TableInfo, name: str, create: bool) -> int:
    """Return the id of a partition by its name, and create the partition if that is allowed."""
    try:
        return await backend.partition_id(info, name)
    except PartitionNotExistError:
        if not create:
            raise
    spec = parse_partition_name(name, info.partition_keys)
    await backend.create_partition(info.table_path, spec, True)
    return await backend.partition_id(info, name)


def _blocks(units: Iterator[Unit]) -> Iterator[list[Unit]]:
    while block := list(islice(units, BLOCK_UNITS)):
        yield block
