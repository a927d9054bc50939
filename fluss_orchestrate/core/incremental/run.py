"""One run of an incremental scan as a `with` block that commits when all went well."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fluss_client.errors import ClosedError
from fluss_orchestrate.core.errors import IncompleteReadError
from fluss_orchestrate.core.incremental.reading import PlanReading, ProgressHook
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.receipts import Receipt

if TYPE_CHECKING:
    from fluss_orchestrate.core.incremental.scan import IncrementalScan


class ScanRun:
    """A plan that is being read and, on a clean exit, committed.

    A run whose block raises, or that read only a part, is not committed: the same run key gets
    the same plan again.
    """

    def __init__(
        self,
        scan: IncrementalScan,
        run_key: str,
        plan: ScanPlan,
        progress: ProgressHook | None = None,
    ) -> None:
        self._scan = scan
        self._progress = progress
        self._reading: PlanReading | None = None
        self.run_key = run_key
        self.plan = plan
        self.details: dict[str, Any] = {}
        """Goes into the receipt; plain values, never a secret."""
        self.receipt: Receipt | None = None
        """Set by the commit."""

    @property
    def adopted(self) -> bool:
        """Whether the plan is another run's; this run's own comes with the next one."""
        return self.plan.run_key != self.run_key

    @property
    def skipped(self) -> bool:
        """Whether there is nothing to do because another run's plan is pending."""
        return self.plan.sequence < 0

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches."""
        return self._read().schema

    def _read(self) -> PlanReading:
        if self.receipt is not None:
            raise ClosedError("this run was committed; begin another one")
        if self._reading is None:
            self._reading = self._scan.open_plan(self.plan, self._progress)
        return self._reading

    def reader(self) -> pa.RecordBatchReader:
        """All rows, from the first one on, batch by batch."""
        if self._reading is not None and self._reading.tally.started:
            self._reading = None
        return self._read().reader()

    def to_arrow(self) -> pa.Table:
        """All rows at once; they must fit into memory."""
        return self.reader().read_all()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(self.reader())

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

    def commit(self) -> Receipt:
        """Commit now rather than at the end of the block; done once, however often called."""
        if self.receipt is None:
            reading = self._reading
            if reading is not None and reading.tally.started and not reading.tally.complete:
                raise IncompleteReadError(self.plan.name, self.plan.plan_id)
            tally = reading.tally if reading is not None and reading.tally.started else None
            self.receipt = self._scan.commit(self.plan, tally=tally, details=self.details)
        return self.receipt
