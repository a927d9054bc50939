"""Futures that remember whether somebody was told of their error.

An error of rows can be had from the rows' own handle and from a flush. It is told once: who asked
the handle is not told again by the flush, and an error that nobody asked for is kept for the next
flush, or for the end of the process.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Sequence

from fluss_client.errors import FlussError
from fluss_client.runtime import until_done


class Fault:
    """An error of some rows, and whether somebody was told of it."""

    __slots__ = ("error", "told")

    def __init__(self, error: FlussError) -> None:
        self.error = error
        self.told = False


class Outcome(concurrent.futures.Future[None]):
    """Success, or the first of some faults; asking for it tells all of them."""

    def __init__(self) -> None:
        super().__init__()
        self._faults: Sequence[Fault] = ()
        self.set_running_or_notify_cancel()  # from here on it cannot be cancelled

    def finish(self, faults: Sequence[Fault]) -> None:
        """Set the outcome: no faults are a success."""
        self._faults = faults
        if faults:
            self.set_exception(faults[0].error)
        else:
            self.set_result(None)

    def result(self, timeout: float | None = None) -> None:
        """Wait; raise the error if there is one."""
        try:
            super().result(timeout)
        finally:
            self._tell()
            del self  # else error, traceback and future hold each other

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait; return the error if there is one."""
        error = super().exception(timeout)
        self._tell()
        return error

    def _tell(self) -> None:
        for fault in self._faults:
            fault.told = self.done()

    def peek(self) -> BaseException | None:
        """The error of a finished outcome for a log or the like; nobody counts as told."""
        return super().exception(0)

    async def wait(self) -> None:
        """Wait without blocking the event loop; raise the error if there is one."""
        # Not `asyncio.wrap_future`: it takes the error for a waiter that may be gone.
        await until_done(self)
        self.result()
