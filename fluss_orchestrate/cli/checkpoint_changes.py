"""`fluss-orchestrate checkpoints`: setting them right by hand."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fluss_orchestrate.cli.asking import make_sure
from fluss_orchestrate.cli.checkpoints import NameArgument, app
from fluss_orchestrate.cli.failures import UsageError
from fluss_orchestrate.cli.options import StoreOption, YesOption
from fluss_orchestrate.cli.output import count
from fluss_orchestrate.cli.parsing import moment, path_of
from fluss_orchestrate.cli.session import Session, with_session
from fluss_orchestrate.cli.stores import known_store, open_store

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
    """
    from fluss_orchestrate.core.incremental import IncrementalScan

    if table_name is not None:
        path_of(table_name)
    opened = open_store(session.connection, store)
    table_name = table_name or _table_of(opened.head(name), name)
    place = moment(session, table_name, to, ("earliest", "latest", "current"), "--to")
    make_sure(f"set checkpoint '{name}' of {table_name} to {to}", yes)
    scan = IncrementalScan(session.connection, table_name, name, opened)
    event = scan.reset(place, reason, abandon_pending=abandon_pending)
    session.answer(event.to_json(), lambda: f"'{name}' now stands at {to} (event {event.sequence})")


def _table_of(head: Any, name: str) -> str:
    position = None if head is None else head.state.position
    if position is None:
        raise UsageError(f"there is no checkpoint '{name}': --table says what it is about")
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
