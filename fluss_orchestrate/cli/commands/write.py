"""`fluss-orchestrate write`: rows from a file or standard input into a table.

Rows on their way in: files by their format, or standard input.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fluss_orchestrate.cli.commands.read import FileFormat
from fluss_orchestrate.cli.options import ColumnsOption, TableArgument, names
from fluss_orchestrate.cli.parsing import path_of
from fluss_orchestrate.cli.presentation.failures import CommandError, UsageError
from fluss_orchestrate.cli.presentation.output import count
from fluss_orchestrate.cli.presentation.progress import metered
from fluss_orchestrate.cli.presentation.rows import STDOUT as STDIN
from fluss_orchestrate.cli.presentation.rows import format_of
from fluss_orchestrate.cli.session import Session, with_session

if TYPE_CHECKING:
    import pyarrow as pa

    from fluss_client import FlussConnection, TableInfo

COPY_BYTES = 1 << 20


def open_input(
    path: str, given: str | None, types: pa.Schema, columns: Sequence[str] | None
) -> pa.RecordBatchReader:
    """Return the rows of a file, of a folder, or of standard input.

    Values of CSV and JSON are read as the types of the table's columns, and not guessed.
    """
    from fluss_orchestrate.core.loading import open_rows

    if path != STDIN:
        kind = "ipc" if given == "arrow" else given
        return open_rows(path, None if kind is None else str(kind), columns, types)
    import pyarrow as pa

    kind = format_of(path, given)
    try:
        reader = _stdin(sys.stdin.buffer, kind, types)
    except (pa.ArrowInvalid, OSError) as error:
        raise CommandError(f"standard input cannot be read as {kind}: {error}") from None
    return reader if columns is None else _projected(reader, columns)


def known_rows(path: str, given: str | None) -> int | None:
    """Return how many rows there will be, if the files say it without being read."""
    import pyarrow.parquet as pq

    from fluss_orchestrate.core.loading.sources import FORMATS, source_files

    if path == STDIN or (given or FORMATS.get(Path(path).suffix.lower())) != "parquet":
        return None
    return sum(int(pq.read_metadata(f).num_rows) for f in source_files(path, "parquet"))


def _stdin(stream: Any, kind: str, types: pa.Schema) -> pa.RecordBatchReader:
    import pyarrow as pa
    import pyarrow.csv as pacsv

    from fluss_orchestrate.core.loading.sources import csv_options

    if kind == "arrow":
        return pa.ipc.open_stream(stream)
    if kind == "csv":
        return pacsv.open_csv(stream, convert_options=csv_options(types))
    return _spooled(stream, kind, types)


def _spooled(stream: Any, kind: str, types: pa.Schema) -> pa.RecordBatchReader:
    """Return standard input as a file: Parquet is read from its end, and JSON from a file."""
    from fluss_orchestrate.core.loading import open_rows

    with tempfile.NamedTemporaryFile(suffix=f".{kind}") as file:
        while chunk := stream.read(COPY_BYTES):
            file.write(chunk)
        file.flush()
        # Opened before the name goes: the reader keeps the file itself.
        return open_rows(file.name, kind, None, types).read_all().to_reader()


def _projected(reader: pa.RecordBatchReader, columns: Sequence[str]) -> pa.RecordBatchReader:
    import pyarrow as pa

    missing = [name for name in columns if name not in reader.schema.names]
    if missing:
        raise CommandError(f"standard input has no column '{missing[0]}'")
    schema = pa.schema([reader.schema.field(name) for name in columns])
    return pa.RecordBatchReader.from_batches(schema, (b.select(columns) for b in reader))


class Mode(StrEnum):
    """How the rows are written."""

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
    from fluss_orchestrate.core.loading.units import TargetColumns

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
