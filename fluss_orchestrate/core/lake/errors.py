"""Errors of the lake and of tiering. Their base class is the client's `FlussError`."""

from __future__ import annotations

from fluss_client import TablePath
from fluss_client.errors import ClientError, UnsupportedError


class LakeError(ClientError):
    """The lake of a table cannot be used in this way; `table` says which."""

    def __init__(self, table: TablePath, message: str) -> None:
        super().__init__(f"{table}: {message}")
        self.table = table


class NoLakeError(LakeError):
    """The table has no lake."""

    def __init__(self, table: TablePath) -> None:
        super().__init__(
            table,
            "it has no lake: create it with table.datalake.enabled=true on a cluster that has "
            "datalake.format set",
        )


class LakeRangeError(LakeError):
    """The lake does not have exactly the requested offsets."""

    def __init__(self, table: TablePath, message: str, expected: int = -1, found: int = -1) -> None:
        super().__init__(table, message)
        self.expected = expected
        self.found = found


class CommitConflictError(ClientError):
    """Another commit to the Iceberg table came first; nothing of this one is in it."""

    retriable = True


class TieringNotAllowedError(ClientError):
    """Tiering was not allowed by the caller: it replaces the cluster's own tiering service."""

    def __init__(self) -> None:
        super().__init__(
            "tiering is off unless asked for: pass allow_tiering=True where no other tiering "
            "service (Flink) works on these tables"
        )


class RowDeltaError(UnsupportedError):
    """Rows of an Iceberg table cannot be replaced by key; `table` is the Iceberg table."""

    def __init__(self, table: str, message: str) -> None:
        super().__init__(f"{table}: {message}")
        self.table = table


class EqualityDeleteError(UnsupportedError):
    """An equality-delete file cannot be applied, so the rows cannot be read correctly."""

    def __init__(self, file: str, message: str) -> None:
        super().__init__(f"{file}: {message}")
        self.file = file


class TieringFencedError(LakeError):
    """The coordinator assigned the table to another worker; nothing was committed."""

    retriable = True


class TieringVerifyError(LakeError):
    """The written rows do not match the offsets; nothing was committed to the cluster."""


class TieringContendedError(LakeError):
    """Other processes kept committing to the table's lake; this round was ended."""

    retriable = True


class LakeContendedError(LakeError):
    """Others kept committing to the table's lake; this step of maintenance was given up."""

    retriable = True


class WaitTimedOutError(LakeError):
    """The wait timed out; waiting again loses nothing."""

    retriable = True
    unmet: str = ""
    """What the caller waited for, and its state at the last check."""

    @classmethod
    def after(cls, table: TablePath, seconds: float, unmet: str) -> WaitTimedOutError:
        """Return the error of a wait that took so long; `unmet` says what did not come."""
        error = cls(table, f"after {round(seconds, 1):g} s {unmet}")
        error.unmet = unmet
        return error
