"""A table to read from and write to."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from fluss_client.aio.lookup import TableLookup
from fluss_client.aio.scan import TableScan
from fluss_client.aio.writer import TableAppend, TableUpsert
from fluss_client.backend.contract import Backend
from fluss_client.config import Config
from fluss_client.model.table import TableInfo, TablePath


class FlussTable:
    """One table as it was when it was opened. Obtain it with `FlussConnection.get_table()`."""

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
        """Build a scan of the log, the changelog or the key state."""
        return TableScan(self._backend, self._table, self._config, self._writer_backend)

    def new_append(self) -> TableAppend:
        """Build a writer for a log table."""
        return TableAppend(self._writer_backend(), self._table, self._config)

    def new_upsert(self) -> TableUpsert:
        """Build a writer for a primary-key table."""
        return TableUpsert(self._writer_backend(), self._table, self._config)

    def new_lookup(self) -> TableLookup:
        """Build a look-up in a primary-key table."""
        return TableLookup(self._backend, self._table, self._config)

    @property
    def arrow_schema(self) -> pa.Schema:
        """The table's columns as Arrow."""
        return self._table.schema.arrow

    def get_table_info(self) -> TableInfo:
        """The table's description."""
        return self._table

    def get_table_path(self) -> TablePath:
        """The table's path."""
        return self._table.table_path

    def has_primary_key(self) -> bool:
        """Whether this is a primary-key table."""
        return self._table.has_primary_key()

    def __repr__(self) -> str:
        return f"FlussTable({self._table.table_path})"
