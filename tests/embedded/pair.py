"""The same call on two backends, and whether they answered alike.

Compared are values, and errors by class and code; never ids, times, messages or batch cuts.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from fluss_client.backend.contract import Backend, BucketAck
from fluss_client.errors import FlussError
from fluss_client.model.cluster import OffsetSpec
from fluss_client.model.table import TableBucket, TableInfo, TablePath
from tests.waiting import wait_until_async

T = TypeVar("T")
READY_WITHIN_S = 60.0


class LoopThread:
    """An event loop on a thread of its own, for tests that are not coroutines."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    def close(self) -> None:
        """Stop the loop and its thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


@dataclass
class Side:
    """One backend with what it knows of each table."""

    name: str
    backend: Backend
    tables: dict[str, TableInfo]

    def place(self, table: str, bucket: int, partition_id: int | None = None) -> TableBucket:
        """A bucket, by this side's own ids."""
        return TableBucket(self.tables[table].table_id, bucket, partition_id=partition_id)

    async def refresh(self, path: TablePath) -> None:
        """Learn the table's newest description."""
        self.tables[path.table_name] = await self.backend.get_table_info(path)

    async def until_ready(self, table: str, partition_id: int | None = None) -> None:
        """Wait until a new table's buckets have leaders, which on a cluster takes a moment."""
        info = self.tables[table]

        async def has_leader(bucket: int) -> bool:
            try:
                await self.backend.list_offsets(info, partition_id, [bucket], OffsetSpec.latest())
            except FlussError as error:
                if not error.stale_metadata:
                    raise
                return False
            return True

        for bucket in range(info.num_buckets):
            look = functools.partial(has_leader, bucket)
            await wait_until_async(f"a leader of bucket {bucket}", look, READY_WITHIN_S)


Call = Callable[[Side], Awaitable[Any]]


async def outcome(call: Awaitable[Any]) -> Any:
    """A call's result, or its error as class and code."""
    try:
        return plain(await call)
    except FlussError as error:
        return (type(error).__name__, error.error_code)


def plain(value: Any) -> Any:
    """A value without what may differ between backends."""
    if isinstance(value, BucketAck):
        if value.error is not None:
            return (type(value.error).__name__, value.error.error_code)
        return value.offset
    return value


class Pair:
    """Two backends that must agree."""

    def __init__(self, real: Side, embedded: Side) -> None:
        self.real = real
        self.embedded = embedded

    async def both(self, call: Call) -> Any:
        """The answer that both gave; AssertionError when they differ."""
        ours, theirs = await asyncio.gather(outcome(call(self.embedded)), outcome(call(self.real)))
        assert ours == theirs, f"embedded: {ours}\ncluster: {theirs}"
        return ours
