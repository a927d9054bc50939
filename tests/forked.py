"""Processes that begin with everything imported: forks of a server that this test process has once.

A new Python imports for seconds what a fork has at once. Whoever needs another server, as Dagster's
own executor does, takes `own_fork_server`.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Iterator
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess
from typing import Any

import pytest

from tests.orchestrate.incremental.crasher import IMPORTED_WHEN_NEEDED
from tests.waiting import scaled

IMPORTED = [
    *IMPORTED_WHEN_NEEDED,
    "psycopg2",
    "pytest",
    "tests.embedded.worker",
    "tests.orchestrate.lake.key_killer",
    "tests.orchestrate.sinks.plans",
    "tests.orchestrate.sinks.targets",
]
context = multiprocessing.get_context("forkserver")


def start(work: Callable[..., Any], *arguments: Any) -> ForkServerProcess:
    """Start a process that does some work; a daemon, so that a failing test leaves none behind."""
    # Heeded by the first start after a server ended; Dagster sets a list of its own.
    context.set_forkserver_preload(IMPORTED)
    process = context.Process(target=work, args=arguments, daemon=True)
    process.start()
    return process


def finish(process: ForkServerProcess, seconds: float = 100) -> None:
    """Wait for a process that is expected to succeed."""
    process.join(scaled(seconds))
    assert process.exitcode == 0


def run_program(text: str, *arguments: str) -> int | None:
    """The exit code of `python -c text arguments`, in a fork."""
    process = start(_run, text, arguments)
    process.join()
    return process.exitcode


def _run(text: str, arguments: tuple[str, ...]) -> None:
    sys.argv = ["-c", *arguments]
    exec(compile(text, "-c", "exec"), {"__name__": "__main__"})


@pytest.fixture
def own_fork_server() -> Iterator[None]:
    """The next fork starts a new server, with what it asks for, and so does the first one after."""
    forkserver._forkserver._stop()  # type: ignore[attr-defined]
    yield
    forkserver._forkserver._stop()  # type: ignore[attr-defined]
