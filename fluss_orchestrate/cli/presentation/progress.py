"""How far a long command is, on standard error: a bar at a terminal, plain lines otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress

LINE_INTERVAL_S = 5.0
"""Between two plain lines; a command that is faster says only its last one."""


class Meter:
    """Counts rows, and steps towards a total where one is known."""

    def __init__(self, what: str, total: int | None) -> None:
        self.what = what
        self.rows = 0
        self.done = 0
        self.total = total
        self.started = time.monotonic()

    def add(self, rows: int, done: int = 0) -> None:
        """So many more."""
        self.at(self.rows + rows, self.done + done, self.total)

    def at(self, rows: int, done: int, total: int | None) -> None:
        """So many by now."""
        self.rows, self.done, self.total = rows, done, total
        self.show()

    def show(self) -> None:
        """Bring the display up to date."""

    def finish(self) -> None:
        """Say the end."""

    def abandon(self) -> None:
        """End without a word: an error follows."""

    def rate(self) -> float:
        """Rows per second so far."""
        return self.rows / max(time.monotonic() - self.started, 1e-6)

    def left_s(self) -> float | None:
        """Seconds to go at this speed; None when that cannot be told."""
        if not self.total or not self.done:
            return None
        spent = time.monotonic() - self.started
        return spent * max(0, self.total - self.done) / self.done


class LineMeter(Meter):
    """Says a line now and then."""

    def __init__(self, what: str, total: int | None) -> None:
        super().__init__(what, total)
        self._next = self.started + LINE_INTERVAL_S

    def show(self) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + LINE_INTERVAL_S
        left = self.left_s()
        rest = "" if left is None else f", {left:.0f} s left"
        self._say(f"{self.rows:,} rows, {self.rate():,.0f} rows/s{rest}")

    def finish(self) -> None:
        spent = time.monotonic() - self.started
        self._say(f"{self.rows:,} rows in {spent:.1f} s ({self.rate():,.0f} rows/s)")

    def _say(self, text: str) -> None:
        print(f"{self.what}: {text}", file=sys.stderr, flush=True)


class BarMeter(Meter):
    """A bar that moves."""

    def __init__(self, what: str, total: int | None) -> None:
        super().__init__(what, total)
        self._progress = _bar()
        self._task = self._progress.add_task(what, total=total, said="")
        self._progress.start()

    def show(self) -> None:
        said = f"{self.rows:,} rows  {self.rate():,.0f} rows/s"
        self._progress.update(self._task, completed=self.done, total=self.total, said=said)

    def finish(self) -> None:
        self.total = self.done = self.done or 1
        self.show()
        self._progress.stop()

    def abandon(self) -> None:
        self._progress.stop()


def _bar() -> Progress:
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from fluss_orchestrate.cli.presentation.output import console

    columns: list[Any] = [
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[said]}", markup=False),
        TimeRemainingColumn(),
    ]
    return Progress(*columns, console=console(to_stderr=True))


@contextmanager
def metered(what: str, total: int | None = None) -> Iterator[Meter]:
    """Show how far the block is; it tells the meter."""
    meter = BarMeter(what, total) if sys.stderr.isatty() else LineMeter(what, total)
    try:
        yield meter
    except BaseException:
        meter.abandon()
        raise
    meter.finish()
