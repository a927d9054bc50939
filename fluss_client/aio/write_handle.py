"""The fate of written rows, to be awaited from any event loop or waited for by any thread."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Sequence

from fluss_client.aio.outcome import Fault, Outcome


class WriteResultHandle:
    """The acknowledgement of the rows of one call.

    Rows appended one after the other travel together and share their handle. Waiting sends them
    at once; giving up the waiting (a timeout, a cancelled task) never takes the rows back.
    """

    __slots__ = ("_fault", "_future", "_number", "_pending", "_send_now")

    def __init__(self, send_now: Callable[[], None]) -> None:
        self._send_now: Callable[[], None] | None = send_now
        self._future = Outcome()
        self._number = -1
        self._pending = 0
        self._fault: Fault | None = None

    async def wait(self) -> None:
        """Return when the server has acknowledged the rows; raise why it did not.

        An error that is raised here is not raised again by `flush` or `close`.
        """
        await self.future().wait()

    def future(self) -> Outcome:
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
        return f"WriteResultHandle({'failed' if self._fault else 'acknowledged'})"

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
                faults = (handle._fault for handle in handles)
                whole._fault = next((fault for fault in faults if fault is not None), None)
                whole._finish()

        for handle in handles:
            handle._future.add_done_callback(finished)
        return whole

    # What follows is for the sender, on its loop.

    def _expect(self, number: int, pieces: int) -> None:
        self._number = number
        self._pending = pieces

    def _settle_piece(self, fault: Fault | None) -> bool:
        """One piece has its answer; true when it was the last one."""
        self._fault = self._fault or fault
        self._pending -= 1
        return self._pending <= 0

    def _finish(self) -> Fault | None:
        """Tell the outcome to everyone who waits."""
        self._send_now = None
        self._future.finish([] if self._fault is None else [self._fault])
        return self._fault
