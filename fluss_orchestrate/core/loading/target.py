"""The table that a load writes to, with the columns that its rows need."""

from __future__ import annotations

import pyarrow as pa

from fluss_client.facade.connection import FlussConnection
from fluss_client.model.table import TableInfo, TablePath
from fluss_client.runtime import runtime
from fluss_orchestrate.core.loading.target_columns import TargetColumns
from fluss_orchestrate.core.loading.units import CHANGE_TYPE, Cutter
from fluss_orchestrate.core.schema_policy import SchemaPolicy, columns_to_add


class LoadTarget:
    """One table, as it was last looked up."""

    def __init__(
        self, connection: FlussConnection, table: TablePath | str, policy: SchemaPolicy
    ) -> None:
        self.path = TablePath.parse(table) if isinstance(table, str) else table
        self._connection = connection
        self._policy = policy
        self.info = self._look_up()

    def _look_up(self) -> TableInfo:
        return runtime().call(self._connection.core.backend.get_table_info(self.path))

    def cutter(self, schema: pa.Schema, bucket: int | None = None) -> Cutter:
        """What cuts rows of `schema` for this table; columns are added first where they may be.

        Rows of a table without keys go to `bucket`, or to the buckets in turn.
        """
        info = self._look_up()
        taken = [f for f in schema if not (f.name == CHANGE_TYPE and info.has_primary_key())]
        missing = columns_to_add(
            str(self.path), info.get_column_names(), pa.schema(taken), self._policy
        )
        if missing:
            admin = self._connection.get_admin().result()
            admin.alter_table(self.path, add_columns=missing).result()
            info = self._look_up()
        self.info = info
        names = [f.name for f in taken]
        return Cutter(info, names, bucket, TargetColumns.of(info, names))
