"""Errors of scans, with the bucket that they are about."""

from __future__ import annotations

from fluss_client.errors import ClientError, FlussError, LogOffsetOutOfRangeError
from fluss_client.model.table import TableBucket, TableInfo


class SubscriptionError(ClientError):
    """A subscription that does not fit the table, or a read without any."""


class ReaderActiveError(SubscriptionError):
    """The scanner's rows belong to a batch reader, until that is read to its end or dropped."""


class OffsetUnavailableError(LogOffsetOutOfRangeError):
    """The log has no such offset; the fields say what was asked for and what there is.

    `earliest` and `latest` are None when the server could not be asked any more.
    """

    def __init__(
        self,
        table: TableInfo,
        bucket: TableBucket,
        offset: int,
        earliest: int | None,
        latest: int | None,
    ) -> None:
        if earliest is None or latest is None:
            there = "what it still holds is not known"
        else:
            there = f"it holds [{earliest}, {latest})"
        super().__init__(
            f"{table.table_path}: {bucket} has no offset {offset}: {there}; subscribe from an "
            "offset in that range, or read the rest from the lake"
        )
        self.bucket = bucket
        self.offset = offset
        self.earliest = earliest
        self.latest = latest


def with_bucket(error: Exception, table: TableInfo, bucket: TableBucket, offset: int) -> Exception:
    """The same error with the bucket and offset in its text.

    A new object, because one broken line fails many buckets with one error.
    """
    if not isinstance(error, FlussError) or type(error).__init__ is not FlussError.__init__:
        return error
    where = f"{table.table_path}: {bucket} at offset {offset}"
    told = type(error)(f"{where}: {error.message}", error.error_code)
    told.__cause__ = error
    return told
