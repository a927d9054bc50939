"""Asking before something is destroyed."""

from __future__ import annotations

import sys

from fluss_orchestrate.cli.failures import CommandError


def make_sure(what: str, yes: bool) -> None:
    """Go on only if the person at the terminal agrees, or `--yes` was given.

    Where nobody can be asked it is refused: a script must say that it means it.
    """
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise CommandError(f"this would {what}; nobody can be asked here, so say --yes to mean it")
    print(f"This will {what}. Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("nothing was done")
