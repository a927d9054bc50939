"""Errors of the lake and of tiering. Their base class is the client's `FlussError`."""

from __future__ import annotations

from collections.abc import Sequence

from fluss_client import TablePath
from fluss_client.errors import ClientError, UnsupportedError


class LakeError(ClientError):
    """The lake of a table cannot be used in this way; `table` says which."""

    def __init__(self, table: TablePath, message: str) -> None:
        super().__init__(f"{table}: {message}")
        self.table = table


class CatalogError(ClientError):
    """A catalog of Iceberg cannot be opened; the message says which, and what to do."""


class CatalogUnreachableError(CatalogError):
    """A catalog of Iceberg does not answer."""

    retriable = True


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


class LakeLayoutError(LakeError):
    """The Iceberg table has some of the system columns, or has them in another place.

    Attributes:
        present: The system columns that it has.
    """

    def __init__(self, table: TablePath, present: Sequence[str], wanted: Sequence[str]) -> None:
        super().__init__(
            table,
            f"its Iceberg table has {list(present)} of the system columns {list(wanted)}: a lake "
            "has all three as its last columns, with the types int, long and timestamptz (tables "
            "of Fluss before 1.0), or none of them. Put the columns back, or drop the Iceberg "
            "table and enable the lake again",
        )
        self.present = tuple(present)


class LakeOffsetsUnknownError(LakeRangeError):
    """The lake has no column `__offset`, and its snapshots do not tell the offsets of its rows."""

    def __init__(self, table: TablePath, reason: str) -> None:
        super().__init__(
            table,
            "its lake has no column __offset, and the offsets of its rows cannot be derived: "
            f"{reason}. Read the rows without offsets from the Iceberg table itself, or reset the "
            "checkpoint to an offset that the log still has",
        )


class LakeTimesUnknownError(LakeError):
    """The lake has no column `__timestamp`, so it has no commit times."""

    def __init__(self, table: TablePath) -> None:
        super().__init__(
            table,
            "its lake has no column __timestamp, so the commit times of its rows are not known: "
            "read it without the metadata column _timestamp",
        )


class CommitConflictError(ClientError):
    """Another commit to the Iceberg table came first; nothing of this one is in it."""

    retriable = True


class CommitUnknownError(ClientError):
    """A commit to an Iceberg table failed, and the catalog does not say whether it landed."""

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
