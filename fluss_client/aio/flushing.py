"""Which calls are still without an answer, and who waits for all of them."""

from __future__ import annotations

import concurrent.futures
from collections import deque
from dataclasses import dataclass

from fluss_client.aio.write_handle import WriteResultHandle
from fluss_client.errors import FlussError


@dataclass(slots=True)
class _Flush:
    done: concurrent.futures.Future[None]
    up_to: int
    """Calls with lower numbers must be over."""
    error: FlussError | None


class Flushes:
    """Numbers the accepted calls; an error is told to the flush that covers its call.

    An error that no flush was waiting for is kept for the next one, the first of them only.
    """

    def __init__(self) -> None:
        self._count = 0
        self._open: deque[WriteResultHandle] = deque()
        self._waiting: deque[_Flush] = deque()
        self._untold: FlussError | None = None

    def begin(self, handle: WriteResultHandle, pieces: int) -> None:
        """A call was accepted that will have so many answers."""
        handle._expect(self._count, pieces)
        self._count += 1
        self._open.append(handle)
        if pieces == 0:
            self._finish(handle)

    def settle(self, handle: WriteResultHandle, error: FlussError | None) -> None:
        """One piece of a call has its answer."""
        if handle._settle_piece(error):
            self._finish(handle)

    def wait(self, done: concurrent.futures.Future[None]) -> None:
        """Finish `done` when all calls begun before are over, with the first error among them."""
        self._waiting.append(_Flush(done, self._count, self._untold))
        self._untold = None
        self._tell()

    def _finish(self, handle: WriteResultHandle) -> None:
        error = handle._finish()
        if error is not None:
            covering = [flush for flush in self._waiting if handle._number < flush.up_to]
            for flush in covering:
                flush.error = flush.error or error
            if not covering:
                self._untold = self._untold or error
        while self._open and self._open[0].done():
            self._open.popleft()
        self._tell()

    def _tell(self) -> None:
        oldest = self._open[0]._number if self._open else self._count
        while self._waiting and self._waiting[0].up_to <= oldest:
            flush = self._waiting.popleft()
            if flush.error is not None:
                flush.done.set_exception(flush.error)
            else:
                flush.done.set_result(None)
