"""What the official client does in each case."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import fluss as pyfluss
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.harness import Timed, stopwatch

POLL_MS = 5_000


class Peer:
    """pyfluss on a loop of its own."""

    def __init__(self, bootstrap: str) -> None:
        self._loop = asyncio.new_event_loop()
        config = pyfluss.Config({"bootstrap.servers": bootstrap.split(",")[0]})
        self._connection = self._do(lambda: pyfluss.FlussConnection.create(config))

    def _do(self, call: Callable[[], Awaitable[Any]]) -> Any:
        # pyfluss wants a running loop at the call already, not only at the await.
        async def run() -> Any:
            return await call()

        return self._loop.run_until_complete(run())

    def close(self) -> None:
        self._do(self._connection.close)
        self._loop.close()

    def _table(self, database: str, name: str) -> Any:
        return self._do(lambda: self._connection.get_table(pyfluss.TablePath(database, name)))

    def append_arrow(self, database: str, name: str, batches: list[pa.RecordBatch]) -> Timed:
        writer = self._table(database, name).new_append().create_writer()
        size = sum(batch.nbytes for batch in batches)

        def work() -> tuple[float, object]:
            for batch in batches:
                writer.write_arrow_batch(batch)
            self._do(writer.flush)
            return size, None

        return stopwatch(work)

    def append_rows(self, database: str, name: str, rows: list[dict[str, object]]) -> Timed:
        writer = self._table(database, name).new_append().create_writer()

        def work() -> tuple[float, object]:
            append = writer.append
            for row in rows:
                append(row)
            self._do(writer.flush)
            return len(rows), None

        return stopwatch(work)

    def upsert_rows(self, database: str, name: str, rows: list[dict[str, object]]) -> Timed:
        writer = self._table(database, name).new_upsert().create_writer()

        def work() -> tuple[float, object]:
            upsert = writer.upsert
            for row in rows:
                upsert(row)
            self._do(writer.flush)
            return len(rows), None

        return stopwatch(work)

    def scan(
        self, database: str, name: str, size: float, columns: list[str] | None, buckets: int = 1
    ) -> Timed:
        scan = self._table(database, name).new_scan()
        if columns is not None:
            scan = scan.project_by_name(columns)
        scanner = self._do(scan.create_record_batch_log_scanner)

        def work() -> tuple[float, object]:
            scanner.subscribe_buckets(dict.fromkeys(range(buckets), pyfluss.EARLIEST_OFFSET))
            read = self._do(scanner.to_arrow)
            return size, (read.num_rows, pc.sum(read.column("id")).as_py())

        return stopwatch(work)

    def changelog(self, database: str, name: str, rows: int) -> Timed:
        scanner = self._do(self._table(database, name).new_scan().create_log_scanner)

        def work() -> tuple[float, object]:
            scanner.subscribe(0, pyfluss.EARLIEST_OFFSET)
            seen = total = 0
            while seen < rows:
                for record in self._do(lambda: scanner.poll(POLL_MS)):
                    seen += 1
                    total += record.row["id"]
            return seen, (seen, total)

        return stopwatch(work)

    def lookup(self, database: str, name: str, count: int) -> Timed:
        lookuper = self._table(database, name).new_lookup().create_lookuper()
        self._do(lambda: lookuper.lookup({"id": 0}))

        def work() -> tuple[float, object]:
            for key in range(count):
                row = self._do(lambda key=key: lookuper.lookup({"id": key}))
                assert row is not None
            return count, None

        return stopwatch(work)
