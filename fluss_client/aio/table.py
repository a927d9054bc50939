"""A table to read from and write to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from fluss_client.aio.lookup.lookuper import TableLookup
from fluss_client.aio.scanning.scan import TableScan
from fluss_client.aio.writing.writer import AppendWriter, TableAppend, TableUpsert
from fluss_client.backend.contract import Backend
from fluss_client.config import Config
from fluss_client.model.table import TableInfo, TablePath


class FlussTable:
    """A table, with the schema that it had when it was opened.

    Obtain it with `FlussConnection.get_table()`; do not call the constructor.
    """

    def __init__(
        self,
        backend: Backend,
        writer_backend: Callable[[], Backend],
        table: TableInfo,
        config: Config,
    ) -> None:
        self._backend = backend
        self._writer_backend = writer_backend
        self._table = table
        self._config = config

    def new_scan(self) -> TableScan:
        """Return a builder of scans of the log, the changelog or the key state."""
        return TableScan(self._backend, self._table, self._config, self._writer_backend)

    def new_append(self) -> TableAppend:
        """Return a builder of writers for a log table."""
        return TableAppend(self._writer_backend(), self._table, self._config)

    async def new_append_writer(self) -> AppendWriter:
        """Create a writer for a log table. The older guide's form of `new_append()`.

        Raises:
            UnsupportedError: The table has a primary key.
        """
        return self.new_append().create_writer()

    def new_upsert(self, columns: Sequence[str] | None = None) -> TableUpsert:
        """Return a builder of writers for a primary-key table.

        Args:
            columns: Write these columns only, as `partial_update_by_name` does. None for all.
        """
        builder = TableUpsert(self._writer_backend(), self._table, self._config)
        return builder if columns is None else builder.partial_update_by_name(columns)

    def new_lookup(self) -> TableLookup:
        """Return a builder of look-ups in a primary-key table.

        Raises:
            NonPrimaryKeyTableError: The table has no primary key.
        """
        return TableLookup(self._backend, self._table, self._config)

    @property
    def arrow_schema(self) -> pa.Schema:
        """Return the columns of the table as an Arrow schema."""
        return self._table.schema.arrow

    def get_table_info(self) -> TableInfo:
        """Return the description of the table, as it was when the table was opened."""
        return self._table

    def get_table_path(self) -> TablePath:
        """Return the path of the table."""
        return self._table.table_path

    def has_primary_key(self) -> bool:
        """Return whether the table has a primary key."""
        return self._table.has_primary_key()

    def __repr__(self) -> str:
        return f"FlussTable({self._table.table_path})"
