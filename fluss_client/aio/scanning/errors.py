"""Errors of scans, and how the cause of a bucket's error is found.

A server's error often does not tell the cause: an unknown bucket may be moving or may be dropped,
and an offset out of range does not say which range there is. `Diagnosis` asks the backend.
"""

from __future__ import annotations

from fluss_client.aio.existence import Existence
from fluss_client.aio.offsets import bucket_offsets
from fluss_client.aio.scanning.bucket_state import BucketState
from fluss_client.backend.contract import Backend
from fluss_client.errors import (
    ClientError,
    FlussError,
    LeaderNotAvailableError,
    LogOffsetOutOfRangeError,
    UnknownServerError,
    UnknownTableOrBucketError,
)
from fluss_client.model.cluster import EARLIEST_OFFSET, OffsetSpec
from fluss_client.model.table import TableBucket, TableInfo

UNKNOWN_TRIES_MAX = 3
"""Answers "unknown bucket" in a row before the client asks whether the table exists."""
EARLIEST_TRIES_MAX = 3
"""How often a subscription from the earliest offset is moved on when retention overtakes it."""


class SubscriptionError(ClientError):
    """The subscription does not fit the table, or no bucket is subscribed."""


class ReaderActiveError(SubscriptionError):
    """A batch reader is active on the scanner, and was neither read to its end nor dropped."""


class OffsetUnavailableError(LogOffsetOutOfRangeError):
    """The log does not have the requested offset.

    Args:
        table: The table that was read.
        bucket: The bucket that was read.
        offset: The offset that was requested.
        earliest: The first offset that the log has; None if the server did not say.
        latest: The offset after the last one that the log has; None if the server did not say.
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
    """Return the error with the bucket and offset in its text.

    It is a new object, because a broken connection fails many buckets with one error.
    """
    if not isinstance(error, FlussError) or type(error).__init__ is not FlussError.__init__:
        return error
    where = f"{table.table_path}: {bucket} at offset {offset}"
    located = type(error)(f"{where}: {error.message}", error.error_code)
    located.__cause__ = error
    return located


def wants_diagnosis(state: BucketState, error: FlussError) -> bool:
    """Return whether a `Diagnosis` may find the cause of this error."""
    if isinstance(error, UnknownTableOrBucketError):
        return (state.failures + 1) % UNKNOWN_TRIES_MAX == 0
    return isinstance(
        error, LogOffsetOutOfRangeError | LeaderNotAvailableError | UnknownServerError
    )


def may_start_again(state: BucketState) -> bool:
    """Return whether a bucket may be read from the earliest offset again.

    This is so if the user subscribed from the earliest offset and nothing was read yet: then an
    offset that retention has deleted was the choice of nobody.
    """
    return state.fresh and state.start == EARLIEST_OFFSET and state.failures < EARLIEST_TRIES_MAX


class Diagnosis:
    """Asks the backend for the cause of errors of one table's buckets."""

    def __init__(self, backend: Backend, table: TableInfo) -> None:
        self._backend = backend
        self._table = table
        self._existence = Existence(backend, table)

    async def of(self, state: BucketState, error: FlussError) -> FlussError:
        """Return the error that tells the cause, or `error` itself."""
        if isinstance(error, LogOffsetOutOfRangeError):
            return await self._with_range(state, error)
        try:
            return await self._existence.find_dropped(state.bucket) or error
        except FlussError:
            # The server does not answer, so the first error is all that is known.
            return error

    async def _with_range(self, state: BucketState, error: FlussError) -> FlussError:
        bucket = state.bucket
        earliest: dict[TableBucket, int] = {}
        latest: dict[TableBucket, int] = {}
        try:
            earliest = await self._offsets(bucket, OffsetSpec.earliest())
            latest = await self._offsets(bucket, OffsetSpec.latest())
        except FlussError:
            # The error is raised without the range then.
            latest = {}
        detailed = OffsetUnavailableError(
            self._table, bucket, state.offset, earliest.get(bucket), latest.get(bucket)
        )
        detailed.__cause__ = error
        return detailed

    async def _offsets(self, bucket: TableBucket, spec: OffsetSpec) -> dict[TableBucket, int]:
        return await bucket_offsets(self._backend, self._table, [bucket], spec)


def check_bucket_id(table: TableInfo, bucket: TableBucket, count: int | None) -> None:
    """Raise `SubscriptionError` if there is no bucket of this number among `count` buckets."""
    if bucket.bucket_id < 0 or (count is not None and bucket.bucket_id >= count):
        last = (table.num_buckets if count is None else count) - 1
        raise SubscriptionError(
            f"table {table.table_path} has no bucket {bucket.bucket_id}"
            f"{'' if bucket.partition_id is None else f' in partition {bucket.partition_id}'}: "
            f"its buckets are 0 to {last}"
        )
