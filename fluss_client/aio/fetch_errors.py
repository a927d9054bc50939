"""Finding out what an error of one bucket means: a lost offset, a dropped table, or patience."""

from __future__ import annotations

from fluss_client.aio.existence import Existence
from fluss_client.aio.fetch_state import BucketState
from fluss_client.aio.offsets import bucket_offsets
from fluss_client.aio.scan_errors import OffsetUnavailableError
from fluss_client.backend.contract import Backend
from fluss_client.errors import (
    FlussError,
    LeaderNotAvailableError,
    LogOffsetOutOfRangeError,
    UnknownServerError,
    UnknownTableOrBucketError,
)
from fluss_client.model.cluster import EARLIEST_OFFSET, OffsetSpec
from fluss_client.model.table import TableBucket, TableInfo

UNKNOWN_TRIES_MAX = 3
"""Answers "unknown bucket" in a row before the table and partition are looked up."""
EARLIEST_TRIES_MAX = 3
"""How often a subscription from the earliest offset is moved on when retention overtakes it."""


def wants_diagnosis(state: BucketState, error: FlussError) -> bool:
    """Whether a diagnosis may know more about this error than it says itself."""
    if isinstance(error, UnknownTableOrBucketError):
        return (state.failures + 1) % UNKNOWN_TRIES_MAX == 0
    return isinstance(
        error, LogOffsetOutOfRangeError | LeaderNotAvailableError | UnknownServerError
    )


def may_start_again(state: BucketState) -> bool:
    """Whether an offset that went away was nobody's choice: earliest, and nothing read yet."""
    return state.fresh and state.start == EARLIEST_OFFSET and state.failures < EARLIEST_TRIES_MAX


class Diagnosis:
    """Asks the backend what lies behind the errors of one table's buckets."""

    def __init__(self, backend: Backend, table: TableInfo) -> None:
        self._backend = backend
        self._table = table
        self._existence = Existence(backend, table)

    async def of(self, state: BucketState, error: FlussError) -> FlussError:
        """The error that tells most: what range there is, what was dropped, or `error` itself."""
        if isinstance(error, LogOffsetOutOfRangeError):
            return await self._with_range(state, error)
        try:
            return await self.find_dropped(state.bucket) or error
        except FlussError:
            # The server cannot be asked; the first error stands.
            return error

    async def _with_range(self, state: BucketState, error: FlussError) -> FlussError:
        bucket, offset = state.bucket, state.offset
        earliest: dict[TableBucket, int] = {}
        latest: dict[TableBucket, int] = {}
        try:
            earliest = await self._offsets(bucket, OffsetSpec.earliest())
            latest = await self._offsets(bucket, OffsetSpec.latest())
        except FlussError:
            # Told without the range then.
            latest = {}
        told = OffsetUnavailableError(
            self._table, bucket, offset, earliest.get(bucket), latest.get(bucket)
        )
        told.__cause__ = error
        return told

    async def _offsets(self, bucket: TableBucket, spec: OffsetSpec) -> dict[TableBucket, int]:
        return await bucket_offsets(self._backend, self._table, [bucket], spec)

    async def find_dropped(self, bucket: TableBucket) -> FlussError | None:
        """The error for a table or partition that is gone; None when both are there."""
        return await self._existence.find_dropped(bucket)
