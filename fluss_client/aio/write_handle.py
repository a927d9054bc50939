"""The fate of written rows, to be awaited from any event loop or waited for by any thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Sequence

from fluss_client.errors import FlussError


class WriteResultHandle:
    """The acknowledgement of the rows of one call.

    Rows appended one after the other travel together and share their handle. Waiting sends them
    at once; giving up the waiting (a timeout, a cancelled task) never takes the rows back.
    """

    __slots__ = ("_error", "_future", "_number", "_pending", "_send_now")

    def __init__(self, send_now: Callable[[], None]) -> None:
        self._send_now: Callable[[], None] | None = send_now
        self._future: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._future.set_running_or_notify_cancel()  # from here on it cannot be cancelled
        self._number = -1
        self._pending = 0
        self._error: FlussError | None = None

    async def wait(self) -> None:
        """Return when the server has acknowledged the rows; raise why it did not."""
        await asyncio.wrap_future(self.future())

    def future(self) -> concurrent.futures.Future[None]:
        """The same for code without an event loop; the rows are sent at once."""
        send_now, self._send_now = self._send_now, None
        if send_now is not None:
            send_now()
        return self._future

    def done(self) -> bool:
        """Whether the rows' fate is known."""
        return self._future.done()

    def __repr__(self) -> str:
        if not self._future.done():
            return "WriteResultHandle(pending)"
        return f"WriteResultHandle({'failed' if self._error else 'acknowledged'})"

    @classmethod
    def joined(cls, handles: Sequence[WriteResultHandle]) -> WriteResultHandle:
        """A handle for the rows of several."""

        def send_now() -> None:
            for handle in handles:
                handle.future()

        whole = cls(send_now)
        left = threading.Semaphore(len(handles) - 1)

        def finished(future: concurrent.futures.Future[None]) -> None:
            if not left.acquire(blocking=False):
                failed = (handle._future.exception() for handle in handles)
                whole._error = next((e for e in failed if isinstance(e, FlussError)), None)
                whole._finish()

        for handle in handles:
            handle._future.add_done_callback(finished)
        return whole

    # What follows is for the sender, on its loop.

    def _expect(self, number: int, pieces: int) -> None:
        self._number = number
        self._pending = pieces

    def _settle_piece(self, error: FlussError | None) -> bool:
        """One piece has its answer; true when it was the last one."""
        if error is not None and self._error is None:
            self._error = error
        self._pending -= 1
        return self._pending <= 0

    def _finish(self) -> FlussError | None:
        """Tell the outcome to everyone who waits."""
        self._send_now = None
        if self._error is not None:
            self._future.set_exception(self._error)
        else:
            self._future.set_result(None)
        return self._error
