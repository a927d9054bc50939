"""What the pages of one cluster are made from: its monitor, answers by page, and its actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType

from fluss_client import FlussConnection, TablePath
from fluss_client.engine import table_info
from fluss_orchestrate.core.checkpoints.coverage import ledger_of
from fluss_orchestrate.core.checkpoints.events import Event, IntervalName
from fluss_orchestrate.core.checkpoints.store import CheckpointStore
from fluss_orchestrate.core.lake.catalog import has_lake
from fluss_orchestrate.core.overview.actions import ActionRecord, Actions
from fluss_orchestrate.core.overview.figures import CheckpointFigures
from fluss_orchestrate.core.overview.gathering import Gatherer, checkpoint_figures
from fluss_orchestrate.core.overview.intervals import IntervalFigures, interval_figures
from fluss_orchestrate.core.overview.lakes import LakeTable, read_lake_table
from fluss_orchestrate.core.overview.loads import LoadFigures, LoadList
from fluss_orchestrate.core.overview.monitor import INTERVAL_S, Answers, Look, Monitor
from fluss_orchestrate.core.overview.samples import Samples
from fluss_orchestrate.core.plan import BucketRange

EVENTS_SHOWN_MAX = 100
LOADS_SHOWN_MAX = 200


@dataclass(frozen=True, slots=True)
class Settings:
    """How a console looks at its cluster.

    Attributes:
        interval_s: The time between two passes.
        idle_s: Passes stop when nobody has looked for so long; None to go on.
        actions: Whether there are actions at all.
        catalog: Properties of Iceberg catalogs that differ from those of the tables.
    """

    interval_s: float = INTERVAL_S
    idle_s: float | None = None
    actions: bool = False
    catalog: Mapping[str, str] = field(default_factory=dict)


class Console:
    """One cluster, for any number of viewers. Calls block.

    Args:
        connection: The cluster; the console does not close it.
        store: Its checkpoints; None for the default store.
        samples: Where overviews are recorded; None to keep none on disk.
        settings: How it looks at the cluster.
    """

    def __init__(
        self,
        connection: FlussConnection,
        store: CheckpointStore | None = None,
        samples: Samples | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.connection = connection
        self.settings = settings or Settings()
        self.samples = samples
        self.gatherer = Gatherer(connection, store)
        self.monitor = Monitor(
            self.gatherer.gather, samples, self.settings.interval_s, self.settings.idle_s
        )
        self.actions = Actions(connection, store)
        self._answers = Answers(self.settings.interval_s)
        self._loads = LoadList(connection)

    def start(self) -> Console:
        """Begin to make passes."""
        self.monitor.start()
        return self

    def close(self) -> None:
        """Stop, after the pass that is under way."""
        self.monitor.stop()
        if self.samples is not None:
            self.samples.close()

    def __enter__(self) -> Console:
        return self.start()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def look(self) -> Look:
        """Return the newest overview."""
        return self.monitor.look()

    def checkpoint(self, name: str) -> CheckpointFigures | None:
        """Return a checkpoint as its store has it now; None if there is no such.

        An action must not be about the state of the last pass, which may be long ago.
        """
        store = self.gatherer.store()
        head = None if store is None else store.head(name)
        if head is None:
            return None
        gathered = self.look().gathered
        return checkpoint_figures(head, {} if gathered is None else gathered.tables)

    def events(self, name: str) -> list[Event]:
        """Return the newest events of a checkpoint, the newest first; none if there is no such."""

        def ask() -> list[Event]:
            store = self.gatherer.store()
            if store is None or store.head(name) is None:
                return []
            return list(store.history(name, EVENTS_SHOWN_MAX))

        return self._answers.get(("events", name), ask)

    def intervals(self, scan: str) -> list[IntervalFigures]:
        """Return the intervals of a scan, the latest time first; none if it has none.

        Those of the last pass, or else of the store: the scan may be newer than the pass.
        """

        def ask() -> list[IntervalFigures]:
            store = self.gatherer.store()
            if store is None:
                return []
            parts = {name: IntervalName.of(name) for name in store.names()}
            own = [name for name, part in parts.items() if part is not None and part.scan == scan]
            found = [interval_figures(head) for head in store.heads(own).values()]
            known = [figures for figures in found if figures is not None]
            return sorted(known, key=lambda one: (one.since_ms, one.until_ms), reverse=True)

        gathered = self.look().gathered
        seen = None if gathered is None else gathered.intervals.get(scan)
        return list(seen) if seen else self._answers.get(("intervals", scan), ask)

    def taken(self, scan: str, sink: str, table: str) -> tuple[BucketRange, ...] | None:
        """Return the offsets that the intervals of a scan have brought into a sink.

        None is not known: the sink is a caller's own code, or no pass has seen the table.
        """

        def ask() -> tuple[BucketRange, ...] | None:
            store, gathered = self.gatherer.store(), self.look().gathered
            seen = None if gathered is None else gathered.tables.get(table)
            if store is None or seen is None or not sink:
                return None
            ledger = ledger_of(store, sink, seen.view.identity, scan)
            return None if ledger is None else ledger.settled()

        return self._answers.get(("taken", scan, sink, table), ask)

    def lake(self, table: str) -> LakeTable | None:
        """Return the Iceberg table of a table; None if it has no lake, or it is not made yet.

        Raises:
            TableNotExistError: There is no such table.
            UnsupportedError: The lake's catalog cannot be opened from here.
        """

        def ask() -> LakeTable | None:
            info = table_info(self.connection, TablePath.parse(table))
            if not has_lake(info):
                return None
            return read_lake_table(self.connection, info)

        return self._answers.get(("lake", table), ask)

    def loads(self) -> list[LoadFigures]:
        """Return the newest loads."""

        def ask() -> list[LoadFigures]:
            gathered = self.look().gathered
            looks = {} if gathered is None else gathered.tables
            tables = {look.view.info.table_id: name for name, look in looks.items()}
            return self._loads.newest(LOADS_SHOWN_MAX, tables)

        return self._answers.get("loads", ask)

    def records(self) -> list[ActionRecord]:
        """Return the record of actions."""
        store = self.gatherer.store()
        return [] if store is None else self._answers.get("records", self.actions.records)

    def acted(self, work: Callable[[], str]) -> str:
        """Do an action, and look again, so that the next page shows what it did."""
        try:
            return work()
        finally:
            self._answers.forget()
            self.monitor.pass_now()
