"""Errors of loads. They stand under the client's root, `FlussError`."""

from __future__ import annotations

from fluss_client.errors import ClientError


class LoadError(ClientError):
    """A load cannot go on; `table` and `load_id` say which."""

    def __init__(self, table: str, load_id: str, message: str) -> None:
        super().__init__(f"load {load_id} into {table}: {message}")
        self.table = table
        self.load_id = load_id


class PinExpiredError(LoadError):
    """A load was begun so long ago that the servers may have forgotten what they hold of it."""


class RowsDifferError(LoadError):
    """A load was begun with other rows; nothing more was sent."""
