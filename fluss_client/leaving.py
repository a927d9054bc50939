"""Closing after an error: what fails then is added to that error, and never takes its place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fluss_client.errors import FlussError


@contextmanager
def leaving(error: BaseException | None) -> Iterator[None]:
    """Around the closing in an `__exit__` that was given `error`."""
    try:
        yield
    except FlussError as closing:
        if error is None:
            raise
        error.add_note(f"closing failed as well: {closing}")
