"""Options and arguments that several commands have, spelled once."""

from __future__ import annotations

from typing import Annotated

import typer

_CONNECTION = "Connection"

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document, alone on standard output.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; do it.")]

BootstrapOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="ADDRESS",
        rich_help_panel=_CONNECTION,
        help="host:port[,host:port], or embedded:PATH (else FLUSS_BOOTSTRAP_SERVERS).",
    ),
]
ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        rich_help_panel=_CONNECTION,
        help="A connection of your profiles.toml (else FLUSS_PROFILE, else its default).",
    ),
]
AirflowOption = Annotated[
    str | None,
    typer.Option(
        "--airflow-conn",
        metavar="ID",
        rich_help_panel=_CONNECTION,
        help="An Airflow connection of type fluss.",
    ),
]
ConfigOption = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        metavar="KEY=VALUE",
        rich_help_panel=_CONNECTION,
        help="A client setting; may be repeated.",
    ),
]

TableArgument = Annotated[str, typer.Argument(metavar="TABLE", help="database.table")]
ColumnsOption = Annotated[
    str | None, typer.Option("--columns", metavar="A,B", help="Only these columns.")
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="WHERE",
        envvar="FLUSS_CHECKPOINT_STORE",
        show_envvar=False,
        help="Where checkpoints are kept: database.table of this cluster, or an SQLAlchemy URL "
        "(else FLUSS_CHECKPOINT_STORE, else the default table).",
    ),
]


def names(text: str | None) -> list[str] | None:
    """`a,b` as a list; None stays None."""
    if text is None:
        return None
    return [name.strip() for name in text.split(",") if name.strip()]
