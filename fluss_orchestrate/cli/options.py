"""Options and arguments that several commands share, and the classes that all commands share.

Also the question before a command deletes something.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from fluss_orchestrate.cli.presentation.failures import CommandError
from fluss_orchestrate.deprecated import ALL_COMMANDS, Renamed, renamed

_CONNECTION = "Connection"


class OnLateRows(StrEnum):
    """What to do about rows of expired partitions."""

    read = "read"
    note = "note"
    fail = "fail"


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
ClientOption = Annotated[
    list[str] | None,
    typer.Option(
        "--client-option",
        metavar="KEY=VALUE",
        rich_help_panel=_CONNECTION,
        help="A key of the client's configuration; may be repeated.",
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
SinkOption = Annotated[
    list[str] | None,
    typer.Option(metavar="FIELD=VALUE", help="A field of the sink, repeatable."),
]
SinkEnvOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FIELD=VARIABLE",
        help="A secret field of the sink: the environment variable that holds it.",
    ),
]
CatalogOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME|KEY=VALUE",
        help="For iceberg: a catalog of your pyiceberg configuration, or its properties.",
    ),
]
RunKeyOption = Annotated[
    str | None,
    typer.Option(help="The name of this run; a run that died is continued under the same key."),
]


def names(text: str | None) -> list[str] | None:
    """Return `a,b` as a list; None for None."""
    if text is None:
        return None
    return [name.strip() for name in text.split(",") if name.strip()]


def make_sure(what: str, yes: bool) -> None:
    """Continue only if the person at the terminal agrees, or `--yes` was given.

    Without a terminal it is refused: a script must pass `--yes`.
    """
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise CommandError(
            f"this would {what}; there is no terminal to ask for confirmation: add --yes to confirm"
        )
    print(f"This will {what}. Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("nothing was done")


class Command(TyperCommand):
    """A command that still accepts the old spellings of its options, with a note."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Replace old spellings with the new ones, then parse as typer does."""
        words = ctx.command_path.split()
        old = renamed(" ".join(words[1:]))
        options = {option for parameter in self.params for option in parameter.opts}
        shared = renamed(ALL_COMMANDS)
        old |= {name: entry for name, entry in shared.items() if entry.new in options}
        rest: list[str] = super().parse_args(ctx, list(_with_new_spellings(args, old)))
        return rest


def _with_new_spellings(args: Sequence[str], old: dict[str, Renamed]) -> Iterator[str]:
    for position, argument in enumerate(args):
        if argument == "--":
            yield from args[position:]
            return
        option, equals, value = argument.partition("=")
        entry = old.get(option)
        if entry is None:
            yield argument
        else:
            print(f"note: {entry.message}", file=sys.stderr)
            yield f"{entry.new}{equals}{value}"


class Commands(typer.Typer):
    """A typer application whose commands are `Command`s."""

    def command(self, name: str | None = None, **options: Any) -> Any:
        """Register a command, as typer does."""
        return super().command(name, **{"cls": Command, **options})


def group(text: str) -> typer.Typer:
    """Return a group that shows its help when it is called without a command."""
    return Commands(help=text, no_args_is_help=True, rich_markup_mode="rich")
