"""The command and its groups, and the one place where an error becomes a sentence."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Annotated, NoReturn

import typer

import fluss_client._version
from fluss_client.errors import FlussError
from fluss_client.testing.errors import ServerStartError
from fluss_orchestrate.cli import cluster

app = typer.Typer(
    name="fluss-orchestrate",
    help="Run Apache Fluss from Airflow, Dagster and Spark.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
app.add_typer(cluster.app, name="cluster")


def _print_version(asked: bool) -> None:
    if asked:
        print(fluss_client._version.__version__)
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
    """Run the command line; what goes wrong is one sentence on standard error and exit code 1."""
    signal.signal(signal.SIGTERM, _end)
    try:
        sys.exit(app(standalone_mode=False))
    except ServerStartError as error:
        for line in error.log_tail:
            print(f"  {line}", file=sys.stderr)
        sys.exit(f"error: {error.message}")
    except FlussError as error:
        sys.exit(f"error: {error.message}")
    except (KeyboardInterrupt, typer.Abort):  # typer makes the second of the first
        sys.exit(128 + signal.SIGINT)
    except BrokenPipeError:
        # The reader went away, as `head` does; what is still buffered has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        # Which package the class of a usage error lives in depends on typer's version; that it
        # has a message and an exit code does not.
        if not hasattr(error, "format_message"):
            raise
        text = " ".join(error.format_message().split()).rstrip(".")
        if text:
            print(f"error: {text} (--help lists what there is)", file=sys.stderr)
        sys.exit(getattr(error, "exit_code", 1))


def _end(number: int, frame: FrameType | None) -> NoReturn:
    # As an exception, so that a start that is under way takes its servers down again.
    sys.exit(128 + number)
