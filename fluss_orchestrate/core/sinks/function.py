"""A function as a sink: it gets the rows of a plan as an Arrow reader, at least once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from fluss_orchestrate.core.checkpoints.events import CALLER
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.sinks.base import ReadPlan, SinkResult
from fluss_orchestrate.core.sinks.errors import SinkError


class FunctionSink:
    """Calls `function(reader)` with the rows of a plan, **at least once**.

    Only the function knows what it did before it failed or its process died, so it may get the same
    rows again. Either it can handle that, or it stores the plan's id with the rows.

    Args:
        function: Gets an Arrow reader, and must read it to the end. If it does not, `write` raises,
            because the remaining rows would be lost.
        pass_plan: Whether the function is called as `function(reader, plan)`.
        identity: What the function writes to, such as a task or an asset. A checkpoint belongs to
            this name. All functions without an identity share one.
    """

    exactly_once = False
    form = None

    def __init__(
        self, function: Callable[..., Any], *, pass_plan: bool = False, identity: str = ""
    ) -> None:
        self.identity = f"function:{identity}" if identity else CALLER
        self._function = function
        self._pass_plan = pass_plan

    def write(self, plan: ScanPlan, read: ReadPlan) -> SinkResult:
        """Call the function with one reader of the whole plan.

        Args:
            plan: The plan.
            read: Returns a reader of the rows of a part of the plan.

        Raises:
            SinkError: The function did not read all rows.
        """
        counted = _Counted(read(plan))
        reader = pa.RecordBatchReader.from_batches(counted.schema, counted.batches())
        if self._pass_plan:
            self._function(reader, plan)
        else:
            self._function(reader)
        if not counted.finished:
            # A function may stop before the reader says that it has ended. This is an error only
            # if rows were left.
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
