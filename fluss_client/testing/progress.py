"""Telling a person how far a download is: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LINE_EVERY_PERCENT = 25


@contextmanager
def download_progress(title: str, total_bytes: int) -> Iterator[Callable[[int], None]]:
    """Give a function that takes the bytes so far and shows them on standard error."""
    if sys.stderr.isatty():
        try:
            import rich.console
            import rich.progress
        except ImportError:
            pass
        else:
            with rich.progress.Progress(
                rich.progress.TextColumn("{task.description}"),
                rich.progress.BarColumn(),
                rich.progress.DownloadColumn(),
                rich.progress.TransferSpeedColumn(),
                console=rich.console.Console(stderr=True),
                transient=True,
            ) as bar:
                task = bar.add_task(title, total=total_bytes)
                yield lambda so_far: bar.update(task, completed=min(so_far, total_bytes))
            return
    yield _Lines(title, total_bytes).show


class _Lines:
    def __init__(self, title: str, total_bytes: int) -> None:
        self._title = title
        self._total_bytes = max(total_bytes, 1)
        self._next_percent = 0

    def show(self, so_far: int) -> None:
        percent = min(100, so_far * 100 // self._total_bytes)
        if percent >= self._next_percent:
            total_mb = self._total_bytes / 1e6
            print(f"{self._title}: {percent}% of {total_mb:.0f} MB", file=sys.stderr, flush=True)
            self._next_percent = percent - percent % _LINE_EVERY_PERCENT + _LINE_EVERY_PERCENT
