"""`fluss-orchestrate checkpoints`: taking them from one store to another."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from fluss_orchestrate.cli.asking import make_sure
from fluss_orchestrate.cli.checkpoints import app
from fluss_orchestrate.cli.failures import CommandError
from fluss_orchestrate.cli.options import StoreOption, YesOption
from fluss_orchestrate.cli.output import count, to_json
from fluss_orchestrate.cli.session import Session, with_session
from fluss_orchestrate.cli.stores import known_store, open_store, without_login


@app.command("export")
@with_session
def export(
    session: Session,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Only these (default: all).")
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
    """The names without those that scans keep for themselves."""
    from fluss_orchestrate.core.checkpoints.events import RESERVED

    return [name for name in names if not name.startswith(RESERVED)]
