"""What a bucket needs before its batches can go out: a pause, a location, a writer id."""

from __future__ import annotations

import asyncio

from fluss_client.aio.bucket_line import BucketLine
from fluss_client.aio.existence import Existence
from fluss_client.backend.contract import NO_WRITER, Backend
from fluss_client.config import Config
from fluss_client.errors import FlussError, StorageBackpressureError
from fluss_client.model.table import TableInfo
from fluss_client.net.retry import backoff_ms

EXISTENCE_CHECK_EVERY = 4
"""Failed rounds after which it is asked whether the table and the partition are still there."""


class Preparer:
    """Makes lines ready. The first writer id serves all buckets, a later one its own bucket."""

    def __init__(self, backend: Backend, table: TableInfo, config: Config) -> None:
        self._backend = backend
        self._table = table
        self._throttle_max_ms = config.writer_kv_backpressure_max_throttle_ms
        self._existence = Existence(backend, table)
        self._first_writer: asyncio.Task[int] | None = None

    async def attempt(self, line: BucketLine) -> None:
        """Try once; FlussError says why the line is not ready."""
        if line.failures:
            await asyncio.sleep(self._pause_ms(line) / 1000)
        if line.stale:
            await self._backend.forget_location(self._table, line.bucket)
            line.stale = False
            if line.failures and line.failures % EXISTENCE_CHECK_EVERY == 0:
                gone = await self._existence.find_dropped(line.bucket)
                if gone is not None:
                    raise gone
        if line.needs_writer:
            line.adopt_writer(await self._writer_id(line))
        line.node = await self._backend.locate(self._table, line.bucket)

    def _pause_ms(self, line: BucketLine) -> float:
        pause_ms = backoff_ms(line.failures - 1)
        if isinstance(line.last_error, StorageBackpressureError):
            return min(pause_ms, self._throttle_max_ms)
        return pause_ms

    async def _writer_id(self, line: BucketLine) -> int:
        paths = [self._table.table_path]
        if line.writer_id != NO_WRITER:
            return await self._backend.init_writer(paths)
        task = self._first_writer
        if task is None:
            task = self._first_writer = asyncio.ensure_future(self._backend.init_writer(paths))
        try:
            return await asyncio.shield(task)
        except FlussError:
            if self._first_writer is task:
                self._first_writer = None
            raise
