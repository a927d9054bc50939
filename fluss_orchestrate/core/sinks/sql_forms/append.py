"""Rows that are added to a SQL table as they come."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.sinks.base import ReadPlan, SinkResult
from fluss_orchestrate.core.sinks.errors import SinkError, SinkValueError
from fluss_orchestrate.core.sinks.position import SinkPosition
from fluss_orchestrate.core.sinks.sql_forms.copying import WITHOUT_THE_COLUMN, refused_rows
from fluss_orchestrate.core.sinks.sql_forms.tables import TargetTable
from fluss_orchestrate.core.sinks.sql_types import SqlValues, UnfitValueError, sql_type
from fluss_orchestrate.core.sql_engine import reason

if TYPE_CHECKING:
    from sqlalchemy import Connection

ROWS_PER_STATEMENT = 2_000


class AppendPlan:
    """One plan whose rows are added to the table."""

    def __init__(
        self, target: TargetTable, plan: ScanPlan, read: ReadPlan, replace_nul: str | None
    ) -> None:
        self._target = target
        self._plan = plan
        self._reader = read(plan)
        self._replace_nul = replace_nul

    @contextmanager
    def opened(self) -> Iterator[Self]:
        """Create or extend the table."""
        columns, dialect = self._reader.schema, self._target.dialect
        kinds = {f.name: sql_type(f.type, dialect) for f in columns}
        self._target.ensure(self._target.described(kinds))
        present = self._target.extend(columns)
        self._values = SqlValues(columns, dialect, present, self._replace_nul)
        self._into = self._target.described(self._values.bound_types())
        yield self

    def apply(self, connection: Connection, at: SinkPosition | None) -> SinkResult:
        """Insert all rows."""
        rows = size = 0
        for part in _chunks(self._reader):
            self._insert(connection, part, rows)
            rows, size = rows + part.num_rows, size + part.nbytes
        return SinkResult(rows, size, {"table": self._target.label})

    def _insert(self, connection: Connection, part: pa.RecordBatch, before: int) -> None:
        """Insert some rows of the plan; `before` rows of it were inserted earlier."""
        import sqlalchemy as sa

        plan, label = self._plan, self._target.label
        try:
            connection.execute(self._into.insert(), self._values.rows(part))
            return
        except UnfitValueError as unfit:
            row, column, kind, way_out = before + unfit.row, unfit.column, unfit.kind, unfit.way_out
            failure: SinkError = SinkValueError(
                label,
                f"row {row} of plan {plan.plan_id}{_place(plan, row)} has in column '{column}' "
                f"{kind}; nothing of the plan was written. Ways out: "
                f"{'; or '.join(filter(None, (way_out, WITHOUT_THE_COLUMN)))}",
                column,
                row,
                kind,
            )
        except sa.exc.OperationalError:
            raise  # The connection, a lock or the disk failed: the rows are not the reason.
        except sa.exc.SQLAlchemyError as error:
            failure = self._refused(before, part.num_rows, reason(error))
        except (ValueError, OverflowError, TypeError) as error:
            failure = self._refused(before, part.num_rows, type(error).__name__)
        raise failure

    def _refused(self, before: int, count: int, why: str) -> SinkValueError:
        which = f"rows {before} to {before + count - 1}{_place(self._plan, before)}"
        return refused_rows(self._target.label, self._plan, which, why)


def _chunks(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    for batch in reader:
        for start in range(0, batch.num_rows, ROWS_PER_STATEMENT):
            yield batch.slice(start, ROWS_PER_STATEMENT)


def _place(plan: ScanPlan, row: int) -> str:
    """Return the bucket and offset of a row, as text; empty if rows are not offsets of a log."""
    if plan.kind != "log":
        return ""
    for part in plan.ranges:
        if row < part.count:
            of = f" of partition {part.partition}" if part.partition else ""
            return f" (bucket {part.bucket}{of}, offset {part.start + row})"
        row -= part.count
    return ""
