"""Finding out what an error of one bucket means: a lost offset, a dropped table, or patience."""

from __future__ import annotations

from fluss_client.aio.fetch_state import BucketState
from fluss_client.aio.offsets import bucket_offsets
from fluss_client.aio.scan_errors import OffsetUnavailableError
from fluss_client.backend.contract import Backend
from fluss_client.errors import (
    FlussError,
    LeaderNotAvailableError,
    LogOffsetOutOfRangeError,
    PartitionNotExistError,
    TableNotExistError,
    UnknownServerError,
    UnknownTableOrBucketError,
)
from fluss_client.model.cluster import EARLIEST_OFFSET, OffsetSpec
from fluss_client.model.table import TableBucket, TableInfo

UNKNOWN_TRIES_MAX = 3
"""Answers "unknown bucket" in a row before the table and partition are looked up."""
EARLIEST_TRIES_MAX = 3
"""How often a subscription from the earliest offset is moved on when retention overtakes it."""

_MAYBE_DROPPED = (UnknownTableOrBucketError, LeaderNotAvailableError, UnknownServerError)


def wants_diagnosis(state: BucketState, error: FlussError) -> bool:
    """Whether `diagnose` may know more about this error than it says itself."""
    if isinstance(error, LogOffsetOutOfRangeError):
        return True
    if isinstance(error, UnknownServerError):
        return True
    return isinstance(error, _MAYBE_DROPPED) and (state.failures + 1) % UNKNOWN_TRIES_MAX == 0


async def diagnose(
    backend: Backend, table: TableInfo, state: BucketState, error: FlussError
) -> FlussError:
    """The error that tells most: the range that is there, what was dropped, or `error` itself."""
    try:
        if isinstance(error, LogOffsetOutOfRangeError):
            return await _with_range(backend, table, state, error)
        return await find_dropped(backend, table, state.bucket) or error
    except FlussError:
        # The server cannot be asked; the first error stands.
        return error


def may_start_again(state: BucketState) -> bool:
    """Whether an offset that went away was nobody's choice: earliest, and nothing read yet."""
    return state.fresh and state.start == EARLIEST_OFFSET and state.failures < EARLIEST_TRIES_MAX


async def _with_range(
    backend: Backend, table: TableInfo, state: BucketState, error: FlussError
) -> FlussError:
    bucket, offset = state.bucket, state.offset
    try:
        earliest = await bucket_offsets(backend, table, [bucket], OffsetSpec.earliest())
        latest = await bucket_offsets(backend, table, [bucket], OffsetSpec.latest())
    except FlussError:
        told = OffsetUnavailableError(table, bucket, offset, None, None)
    else:
        told = OffsetUnavailableError(table, bucket, offset, earliest[bucket], latest[bucket])
    told.__cause__ = error
    return told


async def find_dropped(
    backend: Backend, table: TableInfo, bucket: TableBucket
) -> FlussError | None:
    """The error for a table or partition that is gone; None when both are there."""
    path = table.table_path
    try:
        now = await backend.get_table_info(path)
    except TableNotExistError:
        return TableNotExistError(f"table {path} was dropped while {bucket} was read")
    if now.table_id != table.table_id:
        return TableNotExistError(
            f"table {path} was dropped while {bucket} was read, and made anew with id "
            f"{now.table_id}; open it again"
        )
    if bucket.partition_id is None:
        return None
    partitions = await backend.list_partitions(path, None)
    if any(partition.partition_id == bucket.partition_id for partition in partitions):
        return None
    return PartitionNotExistError(
        f"partition {bucket.partition_id} of table {path} was dropped while {bucket} was read"
    )
