"""Writers: appends to log tables, upserts and deletes in primary-key tables.

The methods that take rows return at once, or wait while the buffer is full; they may be called
from any thread. Only `flush`, `close` and `WriteResultHandle.wait` are awaited.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from fluss_client.aio.arrow_input import ArrowInput
from fluss_client.aio.channels import AppendChannel, UpsertChannel
from fluss_client.aio.row_input import row_adder
from fluss_client.aio.write_handle import WriteResultHandle
from fluss_client.aio.writer_core import WriterCore
from fluss_client.backend.contract import Backend
from fluss_client.config import Config
from fluss_client.errors import InvalidTargetColumnError, UnsupportedError
from fluss_client.model.table import TableInfo

__all__ = ["AppendWriter", "TableAppend", "TableUpsert", "UpsertWriter", "WriteResultHandle"]


class AppendWriter(WriterCore):
    """Writes to a log table. Obtain it with `TableAppend.create_writer()`.

    `backend` must belong to the loop of `fluss_client.runtime.runtime()`.
    """

    def __init__(self, backend: Backend, table: TableInfo, config: Config) -> None:
        if table.has_primary_key():
            raise UnsupportedError(
                f"{table.table_path} has a primary key: write it with new_upsert(), rows appended "
                "to it would spoil its changelog"
            )
        columns = range(len(table.schema.columns))
        self._arrow = ArrowInput(table.schema, columns)
        super().__init__(backend, table, config, AppendChannel(backend, table, config))
        self._add_row = row_adder(table.schema, columns, self)

    def append(self, row: Any) -> WriteResultHandle:
        """Append a row: a dict by column name, or a list or tuple in column order.

        RowError names a column and value that do not fit; BufferFullError means that the row was
        not taken. A naive datetime for a TIMESTAMP_LTZ column is read as UTC.
        """
        return self._add_row(row)

    def write_arrow(self, table: Any) -> None:
        """Append a `pyarrow.Table`, or anything that exports an Arrow stream (polars, DuckDB).

        A table is checked as a whole before its first row is taken, a stream batch by batch.
        """
        _write_all(self, self._arrow, table)

    def write_arrow_batch(self, batch: pa.RecordBatch) -> WriteResultHandle:
        """Append a `pyarrow.RecordBatch`: all of it, or nothing and an error."""
        return self._write_batch(self._arrow.conform(batch))

    def write_pandas(self, df: Any) -> None:
        """Append a `pandas.DataFrame`; its index is left out, NaN and NaT become null."""
        _write_all(self, self._arrow, self._arrow.from_pandas(df))


class UpsertWriter(WriterCore):
    """Writes to a primary-key table. Obtain it with `TableUpsert.create_writer()`.

    Writes of the same key take effect in the order of the calls. With `target_columns` (positions,
    in the order that lists and tuples give them) only those columns are written.
    """

    def __init__(
        self,
        backend: Backend,
        table: TableInfo,
        config: Config,
        target_columns: Sequence[int] | None = None,
    ) -> None:
        if not table.has_primary_key():
            raise UnsupportedError(
                f"{table.table_path} has no primary key: write it with new_append()"
            )
        schema = table.schema
        targets = _checked_targets(table, target_columns)
        columns = targets or tuple(range(len(schema.columns)))
        keys = [schema.index[name] for name in table.primary_keys]
        self._arrow = ArrowInput(schema, columns)
        self._arrow_keys = ArrowInput(schema, keys)
        channel = UpsertChannel(
            backend, table, config, None if targets is None else sorted(targets)
        )
        super().__init__(backend, table, config, channel)
        self._add_row = row_adder(schema, columns, self, delete=False)
        self._add_delete = row_adder(schema, keys, self, delete=True)

    def upsert(self, row: Any) -> WriteResultHandle:
        """Insert a row or replace the one with its key; errors as in `AppendWriter.append`."""
        return self._add_row(row)

    def delete(self, pk: Any) -> WriteResultHandle:
        """Delete the row with this key: a dict of the primary-key columns, or a list or tuple.

        A writer of some columns sets those to null instead, and the row goes when no other column
        has a value.
        """
        return self._add_delete(pk)

    def write_arrow(self, table: Any) -> None:
        """Upsert a `pyarrow.Table`, or anything that exports an Arrow stream."""
        _write_all(self, self._arrow, table)

    def write_arrow_batch(self, batch: pa.RecordBatch) -> WriteResultHandle:
        """Upsert a `pyarrow.RecordBatch`: all of it is taken, or nothing and an error."""
        return self._write_batch(self._arrow.conform(batch))

    def write_pandas(self, df: Any) -> None:
        """Upsert a `pandas.DataFrame`; its index is left out, NaN and NaT become null."""
        _write_all(self, self._arrow, self._arrow.from_pandas(df))

    def delete_arrow(self, keys: Any) -> WriteResultHandle:
        """Delete by the primary-key columns of a `pyarrow.Table` or `RecordBatch`."""
        batches = [self._arrow_keys.conform(batch) for batch in self._arrow_keys.batches(keys)]
        if not batches:
            batches = [pa.RecordBatch.from_pylist([], self._table.schema.wire)]
        if len(batches) > 1:
            batches = pa.Table.from_batches(batches).combine_chunks().to_batches()
        return self._write_batch(batches[0], np.ones(batches[0].num_rows, bool))


class TableAppend:
    """Builds an `AppendWriter`. Obtain it with `FlussTable.new_append()`."""

    def __init__(self, backend: Backend, table: TableInfo, config: Config) -> None:
        self._backend = backend
        self._table = table
        self._config = config

    def create_writer(self) -> AppendWriter:
        """A writer; UnsupportedError for a primary-key table."""
        return AppendWriter(self._backend, self._table, self._config)


class TableUpsert:
    """Builds an `UpsertWriter`. Obtain it with `FlussTable.new_upsert()`."""

    def __init__(
        self,
        backend: Backend,
        table: TableInfo,
        config: Config,
        target_columns: Sequence[int] | None = None,
    ) -> None:
        self._backend = backend
        self._table = table
        self._config = config
        self._target_columns = target_columns

    def partial_update_by_name(self, columns: Sequence[str]) -> TableUpsert:
        """A builder of writers that write these columns only; the whole key is among them."""
        index = self._table.schema.index
        for name in columns:
            if name not in index:
                raise InvalidTargetColumnError(
                    f"no column '{name}' in {self._table.table_path}; the columns are "
                    f"{', '.join(index)}"
                )
        return self.partial_update_by_index([index[name] for name in columns])

    def partial_update_by_index(self, column_indices: Sequence[int]) -> TableUpsert:
        """The same by position."""
        count = len(self._table.schema.columns)
        for at in column_indices:
            if not 0 <= at < count:
                raise InvalidTargetColumnError(
                    f"no column {at} in {self._table.table_path}, which has {count} columns"
                )
        return TableUpsert(self._backend, self._table, self._config, tuple(column_indices))

    def create_writer(self) -> UpsertWriter:
        """A writer; UnsupportedError for a log table, InvalidTargetColumnError for columns that
        cannot be written alone."""
        return UpsertWriter(self._backend, self._table, self._config, self._target_columns)


def _write_all(writer: WriterCore, arrow: ArrowInput, data: Any) -> None:
    fitted = (arrow.conform(batch) for batch in arrow.batches(data))
    whole = isinstance(data, pa.Table | pa.RecordBatch)
    writer._write_batches(list(fitted) if whole else fitted)


def _checked_targets(
    table: TableInfo, target_columns: Sequence[int] | None
) -> tuple[int, ...] | None:
    """The columns to write, None for all; those that the server counts up are never among them."""
    schema = table.schema
    counted = {schema.index[name] for name in schema.auto_increment_columns}
    if target_columns is None:
        if not counted:
            return None
        return tuple(at for at in range(len(schema.columns)) if at not in counted)
    targets = tuple(dict.fromkeys(target_columns))
    names = {schema.columns[at].name for at in targets}
    missing = [name for name in table.primary_keys if name not in names]
    if missing:
        raise InvalidTargetColumnError(
            f"a partial update of {table.table_path} must write the whole primary key; "
            f"{', '.join(missing)} is missing"
        )
    for at, column in enumerate(schema.columns):
        if at in targets and at in counted:
            raise InvalidTargetColumnError(
                f"column '{column.name}' is counted up by the server and cannot be written"
            )
        if at not in targets and at not in counted and not column.type.nullable:
            raise InvalidTargetColumnError(
                f"column '{column.name}' takes no null, so rows without it cannot be written"
            )
    return targets
