"""Rows of the input made to fit the table, and those found that do not fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.types as pt

from fluss_client import ChangeType, TableInfo
from fluss_client.engine import ArrowInput
from fluss_client.errors import ChangeTypeError, FlussError, RowError
from fluss_orchestrate.core.loading.units import CHANGE_TYPE, CountOf, Placed, Placer, TargetColumns

SOURCE_FILE = "__fluss_source_file"
SOURCE_BLOCK = "__fluss_source_block"
"""In staged input: the file that a row came from, and the byte where Spark began to read it."""
REJECTED_MAX = 10_000
"""Rows of one unit that may be bad; beyond it is the schema that does not fit, not the rows."""


@dataclass(frozen=True)
class Fitted:
    """The rows of a unit by their destination, and the rows that do not fit."""

    placed: list[Placed]
    rows: int
    bytes: int
    rejected: list[tuple[int, str]] = field(default_factory=list)
    """Place in the unit, and why."""


class Fitter:
    """Renames, casts and places rows of one input schema for one table.

    `columns` says which source column a table column comes from, where the names differ. Text is
    read as numbers, times and so on where `parse_text` says so, which is for CSV. `own_columns` are
    the table's columns that the load has, where an earlier attempt recorded them: a column that was
    added to the table since is not among them.
    """

    def __init__(
        self,
        info: TableInfo,
        schema: pa.Schema,
        columns: Mapping[str, str] | None = None,
        parse_text: bool = False,
        own_columns: Sequence[str] | None = None,
        count_of: CountOf | None = None,
    ) -> None:
        self._info = info
        self.source_of = _sources(info, schema, columns or {}, own_columns)
        """Table column → source column."""
        self._columns = TargetColumns.of(info, self.source_of)
        self.target_columns = self._columns.positions
        """The columns that upserts write, by position; None for all."""
        given = self.target_columns or range(len(info.schema.columns))
        self._input = ArrowInput(info.schema, given)
        self._placer = Placer(info, count_of)
        self._parse_text = parse_text
        self._has_changes = info.has_primary_key() and CHANGE_TYPE in schema.names
        wire = info.schema.wire
        self._targets = {name: wire.field(name).type for name in self.source_of}
        # Casts that no row could pass are found here, before anything is sent.
        self._conform(pa.RecordBatch.from_pylist([], schema=schema))
        self._columns.check(None)

    def _conform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [
            self._parsed(name, batch.column(source)) for name, source in self.source_of.items()
        ]
        return self._input.conform(pa.RecordBatch.from_arrays(arrays, names=list(self.source_of)))

    def _parsed(self, name: str, column: pa.Array) -> pa.Array:
        target = self._targets[name]
        if not self._parse_text or not _is_text(column.type) or _is_text(target):
            return column
        try:
            return column.cast(target)
        except pa.ArrowException as error:
            raise RowError(f"column '{name}' cannot be read from text: {error}") from error

    def _place(self, batch: pa.RecordBatch, bucket: int) -> list[Placed]:
        changes = None
        if self._has_changes:
            changes = ChangeType.codes_of(batch.column(CHANGE_TYPE), CHANGE_TYPE)
        self._columns.check(changes)
        return self._placer.place(self._conform(batch), changes, bucket)

    def fit(self, batch: pa.RecordBatch, bucket: int, reject: bool) -> Fitted:
        """Return the rows for the table.

        Raises:
            RowError: A row does not fit, unless `reject` is set.
        """
        try:
            return Fitted(self._place(batch, bucket), batch.num_rows, batch.nbytes)
        except (FlussError, pa.ArrowException):
            bad = self._bad_rows(batch, bucket)
            rejected = [next(bad)] if not reject else list(bad)
        if not reject:
            at, why = rejected[0]
            raise BadRowError(at, why)
        gone = {at for at, _ in rejected}
        kept = batch.take(pa.array([at for at in range(batch.num_rows) if at not in gone]))
        return Fitted(self._place(kept, bucket), kept.num_rows, kept.nbytes, rejected)

    def _bad_rows(self, batch: pa.RecordBatch, bucket: int) -> Iterator[tuple[int, str]]:
        """Return the rows that do not fit, found by halving."""
        found = 0
        stack = [(0, batch.num_rows)]
        while stack:
            start, stop = stack.pop()
            try:
                self._place(batch.slice(start, stop - start), bucket)
            except (FlussError, pa.ArrowException) as error:
                if stop - start > 1:
                    middle = (start + stop) // 2
                    stack += [(middle, stop), (start, middle)]
                    continue
                found += 1
                if found > REJECTED_MAX:
                    raise RowError(
                        f"more than {REJECTED_MAX} rows in one place do not fit, the last because "
                        f"{error}: the input is of another kind than the table"
                    ) from error
                yield start, _reason(error)


def _reason(error: Exception) -> str:
    """Return why a single row does not fit, without the row number in the error."""
    if isinstance(error, ChangeTypeError):
        shown = "null" if error.value is None else repr(error.value)
        return f"column '{error.column}' holds {shown}, which is not a change type such as +I or -D"
    return str(error)


class BadRowError(RowError):
    """A row does not fit; `at` is its position among the given rows."""

    def __init__(self, at: int, why: str) -> None:
        super().__init__(why)
        self.at = at


def _sources(
    info: TableInfo,
    schema: pa.Schema,
    columns: Mapping[str, str],
    own_columns: Sequence[str] | None,
) -> dict[str, str]:
    table = info.table_path
    names = info.get_column_names()
    for name, source in columns.items():
        if name not in names:
            raise RowError(f"columns: {table} has no column '{name}'; it has {names}")
        if source not in schema.names:
            raise RowError(f"columns: the input has no column '{source}'; it has {schema.names}")
    own = names if own_columns is None else own_columns
    wanted = {name: columns.get(name, name) for name in own}
    found = {name: source for name, source in wanted.items() if source in schema.names}
    technical = {SOURCE_FILE, SOURCE_BLOCK}
    technical |= {CHANGE_TYPE} if info.has_primary_key() else set()
    left = [n for n in schema.names if n not in found.values() and n not in technical]
    if left:
        raise RowError(
            f"the input has columns that {table} does not have: {left}; map them by columns, leave "
            "them out by a transform, or add them to the table"
        )
    return found


def _is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind))
