"""A client that is awaited: pyfluss in each case, and `fluss_client.aio`, which has its surface.

The methods are those of `Ours`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.client.data import LINES, Row
from benchmarks.harness import Measured, median_of, stopwatch
from fluss_client import TablePath

POLL_MS = 5_000


class Awaited:
    """The client of a module, on a loop of its own."""

    def __init__(self, client: ModuleType, bootstrap: str) -> None:
        self._client = client
        self._loop = asyncio.new_event_loop()
        config = client.Config({"bootstrap.servers": bootstrap.split(",")[0]})
        self._connection = self._do(lambda: client.FlussConnection.create(config))

    def _do(self, call: Callable[[], Awaitable[Any]]) -> Any:
        # pyfluss wants a running loop at the call already, not only at the await.
        async def run() -> Any:
            return await call()

        return self._loop.run_until_complete(run())

    def close(self) -> None:
        self._do(self._connection.close)
        self._loop.close()

    def _table(self, path: TablePath) -> Any:
        named = self._client.TablePath(path.database_name, path.table_name)
        return self._do(lambda: self._connection.get_table(named))

    def append_arrow(self, path: TablePath, batches: Sequence[pa.RecordBatch]) -> Measured:
        writer = self._table(path).new_append().create_writer()
        size = sum(batch.nbytes for batch in batches)

        def work() -> tuple[float, object]:
            for batch in batches:
                writer.write_arrow_batch(batch)
            self._do(writer.flush)
            return size, None

        return stopwatch(work)

    def append_rows(self, path: TablePath, rows: Sequence[Row]) -> Measured:
        writer = self._table(path).new_append().create_writer()

        def work() -> tuple[float, object]:
            append = writer.append
            for row in rows:
                append(row)
            self._do(writer.flush)
            return len(rows), None

        return stopwatch(work)

    def upsert_rows(self, path: TablePath, rows: Sequence[Row]) -> Measured:
        writer = self._table(path).new_upsert().create_writer()

        def work() -> tuple[float, object]:
            upsert = writer.upsert
            for row in rows:
                upsert(row)
            self._do(writer.flush)
            return len(rows), None

        return stopwatch(work)

    def scan(
        self,
        path: TablePath,
        size: float,
        columns: list[str] | None = None,
        partitions: Sequence[int] = (),
    ) -> Measured:
        table = self._table(path)
        scan = table.new_scan()
        if columns is not None:
            scan = scan.project_by_name(columns)
        scanner = self._do(scan.create_record_batch_log_scanner)
        buckets = range(table.get_table_info().num_buckets)

        def work() -> tuple[float, object]:
            if partitions:
                places = {(p, b): self._client.EARLIEST_OFFSET for p in partitions for b in buckets}
                scanner.subscribe_partition_buckets(places)
            else:
                scanner.subscribe_buckets(dict.fromkeys(buckets, self._client.EARLIEST_OFFSET))
            read = self._do(scanner.to_arrow)
            return size, (read.num_rows, pc.sum(read.column("id")).as_py())

        return stopwatch(work)

    def changelog(self, path: TablePath, rows: int) -> Measured:
        scanner = self._do(self._table(path).new_scan().create_log_scanner)

        def work() -> tuple[float, object]:
            scanner.subscribe(0, self._client.EARLIEST_OFFSET)
            seen = total = 0
            while seen < rows:
                for record in self._do(lambda: scanner.poll(POLL_MS)):
                    seen += 1
                    total += record.row["id"]
            return seen, (seen, total)

        return stopwatch(work)

    def poll_fresh(self, path: TablePath, row: Row, count: int) -> Measured:
        table = self._table(path)
        writer = table.new_append().create_writer()
        writer.append(row)
        self._do(writer.flush)
        scanner = self._do(table.new_scan().create_log_scanner)
        scanner.subscribe(0, self._client.EARLIEST_OFFSET)
        while self._do(lambda: scanner.poll(200)).count():
            continue

        async def one() -> Measured:
            started = time.perf_counter()
            writer.append(row)
            flushing = asyncio.ensure_future(writer.flush())
            while not (await scanner.poll(POLL_MS)).count():
                continue
            taken = time.perf_counter() - started
            await flushing
            return Measured(taken * 1000)

        return median_of([self._do(one) for _ in range(count)])

    def lookup(self, path: TablePath, count: int) -> Measured:
        lookuper = self._table(path).new_lookup().create_lookuper()
        return self._one_by_one(lookuper.lookup, count, lambda row: row is not None)

    def lookup_prefix(self, path: TablePath, count: int) -> Measured:
        lookuper = self._table(path).new_lookup().lookup_by(["id"]).create_lookuper()
        return self._one_by_one(lookuper.lookup, count, lambda rows: len(rows) == LINES)

    def _one_by_one(
        self, lookup: Callable[[Row], Awaitable[Any]], count: int, found: Callable[[Any], bool]
    ) -> Measured:
        async def all_of_them() -> None:
            for key in range(count):
                assert found(await lookup({"id": key}))

        def work() -> tuple[float, object]:
            self._do(all_of_them)
            return count, None

        return stopwatch(work)

    def lookup_at_once(self, path: TablePath, count: int) -> Measured:
        lookuper = self._table(path).new_lookup().create_lookuper()

        async def all_of_them() -> list[Any]:
            return await asyncio.gather(*(lookuper.lookup({"id": key}) for key in range(count)))

        def work() -> tuple[float, object]:
            assert None not in self._do(all_of_them)
            return count, None

        return stopwatch(work)
