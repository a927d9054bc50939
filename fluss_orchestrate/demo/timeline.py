"""What happened when: the steps of the demo, and how far log, checkpoint and lake were."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console

from fluss_orchestrate.core.checkpoints import FlussCheckpointStore
from fluss_orchestrate.core.lake.status import lake_status
from fluss_orchestrate.demo import shop


@dataclass
class Step:
    """One thing that was done."""

    phase: str
    what: str
    started_s: float
    seconds: float = 0.0
    said: str = ""


@dataclass(frozen=True)
class Sample:
    """How far a table was at a moment: offsets of all buckets together."""

    at_s: float
    table: str
    written: int
    read: int
    in_lake: int
    lake_behind_s: float
    """How old the oldest row is that the lake lacks."""


@dataclass
class Timeline:
    """The steps so far. A terminal sees the one under way; a file gets a line when it is done."""

    console: Console
    steps: list[Step] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    rows: dict[str, dict[str, int]] = field(default_factory=dict)
    """Rows by phase and table."""
    _began: float = field(default_factory=time.perf_counter)

    @contextmanager
    def step(self, phase: str, what: str) -> Iterator[Step]:
        """Time a step, and say how it went; the block may set `said`."""
        step = Step(phase, what, time.perf_counter() - self._began)
        with self.console.status(f"[bold]{phase}[/]  {what} …"):
            yield step
        step.seconds = time.perf_counter() - self._began - step.started_s
        self.steps.append(step)
        said = f"  [dim]{step.said}[/]" if step.said else ""
        self.console.print(f"[cyan]{phase:>8}[/]  {what}{said}  [dim]{step.seconds:.1f} s[/]")

    def add_rows(self, phase: str, table: str, rows: int) -> None:
        """Count rows that arrived."""
        counts = self.rows.setdefault(phase, {})
        counts[table] = counts.get(table, 0) + rows

    def sample(self, place: shop.Shop) -> None:
        """Look how far each log table is."""
        with place.connect() as connection:
            store = FlussCheckpointStore(connection)
            for table in (shop.ORDERS, shop.LINES):
                status = lake_status(connection, table)
                head = store.head(f"{table.partition('.')[2]}-to-analytics")
                position = None if head is None else head.state.position
                self.samples.append(
                    Sample(
                        time.perf_counter() - self._began,
                        table,
                        sum(b.latest for b in status.buckets),
                        0 if position is None else sum(position.offsets.values()),
                        sum(b.lake_offset or 0 for b in status.buckets),
                        (status.lag_ms or 0) / 1000,
                    )
                )

    @property
    def seconds(self) -> float:
        """Since the demo began."""
        return time.perf_counter() - self._began
