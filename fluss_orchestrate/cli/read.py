"""`fluss-orchestrate read`: a table's state, log, changelog or lake, to the screen or a file."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from fluss_orchestrate.cli.failures import UsageError
from fluss_orchestrate.cli.options import ColumnsOption, TableArgument, names
from fluss_orchestrate.cli.output import count
from fluss_orchestrate.cli.parsing import moment, path_of
from fluss_orchestrate.cli.progress import Meter, metered
from fluss_orchestrate.cli.reading import Rows, Wanted, open_source
from fluss_orchestrate.cli.rows import (
    SCREEN_ROWS,
    format_of,
    limited,
    print_json_rows,
    show_rows,
    write_rows,
)
from fluss_orchestrate.cli.session import Session, with_session

if TYPE_CHECKING:
    import pyarrow as pa


class Source(StrEnum):
    """What of a table is read."""

    state = "state"
    log = "log"
    changelog = "changelog"
    lake = "lake"


class FileFormat(StrEnum):
    """How rows are written down."""

    parquet = "parquet"
    csv = "csv"
    json = "json"
    arrow = "arrow"


@with_session
def read(
    session: Session,
    name: TableArgument,
    source: Annotated[
        Source,
        typer.Option(help="The current rows, the log, a key table's changelog, or the lake."),
    ] = Source.state,
    to: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write to a file, or to - (default: screen).")
    ] = None,
    file_format: Annotated[
        FileFormat | None, typer.Option("--format", help="The file's format (by its name).")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=0, help=f"At most so many rows (screen: {SCREEN_ROWS}, file: all)."),
    ] = None,
    columns: ColumnsOption = None,
    metadata: Annotated[
        bool, typer.Option("--metadata", help="With change type, offset, time, bucket, partition.")
    ] = False,
    partition: Annotated[str | None, typer.Option(help="Only this partition.")] = None,
    start: Annotated[str, typer.Option(help="Of a log: earliest, a time or offsets.")] = "earliest",
    until: Annotated[
        str | None, typer.Option(help="A time, offsets, latest or @receipt.json.")
    ] = None,
) -> None:
    """Read a table.

    The state of a log table is its lake and the tail of its log; that of a key table are its
    current rows. Each bucket is exact, all together are not one snapshot.

    Examples:

      fluss-orchestrate read sales.orders --limit 5 --columns order_id,amount

      fluss-orchestrate read sales.events --source log --start -1h --to events.parquet

      fluss-orchestrate read sales.orders --source changelog --metadata --to - --format csv
    """
    path_of(name)
    if start != "earliest" and source not in (Source.log, Source.changelog):
        raise UsageError("--start is for --source log and changelog; the state has no beginning")
    if until is not None and source is Source.lake:
        raise UsageError("--until is not for --source lake: a lake snapshot is read as it is")
    kind = None if to is None else format_of(to, file_format)
    on_screen = to is None and not session.as_json
    most = SCREEN_ROWS if limit is None and on_screen else limit
    wanted = Wanted(
        table=name,
        source=source,
        columns=names(columns),
        metadata=metadata,
        partition=partition,
        start=moment(session, name, start, ("earliest", "latest"), "--start"),
        until=None if until is None else moment(session, name, until, ("latest",), "--until"),
        limit=most,
    )
    if kind is not None and to is not None:
        _to_file(session, wanted, to, kind)
        return
    rows = open_source(session.connection, wanted)
    if session.as_json:
        print_json_rows(limited(rows.batches, most))
        return
    shown, number = show_rows(rows.schema, limited(rows.batches, most))
    session.answer(None, lambda: shown)
    if limit is None and number == SCREEN_ROWS:
        session.note(f"the first {SCREEN_ROWS} rows; --limit shows more, --to FILE writes all")


def _to_file(session: Session, wanted: Wanted, to: str, kind: str) -> None:
    with metered(f"reading {wanted.table}") as meter:
        rows = open_source(session.connection, wanted, meter)
        batches = _counted(limited(rows.batches, wanted.limit), meter, rows)
        number, size = write_rows(rows.schema, batches, to, kind)
    if to != "-":
        done = {"table": wanted.table, "rows": number, "bytes": size, "path": to, "format": kind}
        session.answer(done, lambda: f"{count(number, 'row')}, {size:,} bytes in {to}")


def _counted(
    batches: Iterator[pa.RecordBatch], meter: Meter, rows: Rows
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch
        if not rows.tells_progress:
            meter.at(meter.rows + batch.num_rows, meter.rows + batch.num_rows, rows.total)
