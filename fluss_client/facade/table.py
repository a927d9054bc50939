"""A table as the guides use it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from fluss_client.aio.table import FlussTable as AsyncTable
from fluss_client.facade.handle import Handle
from fluss_client.facade.lookup import TableLookup
from fluss_client.facade.scan import TableScan
from fluss_client.facade.writer import AppendWriter, TableAppend, TableUpsert
from fluss_client.model.table import TableInfo, TablePath


class FlussTable:
    """One table as it was when it was opened."""

    def __init__(self, core: AsyncTable) -> None:
        self._core = core

    def new_scan(self) -> TableScan:
        """Build a scan of the log, the changelog or the key state."""
        return TableScan(self._core.new_scan())

    def new_append(self) -> TableAppend:
        """Build a writer for a log table."""
        return TableAppend(self._core.new_append())

    def new_append_writer(self) -> Handle[AppendWriter]:
        """The older guide's way to a writer for a log table."""
        return Handle.of(self.new_append().create_writer())

    def new_upsert(self, columns: Sequence[str] | None = None) -> TableUpsert:
        """Build a writer for a primary-key table; with `columns`, one that updates only those.

        The older guide uses what this returns as the writer itself, which works too.
        """
        builder = TableUpsert(self._core.new_upsert())
        return builder if columns is None else builder.partial_update_by_name(columns)

    def new_lookup(self) -> TableLookup:
        """Build a look-up; the older guide uses what this returns as the lookuper itself."""
        return TableLookup(self._core.new_lookup())

    @property
    def arrow_schema(self) -> pa.Schema:
        """The table's columns as Arrow."""
        return self._core.arrow_schema

    def get_table_info(self) -> TableInfo:
        """The table's description."""
        return self._core.get_table_info()

    def get_table_path(self) -> TablePath:
        """The table's path."""
        return self._core.get_table_path()

    def has_primary_key(self) -> bool:
        """Whether this is a primary-key table."""
        return self._core.has_primary_key()

    def __repr__(self) -> str:
        return repr(self._core)
