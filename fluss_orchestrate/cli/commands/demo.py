"""`fluss-orchestrate demo`: the main job from nothing, in one command."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Annotated

import typer

from fluss_orchestrate.cli.options import JsonOption
from fluss_orchestrate.cli.presentation.output import to_json

STANDARD_ERROR = 2


def demo(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- OPTIONS", help="For the demo itself; -- --help lists them."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run the demo: provision, take increments through crashes, tier, count every row.

    Needs no server and leaves nothing behind. Exit code 1 unless every row arrived exactly once.

    Examples:

      fluss-orchestrate demo

      fluss-orchestrate demo -- --rows 5000 --keep /tmp/demo
    """
    started = time.monotonic()
    command = [sys.executable, "-m", "fluss_orchestrate._demo", *(arguments or ())]
    # With --json the story goes to standard error: standard output has the answer only.
    done = subprocess.run(command, stdout=STANDARD_ERROR if as_json else None, check=False)
    if as_json:
        spent = round(time.monotonic() - started, 1)
        print(to_json({"every_row_exactly_once": done.returncode == 0, "seconds": spent}))
    if done.returncode:
        raise typer.Exit(1 if done.returncode < 0 else done.returncode)
