"""`fluss-orchestrate write`: rows from a file or standard input into a table."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fluss_orchestrate.cli.failures import UsageError
from fluss_orchestrate.cli.incoming import known_rows, open_input
from fluss_orchestrate.cli.options import ColumnsOption, TableArgument, names
from fluss_orchestrate.cli.output import count
from fluss_orchestrate.cli.parsing import path_of
from fluss_orchestrate.cli.progress import metered
from fluss_orchestrate.cli.read import FileFormat
from fluss_orchestrate.cli.session import Session, with_session

if TYPE_CHECKING:
    import pyarrow as pa

    from fluss_client import FlussConnection, TableInfo


class Mode(StrEnum):
    """What is done with the rows."""

    append = "append"
    upsert = "upsert"
    delete = "delete"


@with_session
def write(
    session: Session,
    name: TableArgument,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A file, a folder of files, or - for stdin.")
    ],
    file_format: Annotated[
        FileFormat | None, typer.Option("--format", help="The file's format (by its name).")
    ] = None,
    mode: Annotated[
        Mode | None,
        typer.Option(help="append for log tables, upsert for key tables; delete takes keys."),
    ] = None,
    load_id: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="Exactly once: the same id and rows again leave each row once."
        ),
    ] = None,
    columns: ColumnsOption = None,
    partial: Annotated[  # accepted still, though it says nothing new
        bool,
        typer.Option(
            "--partial", help="Upsert only the columns that the rows have. This is the default."
        ),
    ] = False,
    create_partitions: Annotated[
        bool, typer.Option("--create-partitions", help="Create what is missing (with --load-id).")
    ] = False,
) -> None:
    """Append rows to a log table, or upsert them into a key table.

    Without --load-id a command that fails may have written a part, and run again writes that part
    twice into a log table. With it, run it again until it succeeds. In a key table, columns that
    the rows do not have keep their values.

    Examples:

      fluss-orchestrate write sales.events events.parquet --load-id events-2026-11-16

      cat orders.csv | fluss-orchestrate write sales.orders - --format csv
    """
    path = path_of(name)
    info = session.admin.get_table_info(path).result()
    doing = _mode(info, mode, load_id)
    if create_partitions and load_id is None:
        raise UsageError("--create-partitions needs --load-id")
    rows = open_input(file, file_format, info.schema.arrow, names(columns))
    total = known_rows(file, file_format)
    if load_id is not None:
        _load(session, name, rows, load_id, create_partitions, total)
        return
    with metered(f"writing {name}", total) as meter:
        writer = _writer(session.connection, info, doing, rows.schema)
        with writer:
            for batch in rows:
                send = writer.delete_arrow if doing is Mode.delete else writer.write_arrow_batch
                send(batch)
                meter.add(batch.num_rows, batch.num_rows)
            writer.flush().result()
    done = {"table": name, "mode": doing.value, "rows": meter.rows, "exactly_once": False}
    session.answer(done, lambda: f"{doing.value}: {count(meter.rows, 'row')}")


def _mode(info: TableInfo, mode: Mode | None, load_id: str | None) -> Mode:
    has_key = info.has_primary_key()
    doing = mode or (Mode.upsert if has_key else Mode.append)
    if has_key == (doing is Mode.append):
        kind = "has a primary key: upsert into it" if has_key else "is a log table: append to it"
        raise UsageError(f"{info.table_path} {kind}")
    if load_id is not None and doing is Mode.delete:
        raise UsageError(
            "--load-id takes no --mode delete: rows with a column _change_type of -D are deleted"
        )
    return doing


def _writer(connection: FlussConnection, info: TableInfo, doing: Mode, schema: pa.Schema) -> Any:
    from fluss_orchestrate.core.loading.target_columns import TargetColumns

    table = connection.get_table(info.table_path).result()
    if doing is Mode.append:
        return table.new_append().create_writer()
    builder = table.new_upsert()
    if doing is Mode.upsert:
        columns = TargetColumns.of(info, schema.names)
        columns.check(None)
        if columns.positions is not None:
            builder = builder.partial_update_by_index(columns.positions)
    return builder.create_writer()


def _load(
    session: Session,
    name: str,
    rows: pa.RecordBatchReader,
    load_id: str,
    create: bool,
    total: int | None,
) -> None:
    from fluss_orchestrate.core.loading import load_rows

    with metered(f"loading {name}", total) as meter:
        receipt = load_rows(
            session.connection,
            name,
            rows,
            load_id,
            create_partitions=create,
            progress=lambda sent, size: meter.at(sent, sent, total),
        )
        meter.rows = receipt.rows
    again = receipt.details.get("was_done_before")
    said = "from an earlier run" if again else "written, exactly once"
    session.answer(receipt.to_json(), lambda: f"{count(receipt.rows, 'row')} {said}")
