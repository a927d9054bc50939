"""Rows for any function that takes an Arrow reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from fluss_orchestrate.core.checkpoints.events import CALLER
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.sink_errors import SinkError
from fluss_orchestrate.core.sinks.base import ReadPlan, SinkResult


class FunctionSink:
    """Calls `function(reader)` with the rows of a plan, **at least once**.

    Only the function knows what it did before it failed or died, so its rows may be given again:
    it must not mind that, or keep the plan's id itself (`pass_plan=True` calls
    `function(reader, plan)`). It must read to the end; a reader that was left half read is an
    error, because the rest would be lost.

    `identity` names what the function writes to, such as a task or an asset: a checkpoint then
    belongs to that name. Functions without one all have the same.
    """

    exactly_once = False
    needs_change_type = False

    def __init__(
        self, function: Callable[..., Any], *, pass_plan: bool = False, identity: str = ""
    ) -> None:
        self.identity = f"function:{identity}" if identity else CALLER
        self._function = function
        self._pass_plan = pass_plan

    def already_done(self, plan: ScanPlan) -> SinkResult | None:
        """Never known."""
        return None

    def write(self, plan: ScanPlan, read: ReadPlan) -> SinkResult:
        """Call the function with one reader over the whole plan."""
        counted = _Counted(read(plan))
        reader = pa.RecordBatchReader.from_batches(counted.schema, counted.batches())
        if self._pass_plan:
            self._function(reader, plan)
        else:
            self._function(reader)
        if not counted.finished:
            # What the function did not ask for yet; an empty rest is no reason to complain.
            left = sum(batch.num_rows for batch in reader)
            if left:
                raise SinkError(
                    getattr(self._function, "__name__", "function"),
                    f"it left {left} rows of plan {plan.plan_id} unread; read the reader to its "
                    "end, or plan less with max_offsets",
                )
        return SinkResult(counted.rows, counted.nbytes)


class _Counted:
    def __init__(self, reader: pa.RecordBatchReader) -> None:
        self._reader = reader
        self.schema = reader.schema
        self.rows = 0
        self.nbytes = 0
        self.finished = False

    def batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._reader:
            self.rows += batch.num_rows
            self.nbytes += batch.nbytes
            yield batch
        self.finished = True
