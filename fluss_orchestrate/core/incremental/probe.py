"""Looking at single batches of a log: where one ends, and when it was committed.

Only the narrowest column is fetched, because the headers are all that matters.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from fluss_client.backend.contract import Backend, FetchPosition, FetchRequest, LogSlice
from fluss_client.config import Config
from fluss_client.errors import (
    FlussError,
    PartitionNotExistError,
    TableNotExistError,
    UnknownServerError,
    UnknownTableOrBucketError,
)
from fluss_client.model.cluster import ChangeType
from fluss_client.model.table import TableBucket, TableInfo
from fluss_client.model.types import DataType, Root
from fluss_client.net.retry import Deadline, retrying
from fluss_orchestrate.core.plan import Place

ONE_BATCH_BYTES = 1
"""Servers send at least one batch, however small the limit is."""
WALK_BYTES = 256 << 10
FETCH_WAIT_MS = 10

_WIDTHS = {
    Root.BOOLEAN: 0,
    Root.TINYINT: 1,
    Root.SMALLINT: 2,
    Root.INTEGER: 4,
    Root.DATE: 4,
    Root.FLOAT: 4,
    Root.BIGINT: 8,
    Root.DOUBLE: 8,
}
_WIDE = 100


@dataclass(frozen=True, slots=True)
class BatchMark:
    """The offsets [start, stop) of one batch, or what follows a probe in it; and its time."""

    start: int
    stop: int
    commit_ms: int


class Prober:
    """Asks for batches of one table. Its coroutines run on the I/O thread."""

    def __init__(
        self,
        backend: Backend,
        config: Config,
        info: TableInfo,
        columns: tuple[int, ...] | None = None,
    ) -> None:
        """`columns` are for `sizes`; without them the narrowest one is fetched."""
        self._backend = backend
        self._config = config
        self._info = info
        types = [column.type for column in info.schema.columns]
        narrowest = min(range(len(types)), key=lambda i: (_width(types[i]), i))
        self._columns = columns or (narrowest,)

    async def batch_at(self, place: Place, offset: int) -> BatchMark | None:
        """The batch that holds an offset, from that offset on; None at the end of the log."""
        marks = await self.walk(place, offset, ONE_BATCH_BYTES)
        return marks[0] if marks else None

    async def walk(self, place: Place, offset: int, bytes_max: int = WALK_BYTES) -> list[BatchMark]:
        """Some batches from an offset on; none at the end of the log."""
        slices = await self._slices(place, offset, bytes_max)
        return [BatchMark(s.base_offset, s.next_offset, s.timestamp) for s in slices]

    async def sizes(self, place: Place, offset: int, bytes_max: int) -> tuple[int, int]:
        """Rows from an offset on, and the bytes that they take in Arrow's form."""
        slices = await self._slices(place, offset, bytes_max)
        batches = [(await asyncio.to_thread(s.decode))[0] for s in slices]
        return sum(b.num_rows for b in batches), sum(b.nbytes for b in batches)

    async def is_update_before(self, place: Place, offset: int) -> bool:
        """Whether the record at an offset is the first half of an update (-U)."""
        slices = await self._slices(place, offset, ONE_BATCH_BYTES)
        if not slices or slices[0].base_offset != offset or not slices[0].row_count:
            return False
        _, changes = slices[0].decode()
        return changes is not None and int(changes[0]) == ChangeType.UpdateBefore

    async def _slices(self, place: Place, offset: int, bytes_max: int) -> Sequence[LogSlice]:
        info = self._info
        bucket = TableBucket(info.table_id, place[1], partition_id=place[0])

        async def ask() -> Sequence[LogSlice]:
            node = await self._backend.locate(info, bucket)
            request = FetchRequest(
                info,
                [FetchPosition(bucket, offset, bytes_max)],
                self._columns,
                bytes_max=bytes_max,
                wait_ms=FETCH_WAIT_MS,
            )
            answer = (await self._backend.fetch(node, request))[0]
            if answer.error is not None:
                raise answer.error
            return answer.slices

        async def forget(error: FlussError) -> None:
            if error.stale_metadata:
                await self._backend.forget_location(info, bucket)
            if isinstance(error, UnknownTableOrBucketError):
                await self._check_exists(bucket)

        def may_repeat(error: FlussError) -> bool:
            # Servers fail so when a segment goes to remote storage while it is read.
            return error.retriable or isinstance(error, UnknownServerError)

        deadline = Deadline(self._config.request_timeout_ms)
        return await retrying(ask, deadline, on_error=forget, retriable=may_repeat)

    async def _check_exists(self, bucket: TableBucket) -> None:
        """Servers answer for ever that they do not know the buckets of what was dropped."""
        path = self._info.table_path
        if (await self._backend.get_table_info(path)).table_id != self._info.table_id:
            raise TableNotExistError(f"table {path} was dropped and created again")
        if bucket.partition_id is not None:
            partitions = await self._backend.list_partitions(path, None)
            if all(p.partition_id != bucket.partition_id for p in partitions):
                raise PartitionNotExistError(
                    f"partition {bucket.partition_id} of table {path} was dropped"
                )


def _width(data_type: DataType) -> int:
    return _WIDTHS.get(data_type.root, _WIDE)
