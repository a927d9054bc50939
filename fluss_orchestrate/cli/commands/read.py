"""`fluss-orchestrate read` and `lookup`: rows of a table, to the screen or a file.

`read` opens a table's state, log, changelog or lake as a schema and batches; `lookup` finds rows of
a key table by their key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fluss_orchestrate.cli.connecting import key_values
from fluss_orchestrate.cli.options import ColumnsOption, OnLateRows, TableArgument, names
from fluss_orchestrate.cli.parsing import moment, path_of
from fluss_orchestrate.cli.presentation.failures import CommandError, UsageError
from fluss_orchestrate.cli.presentation.output import count, datum, pairs, table
from fluss_orchestrate.cli.presentation.progress import Meter, metered
from fluss_orchestrate.cli.presentation.rows import (
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

    from fluss_client import FlussConnection, TableInfo
    from fluss_orchestrate.core.row_filter import RowFilter


@dataclass(frozen=True)
class Wanted:
    """Which rows of a table to read."""

    table: str
    source: str
    columns: Sequence[str] | None = None
    metadata: bool = False
    partition: str | None = None
    start: Any = "earliest"
    until: Any = None
    limit: int | None = None
    on_late_rows: str = "read"
    row_filter: RowFilter | None = None


@dataclass(frozen=True)
class Rows:
    """Rows that can be read once."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    tells_progress: bool = False
    """Whether the reader itself reports its progress."""
    total: int | None = None
    """How many rows there are about, where that is cheap to know."""


def open_source(connection: FlussConnection, wanted: Wanted, meter: Meter | None = None) -> Rows:
    """Return the rows of the source, which are not read yet."""
    if wanted.row_filter is None:
        return _opened(connection, wanted, meter)
    import pyarrow as pa

    from fluss_orchestrate.core.plan import METADATA_COLUMNS

    columns, row_filter = wanted.columns, wanted.row_filter
    if columns is not None:
        read = list(dict.fromkeys([*columns, *row_filter.columns]))
        # Metadata columns come with --metadata, not by their names.
        wanted = replace(wanted, columns=[n for n in read if n not in METADATA_COLUMNS])
    rows = _opened(connection, replace(wanted, limit=None), meter)
    row_filter.check(rows.schema)
    extra = set() if columns is None else {*row_filter.columns} - {*columns, *METADATA_COLUMNS}
    shown = [name for name in rows.schema.names if name not in extra]
    batches = (row_filter.apply(batch).select(shown) for batch in rows.batches)
    schema = pa.schema([rows.schema.field(name) for name in shown])
    return Rows(schema, batches, rows.tells_progress)


def parse_filter(text: str) -> RowFilter:
    """Return the filter that a text describes."""
    from fluss_orchestrate.core.row_filter import RowFilter

    return RowFilter.parse(text)


def _opened(connection: FlussConnection, wanted: Wanted, meter: Meter | None) -> Rows:
    info = connection.get_admin().result().get_table_info(path_of(wanted.table)).result()
    if wanted.source == "lake":
        return _lake(connection, info, wanted)
    if wanted.source in ("state", "union"):
        return _state(connection, info, wanted)
    is_key_table = info.has_primary_key()
    if wanted.source == "changelog" and not is_key_table:
        raise UsageError(f"{wanted.table} has no primary key, hence no changelog: read its log")
    return _log(connection, wanted, meter, with_change=is_key_table)


def _log(
    connection: FlussConnection, wanted: Wanted, meter: Meter | None, with_change: bool
) -> Rows:
    from fluss_orchestrate.core.incremental.planning.planner import plan_once
    from fluss_orchestrate.core.incremental.reading.reader import PlanReading, ReadOptions
    from fluss_orchestrate.core.plan import METADATA_COLUMNS

    # A changelog without what happened to its rows would say nothing.
    extra = METADATA_COLUMNS if wanted.metadata else ("_change_type",) if with_change else ()
    plan = plan_once(
        connection,
        wanted.table,
        wanted.start,
        "latest" if wanted.until is None else wanted.until,
        wanted.columns,
        extra,
        wanted.partition,
        wanted.on_late_rows,
    )

    options = ReadOptions(
        progress=None if meter is None else meter.follow, pruning=wanted.row_filter
    )
    reading = PlanReading(connection, plan, options)
    return Rows(reading.schema, reading.batches(), tells_progress=True)


def _state(connection: FlussConnection, info: TableInfo, wanted: Wanted) -> Rows:
    from fluss_orchestrate.core.lake.state import read_table

    if wanted.metadata:
        raise UsageError("--metadata is for --source log, changelog and lake")
    reader = read_table(
        connection,
        wanted.table,
        wanted.columns,
        wanted.partition,
        as_of=wanted.until,
        limit=wanted.limit,
        read="union" if wanted.source == "union" else "current",
        on_late_rows=wanted.on_late_rows,
    )
    total = _row_count(connection, info) if wanted.partition is None else None
    return Rows(reader.schema, iter(reader), total=total)


def _row_count(connection: FlussConnection, info: TableInfo) -> int | None:
    """Return the servers' number of rows; some tables have none."""
    from fluss_client.errors import FlussError

    try:
        stats = connection.get_admin().result().get_table_stats(info.table_path).result()
    except FlussError:
        return None
    return sum(stats.values())


def _lake(connection: FlussConnection, info: TableInfo, wanted: Wanted) -> Rows:
    import pyarrow as pa

    from fluss_orchestrate.core.lake.catalog import load_lake_table
    from fluss_orchestrate.core.lake.equality_deletes import read_with_deletes
    from fluss_orchestrate.core.lake.file_scan import read_scan

    if wanted.partition is not None:
        raise UsageError("--partition is not for --source lake")
    lake = load_lake_table(info, connection.config.resolved_alias())
    known = [field.name for field in lake.schema().fields]
    own = [n for n in known if wanted.metadata or not n.startswith("__")]
    chosen = own if wanted.columns is None else list(wanted.columns)
    missing = [n for n in chosen if n not in known]
    if missing:
        raise CommandError(f"the lake of {wanted.table} has no column '{missing[0]}'")
    if info.has_primary_key():
        found = read_with_deletes(lake, chosen)
        return Rows(found.schema, iter(found), total=wanted.limit)
    reader = read_scan(lake.scan(selected_fields=tuple(chosen)), lake, wanted.limit)
    schema = pa.schema([reader.schema.field(name) for name in chosen])
    total = int(lake.scan().count()) if wanted.limit is None else wanted.limit
    return Rows(schema, (batch.select(chosen) for batch in reader), total=total)


class Source(StrEnum):
    """The part of a table that is read."""

    state = "state"
    log = "log"
    changelog = "changelog"
    lake = "lake"
    union = "union"


class FileFormat(StrEnum):
    """The format of the output."""

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
        typer.Option(
            help="The current rows, the log, a key table's changelog, the lake, or lake and log."
        ),
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
    row_filter: Annotated[
        str | None,
        typer.Option("--filter", help="Which rows: \"amount > 10 and region in ('eu', 'us')\"."),
    ] = None,
    metadata: Annotated[
        bool, typer.Option("--metadata", help="With change type, offset, time, bucket, partition.")
    ] = False,
    partition: Annotated[str | None, typer.Option(help="Only this partition.")] = None,
    start: Annotated[str, typer.Option(help="Of a log: earliest, a time or offsets.")] = "earliest",
    until: Annotated[
        str | None, typer.Option(help="A time, offsets, latest or @receipt.json.")
    ] = None,
    on_late_rows: Annotated[
        OnLateRows, typer.Option(help="Rows of expired partitions: read, leave out, or fail.")
    ] = OnLateRows.read,
) -> None:
    """Read a table.

    The state of a log table is its lake and the tail of its log; that of a key table are its
    current rows. Source union reads these from the lake and the changelog after it. Each bucket
    is exact, all together are not one snapshot.

    Examples:

      fluss-orchestrate read sales.orders --limit 5 --columns order_id,amount

      fluss-orchestrate read sales.orders --filter "amount > 100 and region = 'eu'"

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
        on_late_rows=on_late_rows.value,
        row_filter=None if row_filter is None else parse_filter(row_filter),
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


@with_session
def lookup(
    session: Session,
    name: TableArgument,
    key: Annotated[
        list[str],
        typer.Argument(metavar="KEY", help="Values in the key's order, or COLUMN=VALUE."),
    ],
    prefix: Annotated[
        bool,
        typer.Option("--prefix", help="All rows with these partition and bucket key values."),
    ] = False,
    columns: ColumnsOption = None,
) -> None:
    """Look a row up by its primary key, or all rows by a prefix of it.

    Examples:

      fluss-orchestrate lookup sales.orders 42 eu

      fluss-orchestrate lookup sales.order_lines order_id=42 --prefix
    """
    path = path_of(name)
    found = session.connection.get_table(path).result()
    info = found.get_table_info()
    if not info.has_primary_key():
        raise UsageError(f"{name} has no primary key: use `read`")
    shown = [info.schema.column(c).name for c in names(columns) or info.get_column_names()]
    if prefix:
        order = [*info.partition_keys, *info.bucket_keys]
        values = _values(info, order, key)
        lookuper = found.new_lookup().lookup_by(list(values)).create_lookuper()
        rows = [_only(row, shown) for row in lookuper.lookup(values).result()]
        listed = [list(row.values()) for row in rows]
        session.answer(rows, lambda: table(shown, listed, "no rows", datum))
        return
    values = _values(info, info.get_primary_keys(), key)
    row = found.new_lookup().create_lookuper().lookup(values).result()
    chosen = None if row is None else _only(row, shown)
    session.answer(chosen, lambda: "no row" if chosen is None else pairs(chosen, datum))


def _only(row: dict[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    return {name: row[name] for name in columns}


def _values(info: TableInfo, columns: Sequence[str], given: Sequence[str]) -> dict[str, Any]:
    """Return the values of the key in the types of its columns."""
    if all("=" in text for text in given):
        texts = key_values(given, "key")
    elif len(given) == len(columns):
        texts = dict(zip(columns, given, strict=True))
    else:
        raise UsageError(f"the key is ({', '.join(columns)}): give {len(columns)} values")
    if set(texts) != set(columns):
        raise UsageError(f"the key is ({', '.join(columns)}), not ({', '.join(texts)})")
    return {name: typed(info, name, texts[name]) for name in columns}


def typed(info: TableInfo, column: str, text: str) -> Any:
    """Return a text as a value of a column."""
    import pyarrow as pa

    wanted = info.schema.arrow.field(column).type
    try:
        return pa.scalar(text).cast(wanted).as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        kind = info.schema.column(column).type
        raise UsageError(f"'{text}' is no {kind}, which column '{column}' has") from None
