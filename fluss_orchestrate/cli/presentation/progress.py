"""How far a long command is, on standard error: a bar at a terminal, plain lines otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress

    from fluss_orchestrate.core.incremental.reading.reader import ScanProgress

LINE_INTERVAL_S = 5.0
"""Between two plain lines; a command that is faster says only its last one."""


class Meter:
    """Counts rows, and steps towards a total if one is known."""

    def __init__(self, what: str, total: int | None) -> None:
        self.what = what
        self.rows = 0
        self.done = 0
        self.total = total
        self.started = time.monotonic()

    def add(self, rows: int, done: int = 0) -> None:
        """Add to the count."""
        self.at(self.rows + rows, self.done + done, self.total)

    def at(self, rows: int, done: int, total: int | None) -> None:
        """Set the count."""
        self.rows, self.done, self.total = rows, done, total
        self.show()

    def follow(self, scan: ScanProgress) -> None:
        """Set the count to that of a scan; its hook for progress."""
        self.at(scan.rows, scan.offsets, scan.offsets_total)

    def show(self) -> None:
        """Update the display."""

    def finish(self) -> None:
        """Show the end."""

    def abandon(self) -> None:
        """End without a line, because an error follows."""

    def rate(self) -> float:
        """Return the rows per second so far."""
        return self.rows / max(time.monotonic() - self.started, 1e-6)

    def left_s(self) -> float | None:
        """Return the seconds that are left at this speed; None if they are not known."""
        if not self.total or not self.done:
            return None
        spent = time.monotonic() - self.started
        return spent * max(0, self.total - self.done) / self.done


class LineMeter(Meter):
    """Prints a line from time to time."""

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
    """Shows a progress bar."""

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
    """Show the progress of the block, which updates the meter."""
    meter = BarMeter(what, total) if sys.stderr.isatty() else LineMeter(what, total)
    try:
        yield meter
    except BaseException:
        meter.abandon()
        raise
    meter.finish()
