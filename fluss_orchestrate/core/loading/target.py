"""The table that a load writes to, with the columns that its rows need."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from fluss_client.errors import RowError
from fluss_client.facade.connection import FlussConnection
from fluss_client.model.table import TableInfo, TablePath
from fluss_client.runtime import runtime
from fluss_orchestrate.core.checkpoints.fluss_rows import MERGE_ENGINE
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
        return Cutter(info, names, bucket, target_columns(info, names))


def target_columns(info: TableInfo, names: Collection[str]) -> list[int] | None:
    """The columns that a load of rows with these columns writes, by position; None for all.

    A key table keeps what it has in the other columns, by a partial update. With the first_row
    merge engine there is nothing to keep: no upsert changes a row that is there.

    Raises:
        RowError: The rows lack columns, and the server takes no partial updates of this table.
    """
    schema = info.schema
    missing = [c.name for c in schema.columns if c.name not in names]
    engine = info.properties.get(MERGE_ENGINE, "").lower()
    if not info.has_primary_key() or not missing or engine == "first_row":
        return None
    keys = [name for name in info.primary_keys if name in missing]
    if keys:
        raise RowError(f"the rows lack {', '.join(keys)} of the primary key of {info.table_path}")
    counted = schema.auto_increment_columns
    strict = [
        c.name
        for c in schema.columns
        if not (c.type.nullable or c.name in info.primary_keys or c.name in counted)
    ]
    why = ""
    if engine == "versioned":
        why = "its merge engine is versioned"
    elif strict:
        why = f"it has columns that are NOT NULL beside its key ({', '.join(strict)})"
    if why:
        raise RowError(
            f"the rows lack {', '.join(missing)} of {info.table_path}, whose values they must not "
            f"set to null, and the server takes no partial updates of this table: {why}. Give the "
            "rows all columns; null in them is written as null"
        )
    return [at for at, c in enumerate(schema.columns) if c.name in names]
