"""A history in a SQL table: every version of each key, with the time in which it was current.

It is a slowly changing dimension of type 2. Beside the columns of the Fluss table, the table has

    valid_from    when the version was committed; null for rows of the first state
    valid_to      when the next change of the key was committed; null for current versions
    is_current    whether the key has this version now
    _generation, _partition_id, _bucket, _offset    where the version comes from

`_generation` is -1 in the first generation of a checkpoint, `_partition_id` is -1 without
partitions, and `_offset` is -1 for rows of the first state. With the key of the Fluss table, these
four are the primary key.

Changes are taken in parts, in the order of their offsets. A part is sorted by key and offset, so
that the versions of a key follow each other; the first of them closes the current version that the
table has. A rebuild keeps the versions of earlier generations, and closes them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss_client import ChangeType
from fluss_orchestrate.core.plan import BucketRange, Generation, ScanPlan
from fluss_orchestrate.core.row_schema import primary_key_of
from fluss_orchestrate.core.sinks.base import ReadPlan, SinkResult, range_plan
from fluss_orchestrate.core.sinks.errors import SinkFormError, SinkSchemaError
from fluss_orchestrate.core.sinks.position import SinkPosition
from fluss_orchestrate.core.sinks.sql_forms.copying import explained_values
from fluss_orchestrate.core.sinks.sql_forms.mirror import CHANGE_TYPE, Fitted, KeyedTable
from fluss_orchestrate.core.sinks.sql_forms.tables import TargetTable
from fluss_orchestrate.core.sinks.sql_types import POSTGRES, SQLITE

if TYPE_CHECKING:
    from sqlalchemy import Connection

TIME = pa.timestamp("ms", "UTC")
VALID_FROM, VALID_TO, IS_CURRENT = "valid_from", "valid_to", "is_current"
PLACE = ("_generation", "_partition_id", "_bucket")
OFFSET = "_offset"
HISTORY_FIELDS = (
    pa.field(VALID_FROM, TIME),
    pa.field(VALID_TO, TIME),
    pa.field(IS_CURRENT, pa.bool_()),
    pa.field("_generation", pa.int64()),
    pa.field("_partition_id", pa.int64()),
    pa.field("_bucket", pa.int32()),
    pa.field(OFFSET, pa.int64()),
)
STAGED_CLOSES = "fluss_staged_closes"
ABSENT = -1
"""The generation, partition id and offset of a row that has none."""
PART_ROWS_MAX, PART_BYTES_MAX = 500_000, 64 << 20
"""How many changes are sorted at once, in memory."""
DIALECTS = (POSTGRES, SQLITE)
_ROW = "__row"


class HistoryPlan:
    """One plan on its way into a history.

    Args:
        target: The table of the database.
        plan: The plan.
        read: Returns the rows of the plan, or of a part of it.
        replace_nul: What replaces U+0000 outside of the key; None refuses the value.
    """

    def __init__(
        self, target: TargetTable, plan: ScanPlan, read: ReadPlan, replace_nul: str | None
    ) -> None:
        self._plan = plan
        self._read = read
        schema = read(plan).schema
        self._columns = pa.schema([f for f in schema if f.name not in plan.metadata_columns])
        self._key = primary_key_of(schema)
        taken = [f.name for f in HISTORY_FIELDS if f.name in self._columns.names]
        if taken:
            raise SinkSchemaError(
                target.label,
                f"a history has its own column {', '.join(taken)}, and the table has it, too: "
                "leave it out with columns=",
                taken,
            )
        if target.dialect not in DIALECTS or not self._key:
            raise SinkFormError(
                target.label, f"a history is one of a key table, in {' or '.join(DIALECTS)}"
            )
        whole = pa.schema([*self._columns, *HISTORY_FIELDS])
        key = (*PLACE, *self._key, OFFSET)
        self._keyed = KeyedTable(target, whole, key, replace_nul)

    @contextmanager
    def opened(self) -> Iterator[HistoryPlan]:
        """Prepare the table."""
        self._keyed.prepare()
        yield self

    def apply(self, connection: Connection, at: SinkPosition | None) -> SinkResult:
        """Add the versions of the plan and close those that they replace.

        Args:
            connection: The connection, in the transaction that has claimed the position.
            at: Where the history was before; None if it was nowhere.

        Raises:
            SinkFormError: The table has rows that are not of this history.
        """
        plan, label = self._plan, self._keyed.target.label
        fitted = self._keyed.fitted(connection)
        fitted.refuse_rows_of_others(at, f"history '{plan.name}'")
        rows = size = versions = 0
        with explained_values(label, plan):
            closed = self._close_left(fitted, at)
            writer = _Versions(fitted, self._columns, self._key)
            for part in plan.ranges:
                for batch in _parts(self._read(range_plan(plan, part))):
                    rows, size = rows + batch.num_rows, size + batch.nbytes
                    place = _place(part, plan.generation)
                    if plan.kind == "state":
                        versions += writer.add_state(batch, place)
                    else:
                        added, ended = writer.add_changes(batch, place)
                        versions, closed = versions + added, closed + ended
        return SinkResult(rows, size, {"table": label, "versions": versions, "closed": closed})

    def _close_left(self, fitted: Fitted, at: SinkPosition | None) -> int:
        """Close the versions of dropped partitions, or of the generation before."""
        import sqlalchemy as sa

        table, plan = fitted.table, self._plan
        if at is None:
            return 0
        which: sa.ColumnElement[bool] = table.c[IS_CURRENT].is_(sa.true())
        if at.generation == plan.generation:
            held = {partition_id for partition_id, _ in at.offsets.offsets}
            gone = [number for number, _ in plan.dropped if number in held]
            if not gone:
                return 0
            which = sa.and_(which, table.c._partition_id.in_(gone))
        when = dt.datetime.fromtimestamp(plan.created_ms / 1000, dt.UTC)
        ended = sa.literal(when, table.c[VALID_TO].type)
        began = table.c[VALID_FROM]
        # Clocks differ: a version never ends before it began.
        last = sa.case((began > ended, began), else_=ended)
        closing = table.update().where(which).values({VALID_TO: last, IS_CURRENT: False})
        return fitted.connection.execute(closing).rowcount


def _place(part: BucketRange, generation: Generation | None) -> tuple[int, int, int]:
    return (
        ABSENT if generation is None else generation.sequence,
        ABSENT if part.partition_id is None else part.partition_id,
        part.bucket,
    )


def _parts(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Return the rows in larger batches, within limits."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in reader:
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= PART_ROWS_MAX or size >= PART_BYTES_MAX:
            yield pa.concat_batches(held)
            held, rows, size = [], 0, 0
    if rows:
        yield pa.concat_batches(held)


class _Versions:
    """Adds versions to a history, within one transaction."""

    def __init__(self, fitted: Fitted, columns: pa.Schema, key: tuple[str, ...]) -> None:
        self._fitted = fitted
        self._columns = columns
        self._key = key
        self._into = fitted.inserting()

    def add_state(self, rows: pa.RecordBatch, place: tuple[int, int, int]) -> int:
        """Add the rows of a state: versions that begin at no known time."""
        count: int = rows.num_rows
        times = pa.nulls(count, TIME)
        offsets = np.full(count, ABSENT, np.int64)
        self._add(rows, times, times, pa.array(np.ones(count, np.bool_)), place, pa.array(offsets))
        return count

    def add_changes(self, rows: pa.RecordBatch, place: tuple[int, int, int]) -> tuple[int, int]:
        """Add the versions that changes begin; return how many, and how many others they end."""
        codes = ChangeType.codes_of(rows.column(CHANGE_TYPE))
        counts = codes != ChangeType.UpdateBefore
        rows, codes = rows.filter(pa.array(counts)), codes[counts]
        order, is_first = self._by_key(rows)
        rows, codes = rows.take(pa.array(order)), codes[order]
        times = rows.column("_timestamp").cast(TIME)
        has_next = np.append(~is_first[1:], False)
        following = pa.array(np.append(np.arange(1, len(order)), 0), mask=~has_next)
        ends = times.take(following)
        ended = self._close(rows, times, is_first, place)
        stays = pa.array(codes != ChangeType.Delete)
        mine = rows.filter(stays)
        self._add(
            mine,
            times.filter(stays),
            ends.filter(stays),
            pa.array(~has_next).filter(stays),
            place,
            mine.column("_offset"),
        )
        return mine.num_rows, ended

    def _by_key(self, rows: pa.RecordBatch) -> tuple[Any, Any]:
        """Return the order by key and offset, and which rows are then the first of their key."""
        count = rows.num_rows
        names = [f"k{at}" for at in range(len(self._key))]
        keys = pa.table(
            [*(rows.column(name) for name in self._key), pa.array(np.arange(count))],
            names=[*names, _ROW],
        )
        by = [(name, "ascending") for name in (*names, _ROW)]
        order = pc.sort_indices(keys, sort_keys=by).to_numpy()
        is_first = np.ones(count, np.bool_)
        if count > 1:
            same = np.ones(count - 1, np.bool_)
            for name in self._key:
                column = rows.column(name).take(pa.array(order))
                same &= pc.equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
            is_first[1:] = ~same
        return order, is_first

    def _close(
        self, rows: pa.RecordBatch, times: pa.Array, is_first: Any, place: tuple[int, int, int]
    ) -> int:
        """End the current versions of the keys that change, at their first change."""
        import sqlalchemy as sa

        if not rows.num_rows:
            return 0
        table, first = self._fitted.table, pa.array(is_first)
        names = [*self._key, VALID_TO]
        keys = rows.select(list(self._key)).filter(first)
        changed = keys.append_column(VALID_TO, times.filter(first))
        with self._fitted.staging(STAGED_CLOSES, names) as staged:
            self._fitted.inserting(staged, names).add(changed)
            at = [table.c[name] == value for name, value in zip(PLACE, place, strict=True)]
            same = [table.c[name] == staged.c[name] for name in self._key]
            closing = (
                table.update()
                .where(*at, *same, table.c[IS_CURRENT].is_(sa.true()))
                .values({VALID_TO: staged.c[VALID_TO], IS_CURRENT: False})
            )
            return self._fitted.connection.execute(closing).rowcount

    def _add(
        self,
        rows: pa.RecordBatch,
        begins: pa.Array,
        ends: pa.Array,
        current: pa.Array,
        place: tuple[int, int, int],
        offsets: pa.Array,
    ) -> None:
        where = [pa.repeat(pa.scalar(value), rows.num_rows) for value in place]
        mine = [rows.column(name) for name in self._columns.names]
        columns = [*mine, begins, ends, current, *where, offsets]
        kinds = [*self._columns, *HISTORY_FIELDS]
        self._into.add(
            pa.RecordBatch.from_arrays(
                [column.cast(kind.type) for column, kind in zip(columns, kinds, strict=True)],
                schema=pa.schema(kinds),
            )
        )
