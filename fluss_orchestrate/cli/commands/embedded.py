"""`fluss-orchestrate embedded`: look after a directory of the embedded engine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fluss_orchestrate.cli.options import JsonOption, group
from fluss_orchestrate.cli.presentation.failures import FAILED
from fluss_orchestrate.cli.presentation.output import Output

app = group("Check and vacuum a directory of the embedded engine.")

PathArgument = Annotated[Path, typer.Argument(metavar="PATH", help="The directory.")]


@app.command()
def check(path: PathArgument, as_json: JsonOption = False) -> None:
    """Verify a directory and say what is wrong with it; exit code 1 if something is.

    Others may go on using it meanwhile.

    Example:

      fluss-orchestrate embedded check ~/fluss
    """
    from fluss_client.engine import check_directory as find_problems

    problems = find_problems(plain(path))
    Output(as_json).answer(
        {"path": str(path), "sound": not problems, "problems": problems},
        lambda: problems or f"{path} is sound",
    )
    if problems:
        raise typer.Exit(FAILED)


@app.command()
def vacuum(path: PathArgument, as_json: JsonOption = False) -> None:
    """Give back the room that expired rows and dropped tables took.

    Readers may go on; writers wait.

    Example:

      fluss-orchestrate embedded vacuum ~/fluss
    """
    from fluss_client.engine import vacuum_directory as reclaim

    done = reclaim(plain(path))
    freed = done.bytes_before - done.bytes_after
    Output(as_json).answer(
        {"path": str(path), **asdict(done)},
        lambda: (
            f"{done.batches_expired:,} expired batches, {freed:,} bytes given back, "
            f"{done.bytes_after:,} left"
        ),
    )


def plain(path: Path) -> Path:
    """Return the directory, also if it was written as an address."""
    text = str(path)
    return Path(text.removeprefix("embedded:")).expanduser()
