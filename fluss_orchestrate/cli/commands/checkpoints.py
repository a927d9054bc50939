"""`fluss-orchestrate checkpoints`: which there are, what happened, how far behind they are.

`fluss-orchestrate checkpoints`: setting them right by hand.

`fluss-orchestrate checkpoints`: taking them from one store to another.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from fluss_orchestrate.cli.options import StoreOption, YesOption, group, make_sure
from fluss_orchestrate.cli.parsing import moment, path_of
from fluss_orchestrate.cli.presentation.failures import CommandError, UsageError
from fluss_orchestrate.cli.presentation.output import ago, count, table, to_json, when
from fluss_orchestrate.cli.session import (
    Session,
    existing_store,
    known_store,
    open_store,
    with_session,
    without_login,
)

app = group("See how far scans are, and set them right.")

NameArgument = Annotated[str, typer.Argument(metavar="CHECKPOINT", help="The checkpoint's name.")]


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
        list[str] | None, typer.Argument(metavar="CHECKPOINT", help="Only these (default: all).")
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
            # An error about one checkpoint does not hide the others.
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
    """Return the named checkpoints, or all that are not retired, with their store."""
    if names:
        known = known_store(session.connection, store)
        yield from ((name, known) for name in names)
        return
    opened = existing_store(session.connection, store)
    for name in [] if opened is None else opened.names():
        if opened is not None and not opened.require(name).state.retired:
            yield name, opened


ReasonOption = Annotated[str, typer.Option(help="Why; it goes into the history.")]


@app.command()
@with_session
def reset(
    session: Session,
    name: NameArgument,
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="WHERE", help="earliest, latest, current, a time, offsets or @RECEIPT."
        ),
    ],
    table_name: Annotated[
        str | None,
        typer.Option("--table", help="database.table, for a checkpoint that is new."),
    ] = None,
    reason: ReasonOption = "",
    abandon_pending: Annotated[
        bool, typer.Option("--abandon-pending", help="Give a pending plan up first.")
    ] = False,
    store: StoreOption = None,
    yes: YesOption = False,
) -> None:
    """Set a checkpoint to another place: rows may then come again, or never.

    Examples:

      fluss-orchestrate checkpoints reset events-to-files --to 2026-11-16T00:00Z --reason replay

      fluss-orchestrate checkpoints reset events-to-files --to 0=120,1=95 --yes

      fluss-orchestrate checkpoints reset events-to-files --to current --reason "another sink"

      fluss-orchestrate checkpoints reset customers-mirror --to start --reason "rebuild it"
    """
    from fluss_orchestrate.core.incremental.planning.late_rows import late_rows_policy
    from fluss_orchestrate.core.incremental.scan import IncrementalScan, reset_effect

    if table_name is not None:
        path_of(table_name)
    opened = open_store(session.connection, store)
    head = opened.head(name)
    before = None if head is None else head.state.position
    table_name = table_name or _table_of(head, name)
    place = moment(session, table_name, to, ("earliest", "latest", "current", "start"), "--to")
    make_sure(f"set checkpoint '{name}' of {table_name} to {to}", yes)
    late = late_rows_policy(head)
    scan = IncrementalScan(session.connection, table_name, name, opened, on_late_rows=late)
    event = scan.reset(place, reason, abandon_pending=abandon_pending)
    effect = reset_effect(before, event.state.position)
    session.answer(
        event.to_json(),
        lambda: [f"'{name}' now stands at {to} (event {event.sequence})", *filter(None, [effect])],
    )


def _table_of(head: Any, name: str) -> str:
    position = None if head is None else head.state.position
    if position is None:
        what = f"there is no checkpoint '{name}'"
        if head is not None:
            what = f"checkpoint '{name}' has no position yet"
        raise UsageError(f"{what}: --table says what it is about")
    return str(position.table.path)


@app.command()
@with_session
def adopt(
    session: Session,
    name: NameArgument,
    run_key: Annotated[str, typer.Option(help="The run that takes the pending plan over.")],
    store: StoreOption = None,
) -> None:
    """Take a pending plan over for another run, and show it.

    Example:

      fluss-orchestrate checkpoints adopt events-to-files --run-key repair/2026-11-16
    """
    plan = known_store(session.connection, store).adopt(name, run_key)
    session.answer(
        plan.to_json(),
        lambda: (
            f"'{run_key}' has plan {plan.plan_id} of run '{plan.run_key}': "
            f"{count(plan.offsets, 'offset')} in {count(len(plan.ranges), 'range')}"
        ),
    )


@app.command()
@with_session
def abandon(
    session: Session,
    name: NameArgument,
    plan_id: Annotated[str | None, typer.Option(help="Only if this plan is pending.")] = None,
    reason: ReasonOption = "",
    store: StoreOption = None,
    yes: YesOption = False,
) -> None:
    """Give the pending plan up: its rows will be planned again.

    Take what it wrote out of the sink first, or those rows are there twice.

    Example:

      fluss-orchestrate checkpoints abandon events-to-files --reason "sink was restored"
    """
    opened = known_store(session.connection, store)
    pending = opened.require(name).state.pending
    what = "the pending plan" if pending is None else f"plan {pending.plan_id} ({pending.run_key})"
    make_sure(f"give up {what} of checkpoint '{name}'", yes)
    event = opened.abandon(name, plan_id, reason)
    session.answer(event.to_json(), lambda: f"gave up {event.plan_id}")


@app.command()
@with_session
def retire(
    session: Session,
    name: NameArgument,
    reason: ReasonOption = "",
    with_pending: Annotated[
        bool, typer.Option("--with-pending", help="Also if a plan is pending.")
    ] = False,
    store: StoreOption = None,
    yes: YesOption = False,
) -> None:
    """End a checkpoint. Its history stays; a reset brings it back.

    Example:

      fluss-orchestrate checkpoints retire events-to-files --yes
    """
    opened = known_store(session.connection, store)
    opened.require(name)
    make_sure(f"retire checkpoint '{name}'", yes)
    event = opened.retire(name, reason, with_pending=with_pending)
    session.answer(event.to_json(), lambda: f"retired '{name}'")


@app.command("export")
@with_session
def export(
    session: Session,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="CHECKPOINT", help="Only these (default: all).")
    ] = None,
    to: Annotated[Path | None, typer.Option(metavar="FILE", help="Default: the screen.")] = None,
    store: StoreOption = None,
) -> None:
    """Write checkpoints with their newest events as JSON.

    Example:

      fluss-orchestrate checkpoints export --to checkpoints.json
    """
    from fluss_orchestrate.core.checkpoints import export_checkpoints

    exported = export_checkpoints(known_store(session.connection, store), names or None)
    if to is None:
        print(to_json(exported))
        return
    to.write_text(to_json(exported))
    number = len(_of_users(exported["checkpoints"]))
    session.answer(
        {"path": str(to), "checkpoints": number}, lambda: f"{count(number, 'checkpoint')} in {to}"
    )


@app.command("import")
@with_session
def import_(
    session: Session,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `export` wrote.")],
    store: StoreOption = None,
) -> None:
    """Put exported checkpoints into a store; one that is there must hold the same events.

    Example:

      fluss-orchestrate checkpoints import checkpoints.json --store ops.checkpoints
    """
    from fluss_orchestrate.core.checkpoints import import_checkpoints

    try:
        exported = json.loads(file.read_text())
    except ValueError as error:
        raise CommandError(f"{file} is no JSON: {error}") from None
    names = import_checkpoints(open_store(session.connection, store), exported)
    session.answer(_of_users(names), lambda: _of_users(names) or "nothing to import")


@app.command()
@with_session
def compact(
    session: Session,
    into: Annotated[str, typer.Option(metavar="WHERE", help="The new store, as in --store.")],
    keep: Annotated[int, typer.Option(min=1, help="How many events of each.")] = 200,
    store: StoreOption = None,
    yes: YesOption = False,
) -> None:
    """Move every checkpoint with its newest events into a new store.

    Each is retired in the old one, so that a run that still uses it is refused.

    Example:

      fluss-orchestrate checkpoints compact --into ops.checkpoints_2 --yes
    """
    from fluss_orchestrate.core.checkpoints import compact as move

    source = known_store(session.connection, store)
    make_sure(f"retire every checkpoint here and move it into {without_login(into)}", yes)
    names = move(source, open_store(session.connection, into), keep)
    session.answer(_of_users(names), lambda: _of_users(names) or "nothing to move")


def _of_users(names: Iterable[str]) -> list[str]:
    """Return the names without those that scans use for themselves."""
    from fluss_orchestrate.core.checkpoints.events import RESERVED

    return [name for name in names if not name.startswith(RESERVED)]
