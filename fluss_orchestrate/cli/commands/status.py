"""`fluss-orchestrate status`: one screen of tables, checkpoints and lakes.

What `status` shows: tables, checkpoints and lakes of one moment.
"""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fluss_orchestrate.cli.options import StoreOption
from fluss_orchestrate.cli.presentation.failures import UsageError, one_line, sentence
from fluss_orchestrate.cli.presentation.output import ago, console, count, table, to_json
from fluss_orchestrate.cli.session import Session, existing_store, with_session

if TYPE_CHECKING:
    from fluss_client import FlussConnection, TablePath


@with_session
def status(
    session: Session,
    database: Annotated[
        str | None, typer.Argument(metavar="DATABASE", help="Only its tables.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Look again and again.")] = False,
    interval: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="Between two looks.")
    ] = 2.0,
    times: Annotated[
        int | None, typer.Option(min=1, help="With --watch: end after so many looks.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page for a browser instead.")
    ] = None,
    store: StoreOption = None,
) -> None:
    """Show tables and their rows, the lag of every checkpoint, and how fresh the lakes are.

    With --watch the screen follows until Ctrl-C; with --json one document per line.

    Examples:

      fluss-orchestrate status

      fluss-orchestrate status sales --watch --interval 5

      fluss-orchestrate status --html status.html
    """

    if html is not None:
        if watch:
            raise UsageError("--html writes one page: leave --watch out")
        _write_page(session, database, store, html)
        return
    if not watch:
        now = look(session.connection, database, store)
        session.answer(now.to_json(), lambda: picture(now))
        return
    left = times
    live = _Live(session.as_json)
    with live:
        while left is None or left > 0:
            live.show(look(session.connection, database, store))
            left = None if left is None else left - 1
            if left != 0:
                time.sleep(interval)


def _write_page(session: Session, database: str | None, store: str | None, file: Path) -> None:
    from fluss_client.errors import MissingExtraError
    from fluss_orchestrate.core.overview.gathering import Gatherer

    try:
        from fluss_orchestrate.console.static_page import static_page
    except ImportError as error:
        raise MissingExtraError(error.name or "jinja2", "console") from None
    kept = existing_store(session.connection, store)
    overview = Gatherer(session.connection, kept, database).gather().overview
    file.write_text(static_page(overview), encoding="utf-8")
    session.answer({"path": str(file)}, lambda: f"wrote {file}")


def picture(now: Overview) -> list[Any]:
    """Return the overview for people."""
    tables = [
        [
            line.table,
            line.problem or line.kind,
            line.partitions,
            line.rows,
            line.lake_behind,
            None if line.lake_behind is None else ago(line.lake_age_ms),
        ]
        for line in now.tables
    ]
    checkpoints = [
        [
            line.name,
            line.table or None,
            line.unread,
            line.problem or ago(line.age_ms),
            line.pending_run,
        ]
        for line in now.checkpoints
    ]
    return [
        f"{now.address}: {count(now.servers, 'server')}, {count(len(now.tables), 'table')}",
        "",
        table(
            ["table", "kind", "partitions", "rows", "not in lake", "oldest"], tables, "no tables"
        ),
        "",
        table(
            ["checkpoint", "table", "unread", "oldest", "pending run"],
            checkpoints,
            "no checkpoints",
        ),
    ]


class _Live:
    """Shows one overview after the other: in place on a terminal, below each other elsewhere."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._live: Any = None

    def __enter__(self) -> _Live:
        if not self._as_json and sys.stdout.isatty():
            from rich.live import Live

            self._live = Live(console=console(), screen=False, auto_refresh=False)
            self._live.start()
        return self

    def show(self, now: Overview) -> None:
        """Show another overview."""
        from rich.console import Group

        if self._as_json:
            print(to_json(now.to_json()), flush=True)
            return
        shown = Group(*picture(now))
        if self._live is not None:
            self._live.update(shown, refresh=True)
        else:
            console().print(shown)
            sys.stdout.flush()

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()


TABLES_AT_ONCE_MAX = 16


@dataclass(frozen=True)
class TableLine:
    """One table."""

    table: str
    kind: str = ""
    partitions: int | None = None
    rows: int | None = None
    """Rows in the log of a log table, keys of a key table."""
    lake_behind: int | None = None
    lake_age_ms: int | None = None
    problem: str | None = None


@dataclass(frozen=True)
class CheckpointLine:
    """One checkpoint."""

    name: str
    table: str
    unread: int | None = None
    age_ms: int | None = None
    pending_run: str | None = None
    problem: str | None = None


@dataclass(frozen=True)
class Overview:
    """Tables, checkpoints and lakes at one moment."""

    address: str
    servers: int
    tables: tuple[TableLine, ...]
    checkpoints: tuple[CheckpointLine, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the overview as plain values."""
        return asdict(self)


def look(connection: FlussConnection, database: str | None, store: str | None) -> Overview:
    """Collect everything. An error about one table does not hide the others."""
    from fluss_client import TablePath
    from fluss_client.engine import run_blocking

    admin = connection.get_admin().result()
    databases = [database] if database else sorted(admin.list_databases().result())
    paths = [TablePath(d, t) for d in databases for t in sorted(admin.list_tables(d).result())]
    servers = admin.get_server_nodes().result()
    return Overview(
        address=connection.config.resolved_bootstrap(),
        servers=len(servers),
        tables=run_blocking(_tables(connection, paths)),
        checkpoints=_checkpoints(connection, store),
    )


async def _tables(connection: FlussConnection, paths: list[TablePath]) -> tuple[TableLine, ...]:
    import asyncio

    from fluss_client.errors import FlussError

    gate = asyncio.Semaphore(TABLES_AT_ONCE_MAX)

    async def one(path: TablePath) -> TableLine:
        async with gate:
            try:
                return await _table(connection, path)
            except FlussError as error:
                return TableLine(str(path), problem=one_line(sentence(error)))

    return tuple(await asyncio.gather(*(one(path) for path in paths)))


async def _table(connection: FlussConnection, path: TablePath) -> TableLine:
    from fluss_client import OffsetSpec
    from fluss_client.engine import async_connection, backend_of
    from fluss_orchestrate.core.incremental.planning.observation import observe_table, offsets_of
    from fluss_orchestrate.core.lake.catalog import has_lake
    from fluss_orchestrate.core.lake.status import read_status

    core = async_connection(connection)
    view = await observe_table(core, path)
    info = view.info
    if info.has_primary_key():
        rows = await _keys(connection, path)
    else:
        ids = view.partition_ids()
        earliest = await offsets_of(backend_of(core), info, ids, OffsetSpec.earliest())
        rows = sum(latest - earliest.get(p, 0) for p, latest in view.latest.items())
    lake = await read_status(core, path) if has_lake(info) else None
    return TableLine(
        table=str(path),
        kind="primary key" if info.has_primary_key() else "log",
        partitions=len(view.partitions) if info.is_partitioned() else None,
        rows=rows,
        lake_behind=None if lake is None else lake.lag_offsets,
        lake_age_ms=None if lake is None else lake.lag_ms,
    )


async def _keys(connection: FlussConnection, path: TablePath) -> int | None:
    from fluss_client.engine import async_connection
    from fluss_client.errors import InvalidTableError

    try:
        stats = await async_connection(connection).get_admin().get_table_stats(path, None)
    except InvalidTableError:
        # A table whose changelog has no old rows is not counted by anybody.
        return None
    return sum(stats.values())


def _checkpoints(connection: FlussConnection, where: str | None) -> tuple[CheckpointLine, ...]:
    from fluss_client.errors import FlussError
    from fluss_orchestrate.core.checkpoints.report import checkpoint_lag, list_checkpoints

    store = existing_store(connection, where)
    lines = []
    for summary in [] if store is None else list_checkpoints(store):
        if summary.retired or store is None:
            continue
        pending = summary.pending_run_key or None
        try:
            lag = checkpoint_lag(connection, store, summary.name)
        except FlussError as error:
            problem = one_line(sentence(error))
            lines.append(CheckpointLine(summary.name, summary.table, None, None, pending, problem))
            continue
        lines.append(CheckpointLine(summary.name, summary.table, lag.offsets, lag.age_ms, pending))
    return tuple(lines)
