"""Starting processes quickly: forked off a server that has imported everything already."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from typing import Any

from tests.waiting import scaled

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.embedded.worker"])


def start(work: Callable[..., None], *arguments: Any) -> ForkServerProcess:
    """A process that does some work; a daemon, so that a failing test leaves none behind."""
    process = _context.Process(target=work, args=arguments, daemon=True)
    process.start()
    return process


def finish(process: ForkServerProcess, seconds: float = 100) -> None:
    """Wait for a process that is expected to succeed."""
    process.join(scaled(seconds))
    assert process.exitcode == 0
