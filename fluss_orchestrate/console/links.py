"""Addresses of pages of a console, for links from schedulers. It needs no extra package."""

from __future__ import annotations

from urllib.parse import urlencode


def page(base: str, kind: str, name: str) -> str:
    """Return the address of the page of one thing.

    Args:
        base: Where the console is, such as `https://fluss.example` or `/fluss/fluss_default`.
        kind: `table`, `checkpoint` or `lake`.
        name: Its name. It may hold any character.
    """
    return f"{base.rstrip('/')}/{kind}?{urlencode({'name': name})}"


def table_page(base: str, table: str) -> str:
    """Return the address of the page of a table, `database.table`."""
    return page(base, "table", table)


def checkpoint_page(base: str, checkpoint: str) -> str:
    """Return the address of the page of a checkpoint."""
    return page(base, "checkpoint", checkpoint)


def lake_page(base: str, table: str) -> str:
    """Return the address of the page of a table's lake."""
    return page(base, "lake", table)
