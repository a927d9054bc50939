"""Workers as Airflow has them: forked, each with clients and an API of its own, some of them dying.

A fork costs nothing where a new Python would import Airflow for ten seconds.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

from tests.waiting import wait_until

WAIT_S = 100.0


class Worker:
    """A forked process that does one piece of work and ends."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._pid = os.fork()
        if self._pid == 0:  # pragma: no cover - another process
            code = 1
            try:
                _own_api_server()
                work()
                code = 0
            except BaseException:  # noqa: BLE001 - the parent sees the code
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)

    def wait(self, wait_s: float = WAIT_S) -> int:
        """Its exit code; minus the signal when one ended it."""
        status = 0

        def has_ended() -> bool:
            nonlocal status
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            return pid != 0

        try:
            wait_until("the end of a worker", has_ended, wait_s)
        except BaseException:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            raise
        return os.waitstatus_to_exitcode(status)


def die() -> None:
    """End this process as one that loses its machine."""
    os.kill(os.getpid(), signal.SIGKILL)


_left_by_the_parent: list[Any] = []


def _own_api_server() -> None:
    """`dag.test()` talks to a server on a thread, which a fork does not take along."""
    from airflow.sdk.execution_time.supervisor import in_process_api_server

    if not hasattr(in_process_api_server, "cache_info"):  # before 3.2 each task makes its own
        return
    server = in_process_api_server()
    # Kept, for its end would wait for that thread.
    _left_by_the_parent.append(server.transport)
    del server.transport
