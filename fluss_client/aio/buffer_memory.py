"""The bound on rows that were accepted and are not acknowledged yet, counted in bytes."""

from __future__ import annotations

import threading
import time
from collections import deque

from fluss_client.errors import BufferFullError
from fluss_client.options import UNBOUNDED_MS


class BufferMemory:
    """Bytes in use against a limit; callers wait in turn for room.

    A single request above the limit is let through when nothing else is in use, so that a large
    batch is slow rather than impossible.
    """

    def __init__(self, limit_bytes: int, wait_timeout_ms: int) -> None:
        self.limit_bytes = limit_bytes
        self.wait_timeout_ms = wait_timeout_ms
        self._used = 0
        self._turn = threading.Condition(threading.Lock())
        self._waiting: deque[object] = deque()

    @property
    def used_bytes(self) -> int:
        """Bytes accepted and not acknowledged."""
        return self._used

    def try_reserve(self, nbytes: int) -> bool:
        """Take `nbytes` if there is room for them now and nobody waits."""
        with self._turn:
            if self._waiting or not self._fits(nbytes):
                return False
            self._used += nbytes
            return True

    def reserve(self, nbytes: int) -> None:
        """Wait for room and take it; BufferFullError after `writer.buffer.wait-timeout-ms`."""
        unbounded = self.wait_timeout_ms >= UNBOUNDED_MS
        deadline = None if unbounded else time.monotonic() + self.wait_timeout_ms / 1000
        with self._turn:
            ticket = object()
            self._waiting.append(ticket)
            try:
                while self._waiting[0] is not ticket or not self._fits(nbytes):
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        raise BufferFullError(
                            f"writer.buffer.memory-size: {self._used} of {self.limit_bytes} bytes "
                            f"were unacknowledged for {self.wait_timeout_ms} ms and {nbytes} more "
                            "do not fit; nothing of this call was taken, so it may be made again"
                        )
                    self._turn.wait(left)
                self._used += nbytes
            finally:
                self._waiting.remove(ticket)
                if self._waiting:
                    self._turn.notify_all()

    def force(self, nbytes: int) -> None:
        """Count bytes that are already here, over the limit if need be; negative gives back."""
        with self._turn:
            self._used += nbytes
            if nbytes < 0 and self._waiting:
                self._turn.notify_all()

    def release(self, nbytes: int) -> None:
        """Give back what was reserved."""
        self.force(-nbytes)

    def _fits(self, nbytes: int) -> bool:
        return self._used + nbytes <= self.limit_bytes or self._used <= 0
