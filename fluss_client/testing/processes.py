"""Starts server processes and recognizes them later.

A process is recorded by its pid and its start time. The system reuses pids, so a pid alone could be
that of another process; together with the start time it is unique.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from fluss_client.testing.errors import LocalClusterError

STOP_DEADLINE_S = 20.0
KILL_DEADLINE_S = 10.0
_POLL_S = 0.02
_START_FIELD = 19  # of /proc/PID/stat, counted after the command's closing parenthesis

# Popen objects of running children: without a `poll` here they would stay zombies.
_children: dict[int, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True)
class ProcessMark:
    """A process that was started; it may have ended."""

    pid: int
    started: str

    def is_alive(self) -> bool:
        """Return whether this process still runs."""
        if process_start(self.pid) == self.started:
            return True
        child = _children.get(self.pid)
        if child is not None and child.poll() is not None:
            del _children[self.pid]
        return False

    def terminate(self, name: str) -> None:
        """Stop the process with SIGTERM, and after `STOP_DEADLINE_S` with SIGKILL; wait for it."""
        self._signal(name, signal.SIGTERM)
        if not self._wait_gone(STOP_DEADLINE_S):
            self.kill(name)

    def kill(self, name: str) -> None:
        """Kill the process and wait for its end."""
        self._signal(name, signal.SIGKILL)
        if not self._wait_gone(KILL_DEADLINE_S):
            raise LocalClusterError(f"{name} (pid {self.pid}) does not end even when killed")

    def _signal(self, name: str, number: signal.Signals) -> None:
        if not self.is_alive():
            return
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return
        except PermissionError as error:
            raise LocalClusterError(
                f"{name} (pid {self.pid}) belongs to another user and cannot be stopped by this one"
            ) from error

    def _wait_gone(self, deadline_s: float) -> bool:
        give_up_at = time.monotonic() + deadline_s
        while self.is_alive():
            if time.monotonic() > give_up_at:
                return False
            time.sleep(_POLL_S)
        return True


def spawn(command: list[str], folder: Path, output: Path) -> ProcessMark:
    """Start `command` in `folder`, in a session of its own, so that Ctrl-C does not stop it.

    `output` gets what the process prints, and is overwritten.
    """
    with output.open("wb") as file:
        child = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _children[child.pid] = child
    # A child that was not waited for keeps its /proc entry, so its start time can still be read.
    return ProcessMark(child.pid, process_start(child.pid, zombie_too=True) or "")


def process_start(pid: int, zombie_too: bool = False) -> str | None:
    """Return a text that identifies the start of a process; None if it does not run."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError, NotADirectoryError):
        return None if os.path.exists("/proc/self/stat") else _start_by_ps(pid)
    fields = stat.rpartition(")")[2].split()
    if fields[0] in "ZX" and not zombie_too:
        return None
    return f"{_boot_id()}/{fields[_START_FIELD]}"


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _start_by_ps(pid: int) -> str | None:
    answer = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)],  # noqa: S607
        capture_output=True,
        text=True,
    )
    state, _, started = answer.stdout.strip().partition(" ")
    return started.strip() if started and not state.startswith("Z") else None
