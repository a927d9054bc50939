"""`fluss-orchestrate databases`: list, create and drop them."""

from __future__ import annotations

from typing import Annotated

import typer

from fluss_orchestrate.cli.options import YesOption, group, make_sure
from fluss_orchestrate.cli.presentation.output import count, table
from fluss_orchestrate.cli.session import Session, with_session

app = group("List, create and drop databases.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The database.")]


@app.command()
@with_session
def ls(session: Session) -> None:
    """List the databases, with the number of their tables.

    Example:

      fluss-orchestrate databases ls
    """
    admin = session.admin
    names = sorted(admin.list_databases().result())
    calls = [admin.list_tables(name) for name in names]
    found = [
        {"database": name, "tables": len(call.result())}
        for name, call in zip(names, calls, strict=True)
    ]
    session.answer(found, lambda: table(["database", "tables"], [list(d.values()) for d in found]))


@app.command()
@with_session
def create(
    session: Session,
    name: NameArgument,
    comment: Annotated[str | None, typer.Option(help="What it is for.")] = None,
) -> None:
    """Create a database; one that exists is left as it is.

    Example:

      fluss-orchestrate databases create sales --comment "what the shop sells"
    """
    from fluss_client import DatabaseDescriptor

    admin = session.admin
    existed = admin.database_exists(name).result()
    descriptor = DatabaseDescriptor(comment)
    admin.create_database(name, descriptor, ignore_if_exists=True).result()
    session.answer(
        {"database": name, "created": not existed},
        lambda: f"{name} was there already" if existed else f"created {name}",
    )


@app.command()
@with_session
def drop(
    session: Session,
    name: NameArgument,
    cascade: Annotated[
        bool, typer.Option("--cascade", help="With all its tables and their rows.")
    ] = False,
    yes: YesOption = False,
) -> None:
    """Drop a database; one that holds tables only with --cascade.

    Example:

      fluss-orchestrate databases drop sales --cascade --yes
    """
    admin = session.admin
    tables = admin.list_tables(name).result() if cascade else []
    what = f"drop database {name}"
    if tables:
        what += f" with {count(len(tables), 'table')} and all their rows"
    make_sure(what, yes)
    admin.drop_database(name, cascade=cascade).result()
    session.answer({"database": name, "tables": tables}, lambda: f"dropped {name}")
