"""Exactly what is new since the last successful run: plan, read, commit.

Setting a checkpoint by hand: where `earliest`, `latest`, a time or offsets are right now.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from fluss_client import FlussConnection, TablePath
from fluss_client.engine import Backoff, Deadline, async_connection, backend_of, run_blocking
from fluss_client.errors import ConfigError
from fluss_orchestrate.core.checkpoints import transitions
from fluss_orchestrate.core.checkpoints.dropped import last_drop
from fluss_orchestrate.core.checkpoints.events import Event, now_ms
from fluss_orchestrate.core.checkpoints.fluss_store import FlussCheckpointStore
from fluss_orchestrate.core.checkpoints.position import TablePosition
from fluss_orchestrate.core.checkpoints.store import (
    CLAIM_ATTEMPTS_MAX,
    CLAIM_PAUSE,
    CheckpointStore,
    lost_too_often,
)
from fluss_orchestrate.core.errors import (
    CheckpointConflictError,
    IncompleteReadError,
    PositionUnknownError,
)
from fluss_orchestrate.core.incremental.planning.binding import BindingCheck
from fluss_orchestrate.core.incremental.planning.bounds import first_starts, known_offsets
from fluss_orchestrate.core.incremental.planning.guards import check_identity
from fluss_orchestrate.core.incremental.planning.late_rows import observe_for_scan
from fluss_orchestrate.core.incremental.planning.memory import PlanMemories, PlanMemory
from fluss_orchestrate.core.incremental.planning.partitions import as_seen, draft_upon_drops
from fluss_orchestrate.core.incremental.planning.planner import Planner
from fluss_orchestrate.core.incremental.planning.settings import (
    LakeReader,
    ScanSettings,
    Start,
    Until,
    names_of,
)
from fluss_orchestrate.core.incremental.reading.reader import (
    PlanReading,
    ProgressHook,
    ReadOptions,
    Tally,
    prepare_plan,
)
from fluss_orchestrate.core.incremental.run import ScanRun, skip_details
from fluss_orchestrate.core.incremental.time.timestamps import last_commit_times
from fluss_orchestrate.core.metrics import record_receipt
from fluss_orchestrate.core.plan import Place, ScanPlan
from fluss_orchestrate.core.receipts import Receipt, whole_position
from fluss_orchestrate.core.sinks.base import Sink
from fluss_orchestrate.deprecated import accepts_old_parameters

log = logging.getLogger(__name__)


def reset_position(
    connection: FlussConnection, settings: ScanSettings, to: Start | Receipt
) -> TablePosition:
    """Return the position that a reset sets.

    Raises:
        PositionUnknownError: if offsets, or a receipt, do not name every bucket: rows of the others
            would come again from the first one on.
    """
    if to == "state":
        raise ConfigError(
            "a checkpoint cannot be reset to 'state': reset it to 'start', and the next run begins "
            "with the state if its scan has start='state', as mirrors do"
        )
    core = async_connection(connection)

    async def find() -> TablePosition:
        backend = backend_of(core)
        info = await backend.get_table_info(settings.path)
        view = await observe_for_scan(backend, core.config.resolved_alias(), info, settings)
        begin = to
        if isinstance(begin, Receipt):
            check_identity(begin.table, view.identity)
            position = whole_position(begin, view.latest)
            # Places that are newer than the receipt have not been read at all.
            begin = {place: position.get(place, 0) for place in view.latest}
        elif isinstance(begin, Mapping):
            given = known_offsets(view, begin)
            missing = [place for place in view.latest if place not in given]
            if missing:
                raise PositionUnknownError(view.identity, missing)
        starts = await first_starts(backend_of(core), core.config, view, begin, settings)
        return TablePosition(view.identity, starts, {}, view.partitions)

    return run_blocking(find())


def reset_effect(before: TablePosition | None, after: TablePosition | None) -> str:
    """Return what a reset does to rows that were committed or not read yet; empty for nothing.

    Args:
        before: The position before the reset.
        after: The position after it; None if the next run begins as a first run does.
    """
    if before is None or (after is not None and after.table != before.table):
        return ""
    offsets = {} if after is None else after.offsets
    again = sum(max(0, end - offsets.get(place, 0)) for place, end in before.offsets.items())
    left_out = sum(max(0, at - before.offsets.get(place, 0)) for place, at in offsets.items())
    said = []
    if again:
        said.append(
            f"{again} offsets that were committed come again: a sink that adds rows has them "
            "twice, unless they are deleted there first"
        )
    if left_out:
        said.append(f"{left_out} offsets are never read")
    if said and after is None:
        said.append("a mirror replaces all its rows by the state of the table with the next run")
    return "; ".join(said)


RUN_KEY_LENGTH_MAX = 2_000
PENDING_PAUSE = Backoff(first_ms=2_000, max_ms=2_000)
"""The pauses between two reads of the checkpoint while another run's plan is pending."""


class IncrementalScan:
    """Reads the increments of one table under one checkpoint.

    `plan` records ranges of offsets as pending before anything is read; the same run key always
    gets the same plan. `read` returns the rows of a plan, the same every time. `commit` moves the
    checkpoint. `run` does all three around a `with` block. Many processes may use the same
    checkpoint: each offset is in exactly one committed plan.
    """

    @accepts_old_parameters("IncrementalScan")
    def __init__(
        self,
        connection: FlussConnection,
        table: TablePath | str,
        checkpoint: str,
        store: CheckpointStore | None = None,
        columns: Sequence[str] | None = None,
        start: Start = "earliest",
        on_pending: str = "adopt",
        on_retention: str = "fail",
        metadata_columns: Sequence[str] = (),
        *,
        on_partition_gone: str = "fail",
        on_recreated: str = "fail",
        lake_reader: LakeReader | None = None,
        **scan_options: Any,
    ) -> None:
        """Prepare a scan; nothing is read yet.

        Args:
            connection: The connection to the cluster.
            table: The table, as a path or as `database.table`.
            checkpoint: The name of the checkpoint.
            store: Where checkpoints are kept; by default a table in the cluster.
            columns: The columns to read; None reads the columns that the table has when a plan is
                made.
            start: Where the first plan begins: `earliest`, `latest`, `state` (the current rows of a
                key table, then its changes), a time, or offsets.
            on_pending: What to do while the plan of another run is pending: `adopt`, `wait`, `skip`
                or `fail`.
            on_retention: What to do if Fluss deleted rows before they were read: `fail`, `earliest`
                (go on with the first row that is left) or `lake` (read them from the lake).
            metadata_columns: Further columns, such as `_offset`.
            on_partition_gone: What to do if a partition was dropped before it was read: `fail` or
                `forget`.
            on_recreated: What to do if the table was dropped and created again: `fail` or
                `restart`.
            lake_reader: Reads a plan of one range from the lake; by default with pyiceberg.
            **scan_options: The other fields of `ScanSettings`, such as `pending_timeout_ms`.
        """
        path = TablePath.parse(table) if isinstance(table, str) else table
        self.settings = ScanSettings(
            name=checkpoint,
            path=path,
            columns=names_of(columns),
            metadata_columns=names_of(metadata_columns) or (),
            start=start,
            on_pending=on_pending,
            on_retention=on_retention,
            on_partition_gone=on_partition_gone,
            on_recreated=on_recreated,
            **scan_options,
        )
        self.connection = connection
        self.store = FlussCheckpointStore(connection) if store is None else store
        if lake_reader is None and on_retention == "lake":
            # Upwards, and only when it is asked for: the lake's reader is made of plans.
            from fluss_orchestrate.core.lake.reader import lake_reader as reader_of

            lake_reader = reader_of(connection)
        self._lake_reader = lake_reader
        core = async_connection(connection)
        self._planner = Planner(backend_of(core), core.config, self.settings, self.can_read_lake)
        self._memories = PlanMemories()

    @property
    def name(self) -> str:
        """The name of the checkpoint."""
        return self.settings.name

    @property
    def can_read_lake(self) -> bool:
        """Whether rows that retention deleted from the log can be read from the lake."""
        return self._lake_reader is not None

    def plan(
        self,
        run_key: str,
        until: Until = "latest",
        max_offsets: int | None = None,
        *,
        sink: Sink | None = None,
    ) -> ScanPlan:
        """Record which rows this run reads. The same run key always gets the same plan.

        The first plan of a checkpoint fixes its columns and its sink; a run that differs is
        refused.

        Args:
            run_key: The name of the run.
            until: Where the plan ends: `latest`, `lake`, a time, offsets, a lake snapshot or a
                receipt.
            max_offsets: The largest number of offsets of the plan, rounded to whole batches; None
                for all.
            sink: Where the rows go. Without a sink, the sink is the caller.

        Returns:
            The plan, recorded as pending. While the plan of another run is pending, `on_pending`
            decides: `adopt` returns that plan (its `run_key` is the other run's), and this run
            calls `plan` again after it was committed; `wait` waits; `skip` returns an empty plan
            that is not recorded; `fail` raises.

        Raises:
            CheckpointBindingError: if the checkpoint belongs to another table, projection or sink.
            RowsTakenError: if another checkpoint brings the same rows into the same sink.
            SinkChangesError: if the sink would take deletes of a key table for rows.
            PendingPlanError: The plan of another run is pending and `on_pending` is `fail`.
        """
        return self._planned(run_key, until, max_offsets, sink)[0]

    def _planned(
        self, run_key: str, until: Until, max_offsets: int | None, sink: Sink | None
    ) -> tuple[ScanPlan, Receipt | None]:
        """Return the run's plan, and the receipt of its commit if it was committed before."""
        _check_run_key(run_key)
        plan, receipt = self._plan(run_key, until, max_offsets, sink)
        self.begin_attempt(plan)
        return plan, receipt

    def begin_attempt(self, plan: ScanPlan) -> None:
        """Forget what was read of a `plan`: `commit` counts only what is read from now on."""
        self._memories.of(plan).remember(plan)

    def _plan(
        self, run_key: str, until: Until, max_offsets: int | None, sink: Sink | None
    ) -> tuple[ScanPlan, Receipt | None]:
        deadline = Deadline(self.settings.pending_timeout_ms)
        check = self.binding_check(sink)
        attempt = 0
        while attempt < CLAIM_ATTEMPTS_MAX:
            head = self.store.head(self.name, run_key)
            transitions.check_not_retired(self.name, head)
            check.check_head(head)
            known = self.store.plan_of(self.name, run_key, head)
            if known is not None:
                receipt = self.store.receipt_of(known, head)
                if receipt is None:
                    check.check_pending(known)
                    return known, None
                check.check_plan(known)
                return known, receipt.repeated()
            if head is not None and head.state.pending is not None:
                check.check_pending(head.state.pending)
                answer = self._while_pending(head, run_key, deadline)
                if answer is not None:
                    return answer, None
                continue
            draft = draft_upon_drops(
                self.connection,
                self.store,
                self.settings,
                None if head is None else head.state.position,
                partial(self._planner.draft, head, run_key, until, max_offsets),
            )
            check.check_plan(draft.plan)
            check.check_first(head, draft)
            check.claim(head, draft)
            recorded = self.store.try_plan(
                head, draft.plan, draft.position, check.with_contract(draft.details), check.binding
            )
            if recorded is not None:
                self._memories.of(recorded).begin = draft.position
                return recorded, None
            CLAIM_PAUSE.pause_blocking(attempt)
            attempt += 1
        raise lost_too_often(self.name)

    def binding_check(self, sink: Sink | None) -> BindingCheck:
        """Return the checks of this checkpoint with a sink.

        Args:
            sink: Where the rows go; None if the caller takes them.
        """
        return BindingCheck(self.connection, self.store, self.settings, sink)

    def _while_pending(self, head: Event, run_key: str, deadline: Deadline) -> ScanPlan | None:
        """Return another run's pending plan, or an empty plan; None to read the head again."""
        pending = head.state.pending
        assert pending is not None
        policy = self.settings.on_pending
        if policy == "adopt":
            try:
                return self.store.adopt(self.name, run_key)
            except CheckpointConflictError:
                # The other run finished it after this run read the checkpoint.
                return None
        if policy == "skip":
            return replace(pending, run_key=run_key, ranges=(), sequence=-1, created_ms=now_ms())
        if policy == "fail" or deadline.passed():
            transitions.check_idle(self.name, head)
        PENDING_PAUSE.pause_blocking(0)
        return None

    def read(self, plan: ScanPlan, progress: ProgressHook | None = None) -> pa.RecordBatchReader:
        """Return the rows of a plan in the order of partition, bucket and offset.

        The reader returns all rows of the plan, or raises an error.

        Args:
            plan: The plan.
            progress: Called with a `ScanProgress` while the rows are read.
        """
        return self.open_plan(plan, progress).reader()

    def open_plan(self, plan: ScanPlan, progress: ProgressHook | None = None) -> PlanReading:
        """Return a reading of a plan that also says how far it is.

        Args:
            plan: The plan.
            progress: Called with a `ScanProgress` while the rows are read.
        """
        memory = self._memories.of(plan)
        options = ReadOptions(
            commit_ms=self._times_before(plan, memory),
            lake_reader=self._lake_reader if self.settings.on_retention == "lake" else None,
            backwards_wait_ms=self.settings.backwards_wait_ms,
            progress=progress,
        )
        prepared = memory.prepared(plan, lambda plan: prepare_plan(self.connection, plan, options))
        return PlanReading(self.connection, plan, options, prepared, memory.new_tally(plan))

    def _times_before(self, plan: ScanPlan, memory: PlanMemory) -> dict[Place, int]:
        """Return when the last rows before the ranges of a plan were committed."""
        if plan.sequence < 0 or plan.kind == "state" or plan.is_empty:
            return {}
        if memory.begin is None:
            event = self.store.log.event(plan.name, plan.sequence)
            memory.begin = None if event is None else event.state.position
        position = memory.begin
        if position is None:
            return {}
        return {
            r.place: position.commit_ms[r.place]
            for r in plan.ranges
            if r.place in position.commit_ms and position.offsets[r.place] == r.start
        }

    def commit(
        self,
        plan: ScanPlan,
        *,
        rows: int | None = None,
        bytes: int | None = None,  # noqa: A002 (the receipt's own name for it)
        snapshot_id: int | None = None,
        details: Mapping[str, Any] | None = None,
        rows_moved: int | None = None,
        retire: bool = False,
    ) -> Receipt:
        """Move the checkpoint to the end of the plan. Call it when the sink holds the rows.

        Args:
            plan: The plan.
            rows: The number of rows. By default what this scan has read since `begin_attempt` or
                `plan`; it is needed if something else read the rows.
            bytes: Their size; as for `rows`.
            snapshot_id: The id of the lake snapshot that the sink wrote.
            details: Values to add to the receipt.
            rows_moved: The number of rows that this call has written, if not all.
            retire: Retire the checkpoint.

        Returns:
            The receipt. If the plan was committed before, the receipt of that commit.

        Raises:
            IncompleteReadError: if the rows were not read to their end; nothing is committed.
            CheckpointConflictError: The plan was abandoned.
        """
        memory = self._memories.of(plan)
        tally = memory.whole_tally(plan) or Tally(complete=plan.is_empty)
        if rows is None:
            if not tally.complete:
                return self._committed_before(plan)
            rows = tally.rows
        cost = {"state": tally.state.to_json()} if tally.state.sources else {}
        receipt = Receipt(
            kind="increment",
            table=plan.table,
            run_key=plan.run_key,
            ranges=plan.ranges,
            rows=rows,
            bytes=tally.bytes if bytes is None else bytes,
            plan_id=plan.plan_id,
            snapshot_id=snapshot_id,
            started_ms=plan.created_ms,
            finished_ms=now_ms(),
            details={"name": plan.name, "sequence": plan.sequence, **cost, **(details or {})},
            rows_moved=rows_moved,
        )
        if plan.sequence < 0:
            return replace(receipt, details={**receipt.details, "skipped": True})
        times = last_commit_times(self.connection, plan, memory.commit_ms)
        return record_receipt(self.store.commit(plan, receipt, times, retire=retire))

    def _committed_before(self, plan: ScanPlan) -> Receipt:
        """Return the receipt of a plan that another run has committed."""
        receipt = self.store.receipt_of(plan, self.store.head(plan.name))
        if receipt is None:
            raise IncompleteReadError(plan.name, plan.plan_id)
        return receipt.repeated()

    def skip(self, plan: ScanPlan, reason: str) -> Receipt:
        """Commit a plan without its rows, on purpose.

        Args:
            plan: The plan.
            reason: Why; the receipt records it.
        """
        return self.commit(plan, rows=0, bytes=0, details=skip_details(reason))

    def run(
        self,
        run_key: str,
        until: Until = "latest",
        max_offsets: int | None = None,
        progress: ProgressHook | None = None,
        *,
        sink: Sink | None = None,
    ) -> ScanRun:
        """Plan now, read in the `with` block, and commit when the block ends without an error.

        With `on_pending="adopt"` the plan may be one that another run left pending (`run.adopted`).
        This run's own plan comes with the next call; `runs` makes that loop.

        Args:
            run_key: The name of the run.
            until: Where the plan ends, as for `plan`.
            max_offsets: The largest number of offsets of the plan; None for all.
            progress: Called with a `ScanProgress` while the rows are read.
            sink: Where the rows go. Without a sink, the sink is the caller.
        """
        plan, receipt = self._planned(run_key, until, max_offsets, sink)
        return ScanRun(self, run_key, plan, progress, receipt)

    def runs(
        self,
        run_key: str,
        until: Until = "latest",
        max_offsets: int | None = None,
        progress: ProgressHook | None = None,
        *,
        sink: Sink | None = None,
    ) -> Iterator[ScanRun]:
        """Iterate over the pending plans of other runs, then over this run's own plan.

        Enter each one with `with`. The iteration ends after a run that was not committed.

        Args:
            run_key: The name of the run.
            until: Where this run's own plan ends, as for `plan`.
            max_offsets: The largest number of offsets of the plan; None for all.
            progress: Called with a `ScanProgress` while the rows are read.
            sink: Where the rows go. Without a sink, the sink is the caller.
        """
        while True:
            current = self.run(run_key, until, max_offsets, progress, sink=sink)
            yield current
            if not current.adopted or current.receipt is None:
                return

    def reset(
        self, to: Start | Receipt, reason: str = "", *, abandon_pending: bool = False
    ) -> Event:
        """Set the checkpoint to another position, and begin a new generation.

        Args:
            to: `earliest`, `latest`, a time, offsets of every bucket, the receipt of an increment,
                `current` to keep the position and only begin a new generation, for example with
                another sink, or `start` to forget the position: the next run begins as a first run
                does. A mirror takes no other reset than `start`, and is then rebuilt from the state
                of the table.
            reason: Why; it is recorded.
            abandon_pending: Abandon a pending plan first. Otherwise a pending plan is an error.
        """
        head = self.store.head(self.name)
        before = None if head is None else head.state.position
        position: TablePosition | None
        if to == "start":
            self.store.require(self.name)
            position = None
        elif to == "current":
            position = self.store.require(self.name).state.position
            if position is None:
                raise ConfigError(f"checkpoint '{self.name}' has no position that could be kept")
        else:
            # Before the table is observed: the next plan checks what is dropped later.
            alias = self.connection.config.resolved_alias()
            seen = last_drop(self.store, alias, self.settings.path)
            position = as_seen(reset_position(self.connection, self.settings, to), seen)
        event = self.store.reset(self.name, position, reason, abandon_pending=abandon_pending)
        effect = reset_effect(before, position)
        if effect:
            log.warning("reset of checkpoint '%s': %s", self.name, effect)
        return event


def _check_run_key(run_key: str) -> None:
    if not run_key or len(run_key) > RUN_KEY_LENGTH_MAX:
        raise ConfigError(
            f"a run key has 1 to {RUN_KEY_LENGTH_MAX} characters: use what names the run for good, "
            "such as dag/task/run"
        )
