"""Rows into a table, once for each task run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fluss_orchestrate.airflow.callables import call_with_context
from fluss_orchestrate.airflow.flows import Flow, Node, copies, named_table, path_node, table_node
from fluss_orchestrate.airflow.operators.base import FlussOperator
from fluss_orchestrate.airflow.run_keys import run_key

if TYPE_CHECKING:
    from airflow.sdk import Context

    from fluss_client import FlussConnection


class FlussWriteOperator(FlussOperator):
    """Append rows to a log table, or upsert them into a key table, exactly once.

    `rows` is a path to Parquet, ORC, Arrow, CSV or JSON files, a list of dictionaries (such as an
    upstream task's return value), anything that offers an Arrow stream, or a function that
    returns one of these; the function gets what it names of Airflow's context.

    Every try of a task run writes under the same id, so a retry, a clear or a second process
    leaves each row once. A try with other rows, or the same in another order, is an error: give
    such rows a `load_id` of their own.
    """

    template_fields = ("fluss_conn_id", "table", "rows", "load_id", "format")

    def __init__(
        self,
        *,
        table: str,
        rows: Any,
        format: str | None = None,  # noqa: A002
        load_id: str | None = None,
        schema_policy: str = "error",
        create_partitions: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        # Airflow calls a function in a template field while it renders, so it stands apart.
        self.rows = None if callable(rows) else rows
        self.make_rows = rows if callable(rows) else None
        self.format = format
        self.load_id = load_id
        self.schema_policy = schema_policy
        self.create_partitions = create_partitions

    def work(self, context: Context) -> dict[str, Any]:
        """Load the rows; the receipt."""
        from fluss_orchestrate.core.loading import load_rows

        client = self.hook.get_conn()
        receipt = load_rows(
            client,
            self.table,
            self._rows(client, context),
            self.load_id or run_key(context),
            schema_policy=self.schema_policy,
            create_partitions=self.create_partitions,
        )
        self.log.info("%s: %d rows written", self.table, receipt.rows)
        self.hook.report_write(self.table, receipt)
        table = table_node(client, self.table)
        files = self._files()
        self.flow = Flow(files, (table,), receipt, copies(table) if files else ())
        return receipt.to_json()

    def expected_flow(self) -> Flow:
        """The files, where there are some, and the table."""
        return Flow(self._files(), (named_table(self.hook.named_alias, self.table),))

    def _files(self) -> tuple[Node, ...]:
        return (path_node(self.rows),) if isinstance(self.rows, str) else ()

    def _rows(self, client: FlussConnection, context: Context) -> Any:
        from fluss_orchestrate.core.loading import open_rows

        rows = self.rows
        if self.make_rows is not None:
            rows = call_with_context(self.make_rows, (), context)
        if isinstance(rows, str):
            return open_rows(rows, self.format)
        if isinstance(rows, Mapping):
            rows = [rows]
        if isinstance(rows, Sequence):
            return _table_of(client, self.table, rows)
        return rows


def _table_of(client: FlussConnection, table: str, rows: Sequence[Mapping[str, Any]]) -> Any:
    """Dictionaries as an Arrow table with the types that the target has."""
    import pyarrow as pa

    from fluss_client.errors import RowError
    from fluss_client.model.table import TablePath

    target = client.get_table(TablePath.parse(table)).result().arrow_schema
    given = {name: None for row in rows for name in row}
    unknown = [name for name in given if name not in target.names]
    if unknown:
        raise RowError(f"{table} has no column {', '.join(unknown)}; it has {target.names}")
    schema = pa.schema([target.field(name) for name in target.names if name in given])
    try:
        return pa.Table.from_pylist([dict(row) for row in rows], schema=schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise RowError(f"{table}: the rows do not fit its columns: {error}") from error
