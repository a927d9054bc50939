"""How a group of commands looks."""

from __future__ import annotations

import typer


def group(text: str) -> typer.Typer:
    """A group that shows its help when it is called without a command."""
    return typer.Typer(help=text, no_args_is_help=True, rich_markup_mode="rich")
