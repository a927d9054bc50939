"""The command and its groups, and the one place where an error becomes a sentence."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from fluss_orchestrate.cli.commands import (
    bulk_load,
    checkpoints,
    cluster,
    databases,
    demo,
    doctor,
    embedded,
    lake,
    mirror,
    offsets,
    partitions,
    read,
    scan,
    status,
    tables,
    ui,
    write,
)
from fluss_orchestrate.cli.options import Command, Commands
from fluss_orchestrate.cli.presentation import failures

# Every command with the module that holds it, in the order of `--help`.
COMMANDS: dict[str, typer.Typer | Callable[..., None]] = {
    "databases": databases.app,
    "tables": tables.app,
    "partitions": partitions.app,
    "offsets": offsets.offsets,
    "read": read.read,
    "write": write.write,
    "lookup": read.lookup,
    "scan": scan.scan,
    "mirror": mirror.app,
    "checkpoints": checkpoints.app,
    "lake": lake.app,
    "bulk-load": bulk_load.bulk_load,
    "status": status.status,
    "ui": ui.ui,
    "cluster": cluster.app,
    "embedded": embedded.app,
    "demo": demo.demo,
    "doctor": doctor.doctor,
}

# Commands that need a class of their own.
CLASSES: dict[str, type[Command]] = {"scan": scan.ScanCommand}


def add_commands(app: typer.Typer) -> None:
    """Add every command and group to the root."""
    for name, command in COMMANDS.items():
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name, cls=CLASSES.get(name, Command))(command)


class Root(TyperGroup):
    """The root command: every command ends with an exit code, and one sentence on an error."""

    def __init__(self, **options: Any) -> None:
        # The first page is plain: panels cost more time to import than everything else together.
        super().__init__(**{**options, "rich_markup_mode": None})

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the commands in the order of `--help`."""
        return list(COMMANDS)

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Run the command line and end the process."""
        kwargs["standalone_mode"] = False
        try:
            code = super().main(*args, **kwargs)
            # What does not fit any more is an error of this command, not of the interpreter's end.
            sys.stdout.flush()
        except (KeyboardInterrupt, typer.Abort):
            sys.exit(128 + signal.SIGINT)
        except BrokenPipeError:
            # The reader went away, as `head` does; what is still buffered has nowhere to go.
            _drop_output()
            sys.exit(failures.FAILED)
        except Exception as error:  # noqa: BLE001 (a person gets a sentence, whatever it was)
            code = failures.report(error)
            _drop_output()
            sys.exit(code)
        sys.exit(code if isinstance(code, int) else 0)


app = Commands(
    name="fluss-orchestrate",
    cls=Root,
    help="Run Apache Fluss from Airflow, Dagster and Spark.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
add_commands(app)


def _print_version(asked: bool) -> None:
    if asked:
        from fluss_client import __version__

        print(__version__)
        raise typer.Exit()


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Say the version."),
    ] = False,
) -> None:
    """Run Apache Fluss from Airflow, Dagster and Spark."""


def run() -> NoReturn:
    """Run the command line."""
    signal.signal(signal.SIGTERM, _end)
    app()
    sys.exit(0)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    # As an exception, so that a start that is under way takes its servers down again.
    sys.exit(128 + number)


def _drop_output() -> None:
    """Let the interpreter end without an error if standard output cannot take the rest."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
