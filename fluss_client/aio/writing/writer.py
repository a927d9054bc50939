"""The writers of the asynchronous API: append to log tables, upsert and delete in key tables.

The methods that accept rows return at once, or block while the buffer is full; they may be called
from any thread. Only `flush`, `close` and `WriteResultHandle.wait` are awaited.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from fluss_client.aio.writing.arrow_input import ArrowInput
from fluss_client.aio.writing.channels import AppendChannel, UpsertChannel
from fluss_client.aio.writing.results import WriteResultHandle
from fluss_client.aio.writing.row_input import row_adder
from fluss_client.aio.writing.writer_core import WriterCore
from fluss_client.backend.contract import Backend
from fluss_client.config import Config
from fluss_client.errors import InvalidTargetColumnError, UnsupportedError
from fluss_client.model.table import TableInfo

__all__ = ["AppendWriter", "TableAppend", "TableUpsert", "UpsertWriter", "WriteResultHandle"]

RowLike = Mapping[str, Any] | Sequence[Any]
"""A row: a mapping by column name, or values in column order."""


class AppendWriter(WriterCore):
    """Writes to a log table. Obtain it with `TableAppend.create_writer()`.

    Args:
        backend: Where the table is. It must belong to the loop of `fluss_client.runtime.runtime()`.
        table: A table without a primary key.
        config: Settings of the writer.

    Raises:
        UnsupportedError: The table has a primary key.
    """

    def __init__(self, backend: Backend, table: TableInfo, config: Config) -> None:
        # `backend` must belong to the loop of `fluss_client.runtime.runtime()`.
        if table.has_primary_key():
            raise UnsupportedError(
                f"{table.table_path} has a primary key: write it with new_upsert(), appended "
                "rows would corrupt its changelog"
            )
        columns = range(len(table.schema.columns))
        self._arrow = ArrowInput(table.schema, columns)
        super().__init__(backend, table, config, AppendChannel(backend, table, config))
        self._add_row = row_adder(table.schema, columns, self)

    def append(self, row: RowLike) -> WriteResultHandle:
        """Append one row.

        Args:
            row: A dict by column name, or a list or tuple in column order. A dict may leave out
                nullable columns. A datetime without a zone is UTC in a TIMESTAMP_LTZ column.

        Returns:
            A handle for the acknowledgement. Rows that are sent together share it.

        Raises:
            RowError: A value does not fit its column. Nothing of the row is written.
            BufferFullError: There was no room in the buffer within
                `writer.buffer.wait-timeout-ms`. The row was not accepted.
            ClosedError: The writer was closed.
        """
        return self._add_row(row)

    def write_arrow(self, table: Any) -> None:
        """Append a table of Arrow data.

        A table is checked as a whole before its first row is accepted, a stream batch by batch.

        Args:
            table: A `pyarrow.Table`, or any object that exports an Arrow stream (polars, DuckDB).

        Raises:
            RowError: A column does not fit the table. The message says how many rows were accepted
                before.
            BufferFullError: There was no room in the buffer for the next rows.
        """
        _write_all(self, self._arrow, table)

    def write_arrow_batch(self, batch: pa.RecordBatch) -> WriteResultHandle:
        """Append a `pyarrow.RecordBatch` as a whole.

        Args:
            batch: The rows; a column that the batch lacks is null.

        Returns:
            A handle for the acknowledgement of all rows of the batch.

        Raises:
            RowError: A column does not fit the table. No row was accepted.
            BufferFullError: There was no room in the buffer. No row was accepted.
        """
        return self._write_batch(self._arrow.conform(batch))

    def write_pandas(self, df: Any) -> None:
        """Append a `pandas.DataFrame` without its index; NaN and NaT become null.

        Args:
            df: The rows, with the columns of the table.

        Raises:
            RowError: A column does not fit the table.
            MissingExtraError: pandas is not installed.
        """
        _write_all(self, self._arrow, self._arrow.from_pandas(df))


class UpsertWriter(WriterCore):
    """Writes to a primary-key table. Obtain it with `TableUpsert.create_writer()`.

    Writes of the same key take effect in the order of the calls.

    Args:
        backend: Where the table is. It must belong to the loop of `fluss_client.runtime.runtime()`.
        table: A table with a primary key.
        config: Settings of the writer.
        target_columns: The positions of the columns to write, in the order in which lists and
            tuples give them; None for all columns.

    Raises:
        UnsupportedError: The table has no primary key.
        InvalidTargetColumnError: The target columns cannot be written without the others.
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

    def upsert(self, row: RowLike) -> WriteResultHandle:
        """Insert a row, or replace the row with its key.

        Args:
            row: A dict by column name, or a list or tuple in column order.

        Returns:
            A handle for the acknowledgement. Rows that are sent together share it.

        Raises:
            RowError: A value does not fit its column. Nothing of the row is written.
            BufferFullError: There was no room in the buffer. The row was not accepted.
            ClosedError: The writer was closed.
        """
        return self._add_row(row)

    def delete(self, pk: RowLike) -> WriteResultHandle:
        """Delete the row with this key.

        A writer with target columns sets these columns to null instead; the row is deleted when no
        other column has a value.

        Args:
            pk: A dict of the primary-key columns, or a list or tuple of their values.

        Returns:
            A handle for the acknowledgement.

        Raises:
            RowError: A value does not fit its column.
            BufferFullError: There was no room in the buffer. The delete was not accepted.
        """
        return self._add_delete(pk)

    def write_arrow(self, table: Any) -> None:
        """Upsert a table of Arrow data; see `AppendWriter.write_arrow`.

        Args:
            table: A `pyarrow.Table`, or any object that exports an Arrow stream.

        Raises:
            RowError: A column does not fit the table.
            BufferFullError: There was no room in the buffer for the next rows.
        """
        _write_all(self, self._arrow, table)

    def write_arrow_batch(self, batch: pa.RecordBatch) -> WriteResultHandle:
        """Upsert a `pyarrow.RecordBatch` as a whole.

        Args:
            batch: The rows to insert or update.

        Returns:
            A handle for the acknowledgement of all rows of the batch.

        Raises:
            RowError: A column does not fit the table. No row was accepted.
            BufferFullError: There was no room in the buffer. No row was accepted.
        """
        return self._write_batch(self._arrow.conform(batch))

    def write_pandas(self, df: Any) -> None:
        """Upsert a `pandas.DataFrame` without its index; NaN and NaT become null.

        Args:
            df: The rows to insert or update.

        Raises:
            RowError: A column does not fit the table.
            MissingExtraError: pandas is not installed.
        """
        _write_all(self, self._arrow, self._arrow.from_pandas(df))

    def delete_arrow(self, keys: Any) -> WriteResultHandle:
        """Delete the rows with these keys.

        Args:
            keys: A `pyarrow.Table` or `RecordBatch` of the primary-key columns.

        Returns:
            A handle for the acknowledgement of all deletes.

        Raises:
            RowError: A column does not fit the primary key.
        """
        batches = [self._arrow_keys.conform(batch) for batch in self._arrow_keys.batches(keys)]
        if not batches:
            batches = [pa.RecordBatch.from_pylist([], self._table.schema.wire)]
        if len(batches) > 1:
            batches = pa.Table.from_batches(batches).combine_chunks().to_batches()
        return self._write_batch(batches[0], np.ones(batches[0].num_rows, bool))


class TableAppend:
    """Builds an `AppendWriter`.

    Obtain it with `FlussTable.new_append()`; do not call the constructor.
    """

    def __init__(self, backend: Backend, table: TableInfo, config: Config) -> None:
        self._backend = backend
        self._table = table
        self._config = config

    def create_writer(self) -> AppendWriter:
        """Return a new writer.

        Raises:
            UnsupportedError: The table has a primary key.
        """
        return AppendWriter(self._backend, self._table, self._config)


class TableUpsert:
    """Builds an `UpsertWriter`.

    Obtain it with `FlussTable.new_upsert()`; do not call the constructor.
    """

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
        """Return a builder of writers that write only some columns.

        Args:
            columns: Their names; all columns of the primary key must be among them.

        Raises:
            InvalidTargetColumnError: A column does not exist.
        """
        index = self._table.schema.index
        for name in columns:
            if name not in index:
                raise InvalidTargetColumnError(
                    f"no column '{name}' in {self._table.table_path}; the columns are "
                    f"{', '.join(index)}"
                )
        return self.partial_update_by_index([index[name] for name in columns])

    def partial_update_by_index(self, column_indices: Sequence[int]) -> TableUpsert:
        """Return a builder of writers that write only some columns.

        Args:
            column_indices: Their positions; all columns of the primary key must be among them.

        Raises:
            InvalidTargetColumnError: A column does not exist.
        """
        count = len(self._table.schema.columns)
        for at in column_indices:
            if not 0 <= at < count:
                raise InvalidTargetColumnError(
                    f"no column {at} in {self._table.table_path}, which has {count} columns"
                )
        return TableUpsert(self._backend, self._table, self._config, tuple(column_indices))

    def create_writer(self) -> UpsertWriter:
        """Return a new writer.

        Raises:
            UnsupportedError: The table has no primary key.
            InvalidTargetColumnError: The columns cannot be written without the others.
        """
        return UpsertWriter(self._backend, self._table, self._config, self._target_columns)


def _write_all(writer: WriterCore, arrow: ArrowInput, data: Any) -> None:
    conformed = (arrow.conform(batch) for batch in arrow.batches(data))
    # A table is in memory already, so all of it is checked before the first row is accepted.
    whole = isinstance(data, pa.Table | pa.RecordBatch)
    writer._write_batches(list(conformed) if whole else conformed)


def _checked_targets(
    table: TableInfo, target_columns: Sequence[int] | None
) -> tuple[int, ...] | None:
    """Return the columns to write, None for all; auto-increment columns are never among them."""
    schema = table.schema
    generated = {schema.index[name] for name in schema.auto_increment_columns}
    if target_columns is None:
        if not generated:
            return None
        return tuple(at for at in range(len(schema.columns)) if at not in generated)
    targets = tuple(dict.fromkeys(target_columns))
    names = {schema.columns[at].name for at in targets}
    missing = [name for name in table.primary_keys if name not in names]
    if missing:
        raise InvalidTargetColumnError(
            f"a partial update of {table.table_path} must write the whole primary key; "
            f"{', '.join(missing)} is missing"
        )
    for at, column in enumerate(schema.columns):
        if at in targets and at in generated:
            raise InvalidTargetColumnError(
                f"column '{column.name}' is generated by the server (auto-increment) and cannot "
                "be written"
            )
        if at not in targets and at not in generated and not column.type.nullable:
            raise InvalidTargetColumnError(
                f"column '{column.name}' is NOT NULL, so rows without it cannot be written"
            )
    return targets
