"""`fluss-orchestrate checkpoints`: which there are, what happened, how far behind they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from fluss_orchestrate.cli.failures import CommandError
from fluss_orchestrate.cli.groups import group
from fluss_orchestrate.cli.options import StoreOption
from fluss_orchestrate.cli.output import ago, table, when
from fluss_orchestrate.cli.session import Session, with_session
from fluss_orchestrate.cli.stores import existing_store, known_store

app = group("See how far scans are, and set them right.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The checkpoint.")]


@app.command()
@with_session
def ls(session: Session, store: StoreOption = None) -> None:
    """List the checkpoints with their table and what is pending.

    Example:

      fluss-orchestrate checkpoints ls
    """
    from fluss_orchestrate.core.checkpoints.report import list_checkpoints

    opened = existing_store(session.connection, store)
    found = [] if opened is None else list_checkpoints(opened)
    rows = [
        [
            c.name,
            c.table or None,
            "retired" if c.retired else c.last_event,
            when(c.updated_ms),
            c.pending_run_key or None,
        ]
        for c in found
    ]
    headers = ["checkpoint", "table", "last event", "at", "pending run"]
    session.answer([c.to_json() for c in found], lambda: table(headers, rows, "no checkpoints"))


@app.command()
@with_session
def show(
    session: Session,
    name: NameArgument,
    limit: Annotated[int, typer.Option(min=1, help="How many events.")] = 20,
    store: StoreOption = None,
) -> None:
    """Show what happened to a checkpoint, the newest first.

    Example:

      fluss-orchestrate checkpoints show events-to-files --limit 5
    """
    from fluss_orchestrate.core.checkpoints.report import show_checkpoint

    found = show_checkpoint(known_store(session.connection, store), name, limit)
    rows = [[e.sequence, e.kind, when(e.created_ms), e.offsets, e.rows, e.run_key] for e in found]
    headers = ["no", "event", "at", "offsets", "rows", "run"]
    session.answer([e.to_json() for e in found], lambda: table(headers, rows))


@app.command()
@with_session
def lag(
    session: Session,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Only these (default: all).")
    ] = None,
    store: StoreOption = None,
) -> None:
    """Show how far checkpoints are behind, and how long retention leaves them.

    Example:

      fluss-orchestrate checkpoints lag
    """
    from fluss_client.errors import FlussError
    from fluss_orchestrate.core.checkpoints.report import checkpoint_lag

    found, problems = [], []
    for name, opened in _chosen(session, store, names or []):
        try:
            found.append(checkpoint_lag(session.connection, opened, name))
        except FlussError as error:
            # One that cannot be told does not hide the others.
            problems.append(str(error))
    rows = [
        [
            one.name,
            one.table or None,
            one.offsets,
            ago(one.age_ms),
            one.lost,
            ago(one.expires_in_ms),
        ]
        for one in found
    ]
    headers = ["checkpoint", "table", "unread", "oldest", "lost", "expires in"]
    session.answer([one.to_json() for one in found], lambda: table(headers, rows, "no checkpoints"))
    if problems:
        raise CommandError("; ".join(problems))


def _chosen(session: Session, store: str | None, names: list[str]) -> Iterator[tuple[str, Any]]:
    """The named checkpoints, or all that are not retired, with their store."""
    if names:
        known = known_store(session.connection, store)
        yield from ((name, known) for name in names)
        return
    opened = existing_store(session.connection, store)
    for name in [] if opened is None else opened.names():
        if opened is not None and not opened.require(name).state.retired:
            yield name, opened
