"""A process with all its descendants: started, listened to, and ended together.

Spark's Python workers leave the process group of their parent, so that killing the group leaks
them. They stay in its session, though, and that is what is killed here.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

LOG_TAIL_LINES = 200
KILL_GRACE_S = 10.0
KILLS_MAX = 100
_POLL_S = 0.05
_PROC = Path("/proc")

OnLine = Callable[[str], None]


class ProcessTree:
    """One running command. A thread passes the lines of its output to `on_line`."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], on_line: OnLine
    ) -> None:
        self.log_tail: deque[str] = deque(maxlen=LOG_TAIL_LINES)
        self._on_line = on_line
        self._failure: BaseException | None = None
        self._child = subprocess.Popen(
            list(command),
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
            errors="replace",
        )
        self._reader = threading.Thread(target=self._listen, name="spark-submit-log", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The process id of the command; also that of its session."""
        return self._child.pid

    def _listen(self) -> None:
        assert self._child.stdout is not None
        with self._child.stdout as output:
            for line in output:
                self._hear(line.rstrip("\n"))

    def _hear(self, line: str) -> None:
        self.log_tail.append(line)
        if self._failure is None:
            try:
                self._on_line(line)
            except BaseException as error:  # noqa: BLE001 - it is raised in `wait`
                # The pipe is read on all the same: a full one would stop the command.
                self._failure = error

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Return the exit code after all output was read; None after `timeout_s`."""
        give_up_at = None if timeout_s is None else time.monotonic() + timeout_s
        # Short waits let signal handlers of the caller run.
        while self._child.poll() is None:
            if self._failure is not None:
                raise self._failure
            if give_up_at is not None and time.monotonic() > give_up_at:
                return None
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(_POLL_S)
        self._reader.join(KILL_GRACE_S)
        if self._failure is not None:
            raise self._failure
        return self._child.returncode

    def kill(self, grace_s: float = KILL_GRACE_S) -> None:
        """End the command and everything that it started: TERM, then KILL after `grace_s`."""
        end_session(self._child, grace_s)
        self._reader.join(KILL_GRACE_S)


def end_session(leader: subprocess.Popen[str], grace_s: float = KILL_GRACE_S) -> None:
    """End a process that was started in a session of its own, and all others of that session."""

    def alive() -> bool:
        return leader.poll() is None or bool(session_members(leader.pid))

    def signal_all(number: signal.Signals) -> None:
        if leader.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(leader.pid, number)
        for pid in session_members(leader.pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)

    signal_all(signal.SIGTERM)
    give_up_at = time.monotonic() + grace_s
    while alive() and time.monotonic() < give_up_at:
        time.sleep(_POLL_S)
    for _ in range(KILLS_MAX):
        if not alive():
            break
        signal_all(signal.SIGKILL)
        time.sleep(_POLL_S)


def session_members(session: int) -> list[int]:
    """Return the living processes of a session, if the system can list them."""
    members = []
    for folder in _PROC.glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] not in "ZX" and int(fields[3]) == session:
            members.append(int(folder.name))
    return members


@contextlib.contextmanager
def on_terminate(action: Callable[[], None]) -> Iterator[None]:
    """Run `action` when this process gets SIGTERM, then do what it did before.

    Python ends at SIGTERM without unwinding, and would leave behind what it started. Only the main
    thread can listen for signals; elsewhere the caller's own handler must do it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)

    def handle(number: int, frame: object) -> None:
        action()
        signal.signal(signal.SIGTERM, before)
        if callable(before):
            before(number, frame)  # type: ignore[arg-type]
        else:
            os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
