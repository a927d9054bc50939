"""Making a plan from a checkpoint and the table as it is.

Nothing is recorded here: a store records the draft.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fluss_client import Config, FlussConnection, TableInfo, TablePath
from fluss_client.engine import (
    CHANGELOG_IMAGE,
    Backend,
    async_connection,
    backend_of,
    has_old_rows,
    run_blocking,
)
from fluss_client.errors import (
    PartitionNotExistError,
    SchemaError,
    TableNotExistError,
    UnsupportedError,
)
from fluss_orchestrate.core.checkpoints.dropped import NOTHING_DROPPED, DropRecords
from fluss_orchestrate.core.checkpoints.events import Event, new_nonce, now_ms
from fluss_orchestrate.core.checkpoints.position import TablePosition, place_order
from fluss_orchestrate.core.checkpoints.transitions import next_sequence
from fluss_orchestrate.core.errors import LateRowsError, TableIdentityChangedError
from fluss_orchestrate.core.incremental.planning.bounds import describe, ends, first_starts
from fluss_orchestrate.core.incremental.planning.guards import (
    PartitionCheck,
    Retention,
    check_identity,
    check_not_backwards,
    check_partitions,
    check_retention,
)
from fluss_orchestrate.core.incremental.planning.late_rows import (
    has_late_rows,
    is_late,
    late_details,
    observe_for_scan,
)
from fluss_orchestrate.core.incremental.planning.limits import capped_stops, whole_updates
from fluss_orchestrate.core.incremental.planning.observation import TableView
from fluss_orchestrate.core.incremental.planning.settings import (
    ScanSettings,
    Start,
    Until,
    names_of,
)
from fluss_orchestrate.core.incremental.time.timestamps import Prober
from fluss_orchestrate.core.plan import Generation, Place, ScanPlan

ONCE = "once"
"""The name in plans that belong to no checkpoint."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A plan that is not recorded yet, with the position at which it begins."""

    plan: ScanPlan
    position: TablePosition
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Beginning:
    """The position that a plan starts from, and whether it is the first one."""

    position: TablePosition
    is_first: bool
    partitions: PartitionCheck | None = None
    restarted: bool = False


class Planner:
    """Drafts plans. Its coroutines run on the I/O thread."""

    def __init__(
        self, backend: Backend, config: Config, settings: ScanSettings, can_read_lake: bool
    ) -> None:
        self._backend = backend
        self._config = config
        self._settings = settings
        self._can_read_lake = can_read_lake
        self._alias = config.resolved_alias()

    async def draft(
        self,
        head: Event | None,
        run_key: str,
        until: Until,
        max_offsets: int | None,
        records: DropRecords = NOTHING_DROPPED,
    ) -> Draft:
        """Return the next plan, from the state in `head` and the records of dropped partitions."""
        known = None if head is None else head.state.position
        info = await self._table(known)
        view = await observe_for_scan(self._backend, self._alias, info, self._settings)
        if known is not None:
            self._check_late_rows(known, view)
        beginning = await self._beginning(known, view, records)
        position = beginning.position
        if not beginning.is_first:
            view = await check_not_backwards(
                self._backend, view, position.offsets, self._settings.backwards_wait_ms
            )
        if beginning.is_first and self._settings.start == "state":
            draft = self._state_draft(view, run_key)
            return _new_generation(draft, head) if beginning.restarted else draft
        wanted = await ends(self._backend, self._config, view, until, self._settings)
        starts = {place: position.offsets.get(place, 0) for place in view.latest}
        stops = {p: max(starts[p], wanted.get(p, 0)) for p in view.latest}
        changed = [p for p in stops if stops[p] > starts[p]]
        kept = await check_retention(
            self._backend, view, starts, changed, self._settings, self._can_read_lake
        )
        starts = dict(kept.starts)
        stops = {p: max(starts[p], stop) for p, stop in stops.items()}
        stops = await self._limited(view, starts, stops, until, max_offsets)
        details = _details(until, max_offsets, kept, beginning)
        details |= late_details(view.info, self._settings)
        draft = self._assemble(view, position, run_key, starts, stops, details)
        if beginning.partitions is not None and beginning.partitions.dropped:
            plan = replace(draft.plan, dropped=beginning.partitions.dropped)
            draft = replace(draft, plan=plan)
        return _new_generation(draft, head) if beginning.restarted or kept.lost else draft

    def _check_late_rows(self, known: TablePosition, view: TableView) -> None:
        """Refuse to leave out late rows of which earlier plans have read some."""
        if has_late_rows(known.partitions.values()) and not has_late_rows(view.partitions.values()):
            reason = "earlier plans of this checkpoint have read some of them"
            raise LateRowsError(view.info.table_path, reason)

    async def _table(self, known: TablePosition | None) -> TableInfo:
        try:
            return await self._backend.get_table_info(self._settings.path)
        except TableNotExistError:
            if known is None:
                raise
            raise TableIdentityChangedError(known.table, None) from None

    async def _beginning(
        self, known: TablePosition | None, view: TableView, records: DropRecords
    ) -> Beginning:
        if known is not None:
            if known.table == view.identity:
                policy = self._settings.on_partition_gone
                found = check_partitions(known, view, records, policy)
                return Beginning(found.position, False, found)
            if self._settings.on_recreated != "restart" or known.table.path != view.identity.path:
                check_identity(known.table, view.identity)
        starts = await first_starts(
            self._backend, self._config, view, self._settings.start, self._settings
        )
        position = TablePosition(view.identity, starts, {}, view.partitions)
        return Beginning(position, True, restarted=known is not None)

    async def _limited(
        self,
        view: TableView,
        starts: Mapping[Place, int],
        stops: Mapping[Place, int],
        until: Until,
        max_offsets: int | None,
    ) -> dict[Place, int]:
        limited = dict(stops)
        if isinstance(until, Mapping) and view.info.has_primary_key():
            prober = Prober(self._backend, self._config, view.info)
            limited = await whole_updates(prober, starts, limited, view.latest)
        backlog = sum(stop - starts[place] for place, stop in limited.items())
        if max_offsets is not None and backlog > max_offsets:
            prober = Prober(self._backend, self._config, view.info)
            limited = await capped_stops(prober, starts, limited, max_offsets)
        return limited

    def _assemble(
        self,
        view: TableView,
        position: TablePosition,
        run_key: str,
        starts: Mapping[Place, int],
        stops: Mapping[Place, int],
        details: dict[str, Any],
    ) -> Draft:
        moved = sorted((p for p, stop in stops.items() if stop > starts[p]), key=place_order)
        ranges = tuple(view.range_of(p, starts[p], stops[p]) for p in moved)
        kind = "changelog" if view.info.has_primary_key() else "log"
        times = {p: t for p, t in position.commit_ms.items() if position.offsets[p] == starts[p]}
        begins = TablePosition(view.identity, dict(starts), times, view.partitions)
        return Draft(self._plan(view, run_key, ranges, kind), begins, details)

    def _plan(self, view: TableView, run_key: str, ranges: tuple[Any, ...], kind: str) -> ScanPlan:
        return ScanPlan(
            name=self._settings.name,
            run_key=run_key,
            table=view.identity,
            schema_id=view.info.schema_id,
            columns=columns_of(view.info, self._settings),
            metadata_columns=self._settings.metadata_columns,
            ranges=ranges,
            kind=kind,
            created_ms=now_ms(),
        )

    def _state_draft(self, view: TableView, run_key: str) -> Draft:
        """Return a first plan of the current rows of a key table; the changelog follows."""
        info = view.info
        if not info.has_primary_key():
            raise UnsupportedError(
                f"{info.table_path} has no primary key, hence no state: use start='earliest'"
            )
        if not has_old_rows(info):
            raise UnsupportedError(
                f"{info.table_path} has {CHANGELOG_IMAGE}={info.properties[CHANGELOG_IMAGE]}: "
                "without the old rows in its changelog its state cannot be read twice alike; use "
                "start='earliest'"
            )
        # Rows of expired partitions are in the lake, not in a key state. What is written for them
        # from now on is read as changes.
        late = {p: end for p, end in view.latest.items() if is_late(view, p)}
        ranges = tuple(
            view.range_of(place, 0, latest)
            for place, latest in view.latest.items()
            if latest > 0 and place not in late
        )
        starts = {**dict.fromkeys(view.latest, 0), **late}
        begins = TablePosition(view.identity, starts, {}, view.partitions)
        details = {"until": "latest", **late_details(info, self._settings, late)}
        return Draft(self._plan(view, run_key, ranges, "state"), begins, details)


def _new_generation(draft: Draft, head: Event | None) -> Draft:
    """Return the draft as the first plan of a generation.

    It does not begin where the checkpoint was, so it does not follow what a sink holds.
    """
    generation = Generation(next_sequence(head), new_nonce())
    return replace(draft, plan=replace(draft.plan, generation=generation))


def columns_of(info: TableInfo, settings: ScanSettings) -> tuple[str, ...]:
    """Return the columns of a plan; refuse unknown columns and names of metadata columns."""
    names = tuple(info.get_column_names())
    if settings.columns is not None:
        for name in settings.columns:
            info.schema.column(name)
        names = settings.columns
    clash = [name for name in settings.metadata_columns if name in names]
    if clash:
        raise SchemaError(
            f"{info.table_path} has a column '{clash[0]}' of its own: leave one of the two out"
        )
    return names


def _details(
    until: Until, max_offsets: int | None, kept: Retention, beginning: Beginning
) -> dict[str, Any]:
    details: dict[str, Any] = {"until": describe(until)}
    if max_offsets is not None:
        details["max_offsets"] = max_offsets
    details |= retention_details(kept)
    if beginning.partitions is not None:
        details |= beginning.partitions.details()
    if beginning.restarted:
        details["restarted"] = True
    return details


def retention_details(kept: Retention) -> dict[str, Any]:
    """Return the ranges that retention deleted, for the history and the receipt."""
    details: dict[str, Any] = {}
    if kept.lost:
        details["lost_ranges"] = [r.to_json() for r in kept.lost]
    if kept.from_lake:
        details["lake_ranges"] = [r.to_json() for r in kept.from_lake]
    return details


def plan_once(
    connection: FlussConnection,
    table: TablePath | str,
    start: Start = "earliest",
    until: Until = "latest",
    columns: Sequence[str] | None = None,
    metadata_columns: Sequence[str] = (),
    partition: str | None = None,
    on_late_rows: str = "read",
) -> ScanPlan:
    """Plan to read a part of a log without a checkpoint: for people, exports and backfills.

    Nothing is recorded. A log table gives its log, a key table its changelog.

    Args:
        connection: The connection to the cluster.
        table: The table.
        start: Where the ranges begin.
        until: Where they end.
        columns: The columns to read; all by default.
        metadata_columns: The metadata columns to add.
        partition: The name of the only partition to read; all by default.
        on_late_rows: What to do about rows of expired partitions: `read` them, leave them out
            (`note`), or `fail`.

    Returns:
        The plan; `PlanReading` reads it.

    Raises:
        PartitionNotExistError: There is no partition of that name.
    """
    path = TablePath.parse(table) if isinstance(table, str) else table
    settings = ScanSettings(
        name=ONCE,
        path=path,
        columns=names_of(columns),
        metadata_columns=names_of(metadata_columns) or (),
        start=start,
        on_late_rows="note" if partition is not None else on_late_rows,
    )
    core = async_connection(connection)
    planner = Planner(backend_of(core), core.config, settings, can_read_lake=False)
    plan = run_blocking(planner.draft(None, ONCE, until, None)).plan
    if partition is None:
        return plan
    infos = run_blocking(backend_of(core).list_partitions(path, None))
    if partition not in {info.partition_name for info in infos}:
        raise PartitionNotExistError(f"{path} has no partition '{partition}'")
    return replace(plan, ranges=tuple(r for r in plan.ranges if r.partition == partition))
