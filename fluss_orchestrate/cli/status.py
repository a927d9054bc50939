"""`fluss-orchestrate status`: one screen of tables, checkpoints and lakes."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fluss_orchestrate.cli.options import StoreOption
from fluss_orchestrate.cli.output import ago, console, count, table, to_json
from fluss_orchestrate.cli.session import Session, with_session

if TYPE_CHECKING:
    from fluss_orchestrate.cli.overview import Overview


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
    store: StoreOption = None,
) -> None:
    """Show tables and their rows, the lag of every checkpoint, and how fresh the lakes are.

    With --watch the screen follows until Ctrl-C; with --json one document per line.

    Examples:

      fluss-orchestrate status

      fluss-orchestrate status sales --watch --interval 5
    """
    from fluss_orchestrate.cli.overview import look

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


def picture(now: Overview) -> list[Any]:
    """The overview for people."""
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
    """Overviews one after the other: in place on a terminal, below each other elsewhere."""

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
        """One more."""
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
