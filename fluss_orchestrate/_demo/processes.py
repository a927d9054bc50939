"""Work that can be killed: each part runs in a process of its own.

Importing Airflow takes longer than a round's work with it. So one process imports it, while Spark
loads the past, and every round is a fork of that one, as Airflow forks its own tasks.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType

from fluss_client.errors import ClientError
from fluss_orchestrate._demo.shop import Shop

LOG_LINES_SHOWN = 15
Work = Callable[[Sequence[str]], bool]
"""Takes the words of a command; whether it went well."""


def run_or_serve(work: Work) -> None:
    """The main of such a module: with words do the work, without wait for a `Server`'s commands."""
    if len(sys.argv) > 1:
        sys.exit(0 if work(sys.argv[1:]) else 1)
    for line in sys.stdin:
        command = json.loads(line)
        pid = os.fork()
        if pid == 0:
            with open(command["log"], "wb") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
            sys.exit(0 if work(command["words"]) else 1)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


class Server(AbstractContextManager["Server"]):
    """A module of the demo that has imported everything and forks for every command."""

    def __init__(self, place: Shop, module: str) -> None:
        self._place = place
        self._module = module
        with (place.logs / f"{module}.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"fluss_orchestrate._demo.{module}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=place.environment(),
                text=True,
            )

    def run(self, *words: str) -> bool:
        """Run a command and wait for its end; False when it was killed."""
        name = f"{self._module}-{'-'.join(words)}"
        log = self._place.logs / f"{name}.log"
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"words": words, "log": str(log)}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        if answer not in ("0", str(-signal.SIGKILL)):
            said = log if log.exists() else self._place.logs / f"{self._module}.log"
            lines = said.read_text(errors="replace").splitlines()
            raise ClientError("\n".join([f"{name} failed:", *lines[-LOG_LINES_SHOWN:]]))
        return answer == "0"

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.communicate()
