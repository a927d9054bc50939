"""What our client does in each case."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

import fluss_client as fluss
from benchmarks.client.data import Row
from benchmarks.harness import Measured, median_of, stopwatch

POLL_MS = 5_000


class Ours:
    """One connection; the facade, as a script uses it."""

    def __init__(self, connection: fluss.FlussConnection) -> None:
        self._connection = connection

    def _table(self, path: fluss.TablePath) -> fluss.FlussTable:
        return self._connection.get_table(path).result()

    def append_arrow(self, path: fluss.TablePath, batches: Sequence[pa.RecordBatch]) -> Measured:
        """Arrow batches, acknowledged: bytes per second."""
        writer = self._table(path).new_append().create_writer()
        size = sum(batch.nbytes for batch in batches)

        def work() -> tuple[float, object]:
            for batch in batches:
                writer.write_arrow_batch(batch)
            writer.flush().result()
            return size, None

        return stopwatch(work)

    def append_rows(self, path: fluss.TablePath, rows: Sequence[Row]) -> Measured:
        """Dict rows, acknowledged."""
        writer = self._table(path).new_append().create_writer()

        def work() -> tuple[float, object]:
            append = writer.append
            for row in rows:
                append(row)
            writer.flush().result()
            return len(rows), None

        return stopwatch(work)

    def upsert_rows(self, path: fluss.TablePath, rows: Sequence[Row]) -> Measured:
        """Dict rows into a key table, acknowledged."""
        writer = self._table(path).new_upsert().create_writer()

        def work() -> tuple[float, object]:
            upsert = writer.upsert
            for row in rows:
                upsert(row)
            writer.flush().result()
            return len(rows), None

        return stopwatch(work)

    def upsert_arrow(self, path: fluss.TablePath, batches: Sequence[pa.RecordBatch]) -> Measured:
        """Arrow batches into a key table, acknowledged: rows per second."""
        writer = self._table(path).new_upsert().create_writer()

        def work() -> tuple[float, object]:
            for batch in batches:
                writer.write_arrow_batch(batch)
            writer.flush().result()
            return sum(batch.num_rows for batch in batches), None

        return stopwatch(work)

    def scan(
        self,
        path: fluss.TablePath,
        size: float,
        columns: list[str] | None = None,
        partitions: Sequence[int] = (),
    ) -> Measured:
        """Everything as one Arrow table; `size` is how much that is."""
        table = self._table(path)
        scan = table.new_scan()
        if columns is not None:
            scan = scan.project_by_name(columns)
        scanner = scan.create_record_batch_log_scanner().result()
        buckets = range(table.get_table_info().num_buckets)

        def work() -> tuple[float, object]:
            if partitions:
                places = {(p, b): fluss.EARLIEST_OFFSET for p in partitions for b in buckets}
                scanner.subscribe_partition_buckets(places)
            else:
                scanner.subscribe_buckets(dict.fromkeys(buckets, fluss.EARLIEST_OFFSET))
            read = scanner.to_arrow()
            return size, (read.num_rows, pc.sum(read.column("id")).as_py())

        timed = stopwatch(work)
        scanner.close()
        return timed

    def changelog(self, path: fluss.TablePath, rows: int) -> Measured:
        """Every change as a Python object."""
        scanner = self._table(path).new_scan().create_log_scanner().result()

        def work() -> tuple[float, object]:
            scanner.subscribe(0, fluss.EARLIEST_OFFSET)
            seen = total = 0
            while seen < rows:
                for record in scanner.poll(POLL_MS):
                    seen += 1
                    total += cast("int", record.row["id"])
            return seen, (seen, total)

        timed = stopwatch(work)
        scanner.close()
        return timed

    def poll_fresh(self, path: fluss.TablePath, row: Row, count: int) -> Measured:
        """Milliseconds from `append` until `poll` has given the row."""
        table = self._table(path)
        with table.new_append().create_writer() as writer:
            writer.append(row)
            writer.flush().result()
            scanner = table.new_scan().create_log_scanner().result()
            scanner.subscribe(0, fluss.EARLIEST_OFFSET)
            while scanner.poll(200).count():
                continue

            def one() -> Measured:
                started = time.perf_counter()
                writer.append(row)
                flushing = writer.flush()
                while not scanner.poll(POLL_MS).count():
                    continue
                taken = time.perf_counter() - started
                flushing.result()
                return Measured(taken * 1000)

            found = median_of([one() for _ in range(count)])
        scanner.close()
        return found

    def lookup(self, path: fluss.TablePath, count: int) -> Measured:
        """One key after the other."""
        lookuper = self._table(path).new_lookup().create_lookuper()
        lookuper.lookup({"id": 0}).result()

        def work() -> tuple[float, object]:
            for key in range(count):
                assert lookuper.lookup({"id": key}).result() is not None
            return count, None

        return stopwatch(work)

    def lookup_at_once(self, path: fluss.TablePath, count: int) -> Measured:
        """One call per key, none waiting for another."""
        lookuper = self._table(path).new_lookup().create_lookuper()
        lookuper.lookup({"id": 0}).result()

        def work() -> tuple[float, object]:
            asked = [lookuper.lookup({"id": key}) for key in range(count)]
            assert all(handle.result() is not None for handle in asked)
            return count, None

        return stopwatch(work)

    def lookup_many(self, path: fluss.TablePath, count: int) -> Measured:
        """All keys in one call."""
        lookuper = self._table(path).new_lookup().create_lookuper()
        keys: Any = pa.table({"id": pa.array(range(count), pa.int64())})

        def work() -> tuple[float, object]:
            rows: Any = lookuper.lookup_many(keys).result()
            assert rows.column("name").null_count == 0
            return count, None

        return stopwatch(work)
