"""Which calls are still without an answer, and who waits for all of them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from fluss_client.aio.outcome import Fault, Outcome
from fluss_client.aio.write_handle import WriteResultHandle

FAULTS_KEPT_MAX = 1_000
"""Of the faults that nobody was told of, so many can still be told by their handles alone."""


@dataclass(slots=True)
class _Flush:
    done: Outcome
    up_to: int
    """Calls with lower numbers must be over."""
    faults: list[Fault]


class Flushes:
    """Numbers the accepted calls; a flush tells the faults of its calls that nobody was told of.

    A fault that was told by its handle, or by a flush that somebody waited for, is not told again.
    """

    def __init__(self) -> None:
        self._count = 0
        self._open: deque[WriteResultHandle] = deque()
        self._waiting: deque[_Flush] = deque()
        self._untold: list[Fault] = []
        self._beyond: Fault | None = None
        """Stands for the faults that are too many to keep."""

    def begin(self, handle: WriteResultHandle, pieces: int) -> None:
        """A call was accepted that will have so many answers."""
        handle._expect(self._count, pieces)
        self._count += 1
        self._open.append(handle)
        if pieces == 0:
            self._finish(handle)

    def settle(self, handle: WriteResultHandle, fault: Fault | None) -> None:
        """One piece of a call has its answer."""
        if handle._settle_piece(fault):
            self._finish(handle)

    def wait(self, done: Outcome) -> None:
        """Finish `done` when all calls begun before are over, with the first fault among them."""
        self._prune()
        faults = [*self._untold] if self._beyond is None else [*self._untold, self._beyond]
        self._waiting.append(_Flush(done, self._count, faults))
        self._tell()

    def _finish(self, handle: WriteResultHandle) -> None:
        fault = handle._finish()
        if fault is not None:
            kept = self._keep(fault)
            for flush in self._waiting:
                if handle._number < flush.up_to:
                    flush.faults.append(kept)
        while self._open and self._open[0].done():
            self._open.popleft()
        self._tell()

    def _keep(self, fault: Fault) -> Fault:
        """Keep a fault until somebody was told; what is kept in its place where there are many."""
        if self._untold and self._untold[-1] is fault:
            return fault  # the rows of several calls failed together
        if len(self._untold) >= FAULTS_KEPT_MAX:
            self._prune()
        if len(self._untold) < FAULTS_KEPT_MAX:
            self._untold.append(fault)
            return fault
        if self._beyond is None:
            # No handle tells this one: the next flush does, whatever handles were asked.
            self._beyond = Fault(fault.error)
        return self._beyond

    def _prune(self) -> None:
        self._untold = [fault for fault in self._untold if not fault.told]
        if self._beyond is not None and self._beyond.told:
            self._beyond = None

    def _tell(self) -> None:
        oldest = self._open[0]._number if self._open else self._count
        while self._waiting and self._waiting[0].up_to <= oldest:
            flush = self._waiting.popleft()
            flush.done.finish([fault for fault in flush.faults if not fault.told])
