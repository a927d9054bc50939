"""A Fluss table that holds every plan exactly once: a log table by appends, a key table by upserts.

The plan is cut into units by row counts alone, each unit is sent under a writer id that was pinned
to it beforehand (see `pins`), and servers drop the batches that they know. So it does not matter
who sends a unit, how often, or how late: a run that wakes up after newer plans were written does
not put its old values over theirs. A finished plan is recorded and never sent again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from fluss_client.aio.arrow_input import ArrowInput
from fluss_client.aio.pinned import PINNED_BATCHES_MAX, append_pinned, upsert_pinned
from fluss_client.facade.connection import FlussConnection
from fluss_client.model.table import TableInfo, TablePath
from fluss_client.runtime import runtime
from fluss_orchestrate.core.checkpoints.events import now_ms
from fluss_orchestrate.core.checkpoints.fluss_rows import REPLICAS_WANTED, CheckpointTable
from fluss_orchestrate.core.plan import BucketRange, ScanPlan
from fluss_orchestrate.core.sinks.base import ReadPlan, SinkResult, range_plan
from fluss_orchestrate.core.sinks.errors import PinExpiredError
from fluss_orchestrate.core.sinks.pins import Cut, Pins
from fluss_orchestrate.core.sinks.placing import Placed, Placer
from fluss_orchestrate.core.sinks.schema_policy import SchemaPolicy, columns_to_add

CHANGE_TYPE = "_change_type"
DEFAULT_LEDGER = TablePath("fluss_orchestrate", "sink_pins")
BATCH_BYTES = 1 << 20
BATCH_ROWS_MAX = 50_000
PIN_AGE_MAX_MS = 6 * 24 * 3600 * 1000
"""Servers forget writer ids after seven days."""


class FlussTableSink:
    """Writes plans into another Fluss table, of the same cluster or another one.

    Into a key table, rows are upserts; with `_change_type` among the plan's metadata columns,
    `-D` rows are deletes and `-U` rows are left out. A target without a bucket key gets each
    source bucket's rows in one bucket, in their order. Partitions of the target must exist.
    """

    exactly_once = True

    def __init__(
        self,
        connection: FlussConnection,
        table: TablePath | str,
        *,
        schema_policy: SchemaPolicy | str = SchemaPolicy.ERROR,
        ledger: TablePath = DEFAULT_LEDGER,
        ledger_replicas: int = REPLICAS_WANTED,
    ) -> None:
        self._connection = connection
        self._path = TablePath.parse(table) if isinstance(table, str) else table
        self._policy = SchemaPolicy(schema_policy)
        self._ledger_path = ledger
        self._replicas = ledger_replicas
        self._ledger: CheckpointTable | None = None

    def already_done(self, plan: ScanPlan) -> SinkResult | None:
        """What was written for the plan, if all of it was."""
        if plan.is_empty:
            return SinkResult(0)
        return self._done(self._pins(plan, self._info()))

    def write(self, plan: ScanPlan, read: ReadPlan) -> SinkResult:
        """Send every unit of the plan, then record that it is done.

        `PinExpiredError` for a plan that was begun more than six days ago and not finished: its
        rows may be there or not, and servers cannot tell any more.
        """
        if plan.is_empty:
            return SinkResult(0)
        info = self._info()
        pins = self._pins(plan, info)
        done = self._done(pins)
        if done is not None:
            return done
        cut = runtime().call(pins.cut())

        def batch_rows(sample: pa.RecordBatch) -> int:
            nonlocal cut
            if cut is None:
                cut = runtime().call(pins.cut(_batch_rows(sample)))
                assert cut is not None
            self._check_age(plan, cut)
            return cut.batch_rows

        unit = rows = size = 0
        for part in plan.ranges:
            reader = read(range_plan(plan, part))
            info, units = self._units(reader.schema, part)
            for whole, each in units.of(reader, batch_rows):
                self._send(info, pins, unit, units.placed(whole), each)
                unit, rows, size = unit + 1, rows + whole.num_rows, size + whole.nbytes
        runtime().call(pins.finish(rows, size))
        return self._done(pins) or SinkResult(rows, size)

    def _check_age(self, plan: ScanPlan, cut: Cut) -> None:
        if now_ms() - cut.created_ms > PIN_AGE_MAX_MS:
            raise PinExpiredError(
                str(self._path),
                f"plan {plan.plan_id} was begun more than six days ago and not finished; servers "
                "may have forgotten what they hold of it. Compare the tables, then `abandon` it",
            )

    def _info(self) -> TableInfo:
        return runtime().call(self._connection.core.backend.get_table_info(self._path))

    def _pins(self, plan: ScanPlan, info: TableInfo) -> Pins:
        core = self._connection.core
        if self._ledger is None:
            self._ledger = runtime().call(
                Pins.open_ledger(core.backend, core.config, self._ledger_path, self._replicas)
            )
        return Pins(core.backend, self._ledger, info, plan.plan_id)

    def _done(self, pins: Pins) -> SinkResult | None:
        found = runtime().call(pins.done())
        if found is None:
            return None
        return SinkResult(found["rows"], found["bytes"], {"table": str(self._path)})

    def _units(self, schema: pa.Schema, part: BucketRange) -> tuple[TableInfo, _Units]:
        info = self._info()
        taken = [f for f in schema if not (f.name == CHANGE_TYPE and info.has_primary_key())]
        missing = columns_to_add(
            str(self._path), info.get_column_names(), pa.schema(taken), self._policy
        )
        if missing:
            admin = self._connection.get_admin().result()
            admin.alter_table(self._path, add_columns=missing).result()
            info = self._info()
        return info, _Units(info, [f.name for f in taken], part)

    def _send(
        self, info: TableInfo, pins: Pins, unit: int, placed: list[Placed], batch_rows: int
    ) -> None:
        core = self._connection.core

        async def send() -> None:
            if not placed:
                return
            writer_id = await pins.writer_id(unit)
            names = {p.partition for p in placed if p.partition is not None}
            ids = {name: await core.backend.partition_id(info, name) for name in names}
            calls = [_write(core, info, p, ids, writer_id, batch_rows) for p in placed]
            for outcome in await asyncio.gather(*calls, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    raise outcome

        runtime().call(send())


async def _write(
    core: Any,
    info: TableInfo,
    placed: Placed,
    ids: dict[str, int],
    writer_id: int,
    batch_rows: int,
) -> None:
    bucket = placed.table_bucket(info.table_id, ids)
    pieces = placed.cut(batch_rows)
    if info.has_primary_key():
        await upsert_pinned(core.backend, info, bucket, pieces, writer_id, config=core.config)
    else:
        rows = [batch for batch, _ in pieces]
        await append_pinned(core.backend, info, bucket, rows, writer_id, config=core.config)


class _Units:
    """Rows of one range, gathered into units of an exact row count."""

    def __init__(self, info: TableInfo, names: list[str], part: BucketRange) -> None:
        self._fit = ArrowInput(info.schema, range(len(info.schema.columns)))
        self._names = names
        self._placer = Placer(info, part.bucket)

    def of(
        self, reader: pa.RecordBatchReader, batch_rows: Callable[[pa.RecordBatch], int]
    ) -> Iterator[tuple[pa.RecordBatch, int]]:
        """The units of a range, each with the row count of its batches."""
        held: list[pa.RecordBatch] = []
        each = held_rows = 0
        for batch in reader:
            if batch.num_rows == 0:
                continue
            each = batch_rows(batch)
            unit_rows = each * PINNED_BATCHES_MAX
            held.append(batch)
            held_rows += batch.num_rows
            while held_rows >= unit_rows:
                whole = pa.concat_batches(held)
                yield whole.slice(0, unit_rows), each
                held = [whole.slice(unit_rows)]
                held_rows -= unit_rows
        if held_rows:
            yield pa.concat_batches(held), each

    def placed(self, unit: pa.RecordBatch) -> list[Placed]:
        """A unit's rows by where they go."""
        changes = None
        if CHANGE_TYPE in unit.schema.names and CHANGE_TYPE not in self._names:
            changes = unit.column(CHANGE_TYPE)
        return self._placer.place(self._fit.conform(unit.select(self._names)), changes)


def _batch_rows(sample: pa.RecordBatch) -> int:
    """How many rows make a batch of good size, judged by some of them."""
    width = max(1, int(sample.nbytes) // int(sample.num_rows))
    return max(1, min(BATCH_ROWS_MAX, BATCH_BYTES // width))
