"""Many sensors on one event loop: on the shared poller, or each polling for itself."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from benchmarks.harness import Measured
from benchmarks.orchestration.data import POLL_INTERVAL_S
from fluss_client import FlussConnection, Schema, TableDescriptor, TablePath, aio
from fluss_orchestrate.core.conditions import RowsCame, wait_until
from fluss_orchestrate.core.plan import Position
from fluss_orchestrate.core.polling import poller_of

WAKE_MAX_S = 30.0
WAITERS_PER_S = 10_000
"""How many begin to wait within a second, at least."""
Waiting = Sequence[tuple[TablePath, asyncio.Future[object]]]
Wait = Callable[[aio.FlussConnection, RowsCame], Awaitable[object]]


def one_bucket_tables(connection: FlussConnection, database: str, count: int) -> list[TablePath]:
    """Tables to wait for."""
    admin = connection.get_admin().result()
    descriptor = TableDescriptor(Schema(pa.schema([("id", pa.int64())])), bucket_count=1)
    paths = [TablePath(database, f"t{number}") for number in range(count)]
    for path in paths:
        admin.create_table(path, descriptor).result()
    return paths


@dataclass(frozen=True)
class Crowd:
    """Sensors spread over tables; each waits for the next row of its own."""

    bootstrap: str
    writer: FlussConnection
    tables: Sequence[TablePath]
    waiters: int
    watch_s: float
    wakes: int

    def on_poller(self) -> Measured:
        """What the product does: equal questions are asked once."""
        return asyncio.run(self._measure(lambda core, condition: wait_until(core, condition)))

    def each_alone(self) -> Measured:
        """What a sensor with a loop of its own does."""

        async def poll(core: aio.FlussConnection, condition: RowsCame) -> object:
            while True:
                found = await condition.check(core)
                if found is not None:
                    return found
                await asyncio.sleep(POLL_INTERVAL_S)

        return asyncio.run(self._measure(poll))

    async def _measure(self, wait: Wait) -> Measured:
        """CPU of a core in percent; polls per second; from a row's append to the last wake-up."""
        config = aio.Config({"bootstrap.servers": self.bootstrap})
        core = await aio.FlussConnection.create(config)
        try:
            ends = await self._ends(core)
            places = itertools.islice(itertools.cycle(self.tables), self.waiters)
            waiting = [
                (path, asyncio.ensure_future(wait(core, RowsCame(path, ends[path], None, 1))))
                for path in places
            ]
            # Everybody has asked once when the watch begins.
            await asyncio.sleep(POLL_INTERVAL_S + self.waiters / WAITERS_PER_S)
            before = poller_of(core).requests
            cpu, started = time.process_time(), time.perf_counter()
            await asyncio.sleep(self.watch_s)
            seconds = time.perf_counter() - started
            cpu_share = (time.process_time() - cpu) / seconds
            polls = (poller_of(core).requests - before) / seconds
            wakes_ms = await self._wakes(waiting)
            for _, task in waiting:
                task.cancel()
            await asyncio.gather(*(task for _, task in waiting), return_exceptions=True)
        finally:
            await core.close()
        also = {"polls/s": polls, "wake-up ms": statistics.median(wakes_ms)}
        return Measured(cpu_share * 100, also=also)

    async def _ends(self, core: aio.FlussConnection) -> dict[TablePath, Position]:
        """Where each table ends now."""
        admin = core.get_admin()
        latest = aio.OffsetSpec.latest()
        found = {path: await admin.list_offsets(path, [0], latest) for path in self.tables}
        return {path: {(None, 0): offsets[0]} for path, offsets in found.items()}

    async def _wakes(self, waiting: Waiting) -> list[float]:
        """Rows for a few tables, at different times within the interval."""
        paths = self.tables[: min(self.wakes, self.waiters)]
        found = []
        for turn, path in enumerate(paths):
            await asyncio.sleep(POLL_INTERVAL_S * (turn + 0.5) / len(paths))
            found.append(await self._wake(path, waiting))
        return found

    async def _wake(self, path: TablePath, waiting: Waiting) -> float:
        mine = [task for place, task in waiting if place == path]
        await asyncio.to_thread(self._append, path)
        started = time.perf_counter()
        done, _ = await asyncio.wait(mine, timeout=WAKE_MAX_S)
        if len(done) < len(mine):
            raise SystemExit(f"{len(mine) - len(done)} sensors of {path} did not wake up")
        return (time.perf_counter() - started) * 1000

    def _append(self, path: TablePath) -> None:
        with self.writer.get_table(path).result().new_append().create_writer() as writer:
            writer.append({"id": 1})
