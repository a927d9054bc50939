"""What our client does in each case."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import fluss_client as fluss
from benchmarks.client.data import SCHEMA
from benchmarks.harness import Timed, stopwatch

POLL_MS = 5_000


class Ours:
    """One connection and the tables of a run."""

    def __init__(self, bootstrap: str) -> None:
        config = fluss.Config({"bootstrap.servers": bootstrap})
        self.connection = fluss.FlussConnection.create(config).result()
        self.admin = self.connection.get_admin().result()
        self._count = 0

    def close(self) -> None:
        self.connection.close()

    def new_table(self, key: bool = False, buckets: int = 1) -> fluss.TablePath:
        """A fresh table under a name of its own."""
        self._count += 1
        path = fluss.TablePath("bench", f"t{self._count}")
        self.admin.create_database("bench", ignore_if_exists=True).result()
        self.admin.drop_table(path, ignore_if_not_exists=True).result()
        schema = fluss.Schema(SCHEMA, primary_keys=["id"] if key else None)
        descriptor = fluss.TableDescriptor(schema, bucket_count=buckets)
        self.admin.create_table(path, descriptor).result()
        # The first write of a table waits for its leaders, which is no part of any case.
        self.admin.list_offsets(path, list(range(buckets)), fluss.OffsetSpec.latest()).result()
        return path

    def drop(self, path: fluss.TablePath) -> None:
        self.admin.drop_table(path, ignore_if_not_exists=True).result()

    def table(self, path: fluss.TablePath) -> fluss.FlussTable:
        return self.connection.get_table(path).result()

    def append_arrow(self, batches: list[pa.RecordBatch], buckets: int = 1) -> Timed:
        path = self.new_table(buckets=buckets)
        writer = self.table(path).new_append().create_writer()
        size = sum(batch.nbytes for batch in batches)

        def work() -> tuple[float, object]:
            for batch in batches:
                writer.write_arrow_batch(batch)
            writer.flush().result()
            return size, None

        timed = stopwatch(work)
        self.drop(path)
        return timed

    def append_rows(self, rows: list[dict[str, object]]) -> Timed:
        path = self.new_table()
        writer = self.table(path).new_append().create_writer()

        def work() -> tuple[float, object]:
            append = writer.append
            for row in rows:
                append(row)
            writer.flush().result()
            return len(rows), None

        timed = stopwatch(work)
        self.drop(path)
        return timed

    def upsert_rows(self, rows: list[dict[str, object]]) -> Timed:
        path = self.new_table(key=True)
        writer = self.table(path).new_upsert().create_writer()

        def work() -> tuple[float, object]:
            upsert = writer.upsert
            for row in rows:
                upsert(row)
            writer.flush().result()
            return len(rows), None

        timed = stopwatch(work)
        self.drop(path)
        return timed

    def upsert_arrow(self, batches: list[pa.RecordBatch]) -> Timed:
        path = self.new_table(key=True)
        writer = self.table(path).new_upsert().create_writer()

        def work() -> tuple[float, object]:
            for batch in batches:
                writer.write_arrow_batch(batch)
            writer.flush().result()
            return sum(batch.num_rows for batch in batches), None

        timed = stopwatch(work)
        self.drop(path)
        return timed

    def scan(self, path: fluss.TablePath, size: float, columns: list[str] | None) -> Timed:
        table = self.table(path)
        scan = table.new_scan()
        if columns is not None:
            scan = scan.project_by_name(columns)
        scanner = scan.create_record_batch_log_scanner().result()
        buckets = range(table.get_table_info().num_buckets)

        def work() -> tuple[float, object]:
            scanner.subscribe_buckets(dict.fromkeys(buckets, fluss.EARLIEST_OFFSET))
            read = scanner.to_arrow()
            return size, (read.num_rows, pc.sum(read.column("id")).as_py())

        timed = stopwatch(work)
        scanner.close()
        return timed

    def changelog(self, path: fluss.TablePath, rows: int) -> Timed:
        scanner = self.table(path).new_scan().create_log_scanner().result()

        def work() -> tuple[float, object]:
            scanner.subscribe(0, fluss.EARLIEST_OFFSET)
            seen = total = 0
            while seen < rows:
                for record in scanner.poll(POLL_MS):
                    seen += 1
                    total += record.row["id"]
            return seen, (seen, total)

        timed = stopwatch(work)
        scanner.close()
        return timed

    def lookup(self, path: fluss.TablePath, count: int) -> Timed:
        lookuper = self.table(path).new_lookup().create_lookuper()
        lookuper.lookup({"id": 0}).result()

        def work() -> tuple[float, object]:
            for key in range(count):
                row = lookuper.lookup({"id": key}).result()
                assert row is not None
            return count, None

        return stopwatch(work)

    def lookup_many(self, path: fluss.TablePath, count: int) -> Timed:
        lookuper = self.table(path).new_lookup().create_lookuper()
        keys: Any = pa.table({"id": pa.array(range(count), pa.int64())})

        def work() -> tuple[float, object]:
            rows = lookuper.lookup_many(keys).result()
            assert rows.column("name").null_count == 0
            return count, None

        return stopwatch(work)
