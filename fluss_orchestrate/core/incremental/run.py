"""`ScanRun`: one plan on its way from reading to commit, for both kinds of scans.

The caller reads the rows in a `with` block, which commits when it ends without an error; or a sink
writes them with `write_to`. Both ways end in the same commit.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fluss_client.errors import ClosedError, ConfigError
from fluss_orchestrate.core.incremental.reading.reader import (
    PlanReading,
    ProgressHook,
    ScanProgress,
)
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.receipts import Receipt

if TYPE_CHECKING:
    from fluss_orchestrate.core.incremental.scan import IncrementalScan
    from fluss_orchestrate.core.incremental.time.intervals import IntervalScan
    from fluss_orchestrate.core.sinks.base import Sink


class ScanRun:
    """A plan that is being read and, on a clean exit, committed.

    `IncrementalScan.run` and `IntervalScan.run` return it; do not call the constructor.

    A run whose block raises, or that did not read all rows, is not committed: the same run key gets
    the same plan again. `skip` leaves the rows out on purpose, and `read_elsewhere` says that
    something else, such as a Spark job, has read them.

    A run whose plan was committed before (`already_committed`) gives no rows and commits nothing,
    unless the scan has `on_committed="again"`.
    """

    def __init__(
        self,
        scan: IncrementalScan | IntervalScan,
        run_key: str,
        plan: ScanPlan,
        progress: ProgressHook | None = None,
        committed: Receipt | None = None,
    ) -> None:
        self._scan = scan
        self._progress = progress
        self._committed = committed
        self._opened: PlanReading | None = None
        self._given: dict[str, Any] = {}
        self.run_key = run_key
        self.plan = plan
        self.details: dict[str, Any] = {}
        """Plain values that are added to the receipt; never a secret."""
        self.receipt: Receipt | None = None
        """Set by the commit."""

    @property
    def adopted(self) -> bool:
        """Whether the plan belongs to another run; the next call returns this run's own plan."""
        return self.plan.run_key != self.run_key

    @property
    def skipped(self) -> bool:
        """Whether there is nothing to do because another run's plan is pending."""
        return self.plan.sequence < 0

    @property
    def already_committed(self) -> bool:
        """Whether the plan was committed before this run began."""
        return self._committed is not None

    @property
    def finished(self) -> Receipt | None:
        """The receipt of a plan that was committed before and is not to be written again."""
        return None if self._scan.settings.on_committed == "again" else self._committed

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches."""
        return self._open().schema

    def _open(self) -> PlanReading:
        if self.receipt is not None:
            raise ClosedError("this run was committed; begin another one")
        if self._opened is None:
            self._opened = self._scan.open_plan(self.plan, self._progress)
        return self._opened

    def reader(self) -> pa.RecordBatchReader:
        """Return a reader of all rows of the plan, from the first one on."""
        reading = self._open()
        if self.finished is not None:
            return pa.RecordBatchReader.from_batches(reading.schema, iter(()))
        # Each reader has its own counts, so that two readers do not count rows twice.
        self._opened = None
        return reading.reader()

    def to_arrow(self) -> pa.Table:
        """Return all rows of the plan at once; they must fit into memory."""
        return self.reader().read_all()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(self.reader())

    def skip(self, reason: str) -> None:
        """Leave the rows of the plan out for good; the commit records the `reason`.

        Raises:
            ConfigError: if no reason is given.
        """
        self._given = {"rows": 0, "details": skip_details(reason)}

    def read_elsewhere(self, rows: int, bytes: int = 0) -> None:  # noqa: A002 (the receipt's name)
        """Say that something else has read and written all rows of the plan.

        Args:
            rows: The number of rows.
            bytes: Their size.
        """
        self._given = {"rows": rows, "bytes": bytes}

    def __enter__(self) -> ScanRun:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc_type is None:
            self.commit()

    def write_to(self, sink: Sink) -> Receipt:
        """Have a sink write the rows of the plan, then commit it.

        Nothing is written if there is nothing to do: the plan was committed before, or another
        run's plan is pending.

        Args:
            sink: Where the rows go. The plan must have been made for it.

        Returns:
            The receipt of the commit.
        """
        if self.finished is None and not self.skipped:
            overall = _Overall(self.plan, self._progress)
            done = sink.write(self.plan, lambda part: self._scan.read(part, overall.part()))
            self._given = {
                "rows": done.rows,
                "bytes": done.bytes,
                "rows_moved": done.moved,
                "details": {"sink": dict(done.details), "exactly_once": sink.exactly_once},
            }
        return self.commit()

    def commit(self) -> Receipt:
        """Commit now rather than at the end of the block. Further calls do nothing.

        Raises:
            IncompleteReadError: if the rows were not read to their end.
        """
        if self.receipt is None:
            self.receipt = self._commit()
        return self.receipt

    def _commit(self) -> Receipt:
        if self.finished is not None:
            return self.finished
        given = dict(self._given)
        details = {**self.details, **given.pop("details", {})}
        return self._scan.commit(self.plan, details=details, **given)


def skip_details(reason: str) -> dict[str, Any]:
    """Return the details of the receipt of a plan whose rows were left out on purpose."""
    if not reason.strip():
        raise ConfigError("say why the rows are left out: skip(reason)")
    return {"skipped": True, "reason": reason}


class _Overall:
    """The progress of a whole plan, added up over its parts."""

    def __init__(self, plan: ScanPlan, report: ProgressHook | None) -> None:
        self._plan = plan
        self._report = report
        self._parts: list[ScanProgress] = []
        # A sink may read several parts at once, each on its own thread.
        self._lock = threading.Lock()

    def part(self) -> ProgressHook | None:
        """Return the hook for the reading of one part."""
        if self._report is None:
            return None
        with self._lock:
            at = len(self._parts)
            self._parts.append(ScanProgress(0, 0, 0, 0))
        return partial(self._update, at)

    def _update(self, at: int, now: ScanProgress) -> None:
        assert self._report is not None
        with self._lock:
            self._parts[at] = now
            offsets = sum(part.offsets for part in self._parts)
            self._report(
                ScanProgress(
                    sum(part.rows for part in self._parts),
                    sum(part.bytes for part in self._parts),
                    min(offsets, self._plan.offsets),  # a sink may read a part twice
                    self._plan.offsets,
                )
            )
