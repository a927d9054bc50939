"""Errors of loads. Their base class is the client's `FlussError`."""

from __future__ import annotations

from fluss_client import TableBucket
from fluss_client.errors import ClientError, ConfigError


class LoadError(ClientError):
    """A load cannot continue; `table` and `load_id` identify it."""

    def __init__(self, table: str, load_id: str, message: str) -> None:
        super().__init__(f"load {load_id} into {table}: {message}")
        self.table = table
        self.load_id = load_id


class PinExpiredError(LoadError):
    """A load was begun so long ago that the servers may have forgotten its writer ids."""


class RowsDifferError(LoadError):
    """A load was begun with other rows; nothing more was sent."""


class MirroredTableError(LoadError):
    """The table is a mirror, which the rows of a load would make wrong; nothing was sent.

    Attributes:
        checkpoint: The checkpoint of the mirror.
    """

    def __init__(self, table: str, load_id: str, checkpoint: str) -> None:
        super().__init__(
            table,
            load_id,
            f"the table is the mirror of checkpoint '{checkpoint}', which other rows would make "
            "wrong; nothing was sent. Load into the table that is mirrored, or into another one; "
            "or, if the mirror is given up, drop this table and create it again",
        )
        self.checkpoint = checkpoint


class RowsUsedError(LoadError):
    """The rows are a reader that an earlier call has read; nothing was sent."""


class PlacedElsewhereError(ClientError):
    """Rows were placed by another bucket count than their partition has; none of them was written.

    The partition was created while the bucket count of its table was changed. Trying again places
    the rows by the count that the partition has.

    Attributes:
        table: The table.
        bucket: The bucket for which the rows were meant.
        bucket_count: The bucket count by which they were placed.
    """

    retriable = True

    def __init__(self, table: str, bucket: TableBucket, bucket_count: int) -> None:
        super().__init__(
            f"{table}: rows for {bucket} were placed by {bucket_count} buckets, and the partition "
            "was created with another count: the bucket count of the table was changed meanwhile. "
            "None of these rows was written; try the same again"
        )
        self.table = table
        self.bucket = bucket
        self.bucket_count = bucket_count


def checked_load_id(load_id: str) -> str:
    """Return the load id if it is valid.

    Raises:
        ConfigError: The id is empty, blank, or not a text.
    """
    if not isinstance(load_id, str) or not load_id.strip():
        raise ConfigError(
            f"a load id is a text that is not empty, not {load_id!r}: it names the rows of one "
            "load for good. If it comes from a template, look at what the template renders to"
        )
    return load_id


def differ_text(what: str) -> str:
    """Return the text of the error for rows that are not those of their load."""
    return (
        f"it was begun with other rows ({what}). A load id stands for the same rows in the same "
        "order, and nothing more was sent. Load again with the rows that it was begun with. Rows "
        "of this load may be in the table: sent under another id they would be written a second "
        "time, so use another id only for rows that this load does not have"
    )


EXPIRED_TEXT = (
    "it was begun more than six days ago and not finished; servers may have forgotten what they "
    "hold of it. Read the table to see which rows of the load it has, then load only the others, "
    "under another id"
)
