"""Airflow's own processes, each in a process group that can be killed whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.waiting import wait_until

WAIT_S = 90.0


class Component:
    """`airflow <arguments>` in a process group of its own."""

    def __init__(
        self, arguments: Sequence[str], log: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self._arguments = arguments
        self._log = log
        self._env = env
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "airflow", *self._arguments],
                stdout=log,
                stderr=log,
                env=None if self._env is None else dict(self._env),
                start_new_session=True,
            )
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """The process that was started."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """End it at once, as a lost machine does."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self._process is None or self._process.poll() is not None

    def said(self) -> str:
        """Its log."""
        return self._log.read_text(errors="replace")


def until(
    what: str,
    check: Callable[[], Any],
    component: Component | None = None,
    wait_s: float = WAIT_S,
    pause_s: float = 0.3,
) -> Any:
    """What `check` gives once that is true; an error with the component's log if it never is."""
    details = None if component is None else lambda: component.said()[-4000:]
    return wait_until(what, check, wait_s, pause_s=pause_s, details=details)
