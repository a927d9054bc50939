"""The outcome of written rows: handles, flushes, and which errors were reported already.

An error of rows can be had from the rows' own handle and from a flush. It is reported once: if a
handle raised it, a flush does not raise it again. An error that nobody asked for is kept for the
next flush, or for the exit of the process. Outcomes can be awaited on any event loop and waited for
on any thread.
"""

from __future__ import annotations

import concurrent.futures
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fluss_client.errors import FlussError
from fluss_client.runtime import until_done

FAULTS_KEPT_MAX = 1_000
"""Unreported faults that are kept one by one; the others share one fault."""


class Fault:
    """An error of some rows, and whether it was reported to somebody."""

    __slots__ = ("error", "reported")

    def __init__(self, error: FlussError) -> None:
        self.error = error
        self.reported = False


class Outcome(concurrent.futures.Future[None]):
    """A future without a value. Asking for its result reports all of its faults."""

    def __init__(self) -> None:
        super().__init__()
        self._faults: Sequence[Fault] = ()
        self.set_running_or_notify_cancel()  # from here on it cannot be cancelled

    def finish(self, faults: Sequence[Fault]) -> None:
        """Set the outcome: success without faults, else the error of the first fault."""
        self._faults = faults
        if faults:
            self.set_exception(faults[0].error)
        else:
            self.set_result(None)

    def result(self, timeout: float | None = None) -> None:
        """Wait for the outcome and raise its error if there is one."""
        try:
            super().result(timeout)
        finally:
            self._mark_reported()
            del self  # else error, traceback and future hold each other

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the outcome and return its error if there is one."""
        error = super().exception(timeout)
        self._mark_reported()
        return error

    def _mark_reported(self) -> None:
        for fault in self._faults:
            fault.reported = self.done()

    def peek(self) -> BaseException | None:
        """Return the error of a finished outcome for a log; it does not count as reported."""
        return super().exception(0)

    async def wait(self) -> None:
        """Wait without blocking the event loop; raise the error if there is one."""
        # Not `asyncio.wrap_future`: it takes the error for a waiter that may be gone.
        await until_done(self)
        self.result()


class WriteResultHandle:
    """The acknowledgement of the rows of one call.

    The methods of a writer return it; do not call the constructor.

    Rows that were written one after the other are sent together and share their handle. Waiting
    sends them at once. Ending the wait early (a timeout, a cancelled task) does not take the rows
    back.
    """

    __slots__ = ("_fault", "_future", "_number", "_pending", "_send_now")

    def __init__(self, send_now: Callable[[], None]) -> None:
        self._send_now: Callable[[], None] | None = send_now
        self._future = Outcome()
        self._number = -1
        self._pending = 0
        self._fault: Fault | None = None

    async def wait(self) -> None:
        """Return when the server has acknowledged the rows.

        Raises:
            FlussError: The rows were not written. `flush` and `close` do not raise this error
                again.
        """
        await self.future().wait()

    def future(self) -> Outcome:
        """Send the rows at once and return a future for code without an event loop."""
        send_now, self._send_now = self._send_now, None
        if send_now is not None:
            send_now()
        return self._future

    def done(self) -> bool:
        """Return whether the rows are acknowledged or lost."""
        return self._future.done()

    def __repr__(self) -> str:
        if not self._future.done():
            return "WriteResultHandle(pending)"
        return f"WriteResultHandle({'failed' if self._fault else 'acknowledged'})"

    @classmethod
    def joined(cls, handles: Sequence[WriteResultHandle]) -> WriteResultHandle:
        """Return one handle that is done when all `handles` are done."""

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

    # Called by `FlushTracker` on the event loop of the sender.

    def _expect(self, number: int, slices: int) -> None:
        self._number = number
        self._pending = slices

    def _settle_slice(self, fault: Fault | None) -> bool:
        """Record the answer of one slice; return whether it was the last one."""
        self._fault = self._fault or fault
        self._pending -= 1
        return self._pending <= 0

    def _finish(self) -> Fault | None:
        """Notify everybody who waits for the outcome."""
        self._send_now = None
        self._future.finish([] if self._fault is None else [self._fault])
        return self._fault


@dataclass(slots=True)
class _Flush:
    done: Outcome
    up_to: int
    """All calls with lower numbers must have their answers."""
    faults: list[Fault]


class FlushTracker:
    """Numbers the accepted calls and finishes each flush when all calls before it are answered.

    A flush reports the faults of its calls, but for those that a handle or an earlier flush has
    reported. It runs on the event loop only.
    """

    def __init__(self) -> None:
        self._count = 0
        self._open: deque[WriteResultHandle] = deque()
        self._waiting: deque[_Flush] = deque()
        self._unreported: list[Fault] = []
        self._overflow: Fault | None = None
        """Represents the faults beyond `FAULTS_KEPT_MAX`."""

    def begin(self, handle: WriteResultHandle, slices: int) -> None:
        """Register a call that will have one answer per slice."""
        handle._expect(self._count, slices)
        self._count += 1
        self._open.append(handle)
        if slices == 0:
            self._finish(handle)

    def settle(self, handle: WriteResultHandle, fault: Fault | None) -> None:
        """Record the answer of one slice of a call."""
        if handle._settle_slice(fault):
            self._finish(handle)

    def wait(self, done: Outcome) -> None:
        """Finish `done` when all calls begun before are answered, with the faults among them."""
        self._prune()
        faults = [*self._unreported]
        if self._overflow is not None:
            faults.append(self._overflow)
        self._waiting.append(_Flush(done, self._count, faults))
        self._finish_flushes()

    def _finish(self, handle: WriteResultHandle) -> None:
        fault = handle._finish()
        if fault is not None:
            kept = self._keep(fault)
            for flush in self._waiting:
                if handle._number < flush.up_to:
                    flush.faults.append(kept)
        while self._open and self._open[0].done():
            self._open.popleft()
        self._finish_flushes()

    def _keep(self, fault: Fault) -> Fault:
        """Keep a fault until it is reported; return the one that is kept in its place."""
        if self._unreported and self._unreported[-1] is fault:
            return fault  # the rows of several calls failed together
        if len(self._unreported) >= FAULTS_KEPT_MAX:
            self._prune()
        if len(self._unreported) < FAULTS_KEPT_MAX:
            self._unreported.append(fault)
            return fault
        if self._overflow is None:
            # No handle reports this one: the next flush does, whatever handles were asked.
            self._overflow = Fault(fault.error)
        return self._overflow

    def _prune(self) -> None:
        self._unreported = [fault for fault in self._unreported if not fault.reported]
        if self._overflow is not None and self._overflow.reported:
            self._overflow = None

    def _finish_flushes(self) -> None:
        oldest = self._open[0]._number if self._open else self._count
        while self._waiting and self._waiting[0].up_to <= oldest:
            flush = self._waiting.popleft()
            flush.done.finish([fault for fault in flush.faults if not fault.reported])
