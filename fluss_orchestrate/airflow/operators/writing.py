"""Rows into a table, once for each task run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fluss_orchestrate.airflow.flows import Flow, Node, copies, named_table, path_node, table_node
from fluss_orchestrate.airflow.operators.base import FlussOperator
from fluss_orchestrate.airflow.receipts import parsed_text
from fluss_orchestrate.airflow.run_context import call_with_context, run_key
from fluss_orchestrate.airflow.task_log import Progress, log_load

if TYPE_CHECKING:
    from airflow.sdk import Context

    from fluss_client import FlussConnection


class FlussWriteOperator(FlussOperator):
    """Append rows to a log table, or upsert them into a key table, exactly once.

    Every try of a task run writes under the same id, so a retry, a clear or a second process
    leaves each row once. A try with other rows, or the same in another order, is an error. In a
    key table, columns that the rows do not have keep their values, and a column `_change_type`
    says which rows are deletes; such rows need all columns.

    Args:
        table: The table, as `database.table`.
        rows: A path to Parquet, ORC, Arrow, CSV or JSON files, a list of dictionaries (such as an
            upstream task's return value), anything that offers an Arrow stream, or a function that
            returns one of these. The function gets those values of Airflow's context that it has
            parameters for. A template that renders to the text of a list is read as that list.
        format: The format of the files, if their names do not tell.
        load_id: The id of the load; the run key of the task run by default.
        schema_policy: What happens with columns that the table lacks: `error` or `add_columns`.
        create_partitions: Whether partitions that do not exist are created.
        **kwargs: `fluss_conn_id`, and the arguments of Airflow's `BaseOperator`.
    """

    template_fields = ("fluss_conn_id", "table", "rows", "load_id", "format")
    data_fields = ("rows",)

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
        """Load the rows, and return the receipt.

        Args:
            context: The context of the Airflow task.
        """
        from fluss_orchestrate.core.loading import load_rows

        client = self.hook.get_conn()
        progress = Progress(self.log, "sent")
        receipt = load_rows(
            client,
            self.table,
            self._rows(client, context),
            run_key(context) if self.load_id is None else self.load_id,
            schema_policy=self.schema_policy,
            create_partitions=self.create_partitions,
            progress=progress.sent,
        )
        log_load(self.log, receipt, progress, self.table)
        self.hook.report_write(self.table, receipt)
        table = table_node(client, self.table)
        files = self._files()
        self.flow = Flow(files, (table,), receipt, copies(table) if files else ())
        return receipt.to_json()

    def expected_flow(self) -> Flow:
        """Return the files, if there are some, and the table."""
        return Flow(self._files(), (named_table(self.hook.named_alias, self.table),))

    def _files(self) -> tuple[Node, ...]:
        if not isinstance(self.rows, str) or _is_text_of_rows(self.rows):
            return ()
        return (path_node(self.rows),)

    def _rows(self, client: FlussConnection, context: Context) -> Any:
        from fluss_orchestrate.core.loading import open_rows

        rows = self.rows
        if self.make_rows is not None:
            rows = call_with_context(self.make_rows, (), context)
        if isinstance(rows, str) and _is_text_of_rows(rows):
            rows = _rows_of_text(rows)
        if isinstance(rows, str):
            return open_rows(rows, self.format)
        if isinstance(rows, Mapping):
            rows = [rows]
        if isinstance(rows, Sequence):
            return _table_of(client, self.table, rows)
        return rows


def _is_text_of_rows(text: str) -> bool:
    """Return whether a template made text of a list or a mapping; no path begins like that."""
    return text.lstrip()[:1] in ("[", "{")


def _rows_of_text(text: str) -> Any:
    from fluss_client.errors import CorruptDataError, RowError

    try:
        return parsed_text(text)
    except CorruptDataError:
        raise RowError(
            f"rows is the text of a value that cannot be read back: {text[:100]}. Give the output "
            "of the upstream task itself (rows=task.output), or set "
            "render_template_as_native_obj=True on the DAG"
        ) from None


def _table_of(client: FlussConnection, table: str, rows: Sequence[Mapping[str, Any]]) -> Any:
    """Dictionaries as an Arrow table with the types that the target has."""
    import pyarrow as pa

    from fluss_client import TablePath
    from fluss_client.errors import RowError
    from fluss_orchestrate.core.loading.units import CHANGE_TYPE

    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise RowError(
                f"{table}: row {number}, counted from 0, is a {type(row).__name__}: rows is a list "
                "of dictionaries, such as [{'id': 1}]"
            )
    opened = client.get_table(TablePath.parse(table)).result()
    target = opened.arrow_schema
    given = {name: None for row in rows for name in row}
    has_changes = CHANGE_TYPE in given and opened.has_primary_key()
    unknown = [n for n in given if n not in target.names and not (has_changes and n == CHANGE_TYPE)]
    if unknown:
        raise RowError(f"{table} has no column {', '.join(unknown)}; it has {target.names}")
    if opened.has_primary_key():
        _check_same_columns(table, rows, given)
    schema = pa.schema([target.field(name) for name in target.names if name in given])
    try:
        made = pa.Table.from_pylist([dict(row) for row in rows], schema=schema)
        if has_changes and CHANGE_TYPE not in target.names:
            changes = pa.array([row.get(CHANGE_TYPE) for row in rows])
            made = made.append_column(CHANGE_TYPE, changes)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise RowError(f"{table}: the rows do not fit its columns: {error}") from error
    return made


def _check_same_columns(
    table: str, rows: Sequence[Mapping[str, Any]], given: Mapping[str, None]
) -> None:
    """`RowError` for rows with different columns: null would be written where one has none."""
    from fluss_client.errors import RowError

    for number, row in enumerate(rows):
        if len(row) < len(given):
            missing = [name for name in given if name not in row]
            raise RowError(
                f"{table}: row {number}, counted from 0, has no {', '.join(missing)}, which other "
                "rows have. Rows of one load have the same columns: give None where null is meant, "
                "and load rows with other columns by a task of their own"
            )
