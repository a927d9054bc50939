"""A remote log and a Parquet sink on S3, beside pyarrow.fs alone and beside local disks.

The S3 server runs on the same machine and the same cores. Its keys come from the environment.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from benchmarks.client.limit import decoded
from benchmarks.harness import Case, Measured, stopwatch
from benchmarks.place import CONNECT_S, Place, Scale, connected, own_database
from fluss_client import FlussConnection, Schema, TableBucket, TableDescriptor, TablePath
from fluss_client.codec.log_batch import iter_log_batches
from fluss_client.engine import (
    async_connection,
    open_storage,
    read_ranges,
    run_blocking,
    table_info,
)
from fluss_orchestrate.core.identity import TableIdentity
from fluss_orchestrate.core.plan import BucketRange, ScanPlan
from fluss_orchestrate.core.sinks import ParquetSink

ROWS = {Scale.TINY: 60_000, Scale.QUICK: 1_000_000, Scale.FULL: 2_000_000}
WRITE_ROWS = 20_000
FILES = 4
REMOTE_WAIT_S = 120.0
ARROW = pa.schema(
    [("id", pa.int64()), ("version", pa.int32()), ("amount", pa.float64()), ("text", pa.string())]
)
TEXT_BYTES = 80
_SEGMENT = re.compile(r"/(\d{20})\.log$")


@contextmanager
def cases(place: Place) -> Iterator[Sequence[Case]]:
    """A log whose older segments are on S3 only, and a folder there."""
    rows = ROWS[place.scale]
    with (
        connected(place.storage_bootstrap) as connection,
        own_database(connection, "storage") as database,
    ):
        remote = RemoteLog(connection, TablePath(database, "remote"), rows)
        local = LocalLog(connection, TablePath(database, "local"), remote.rows)
        files = Files(remote.bucket, place.folder(), rows)
        yield [
            Case(
                "remote log scan",
                "B/s",
                {
                    "ours": remote.scan,
                    "pyarrow.fs + decode": remote.alone,
                    "pyarrow.fs, bytes only": remote.bytes_alone,
                    "log on the server's disk": local.scan,
                },
                {"pyarrow.fs + decode": 0.8},
            ),
            Case(
                "Parquet sink",
                "B/s",
                {"ours": files.sink, "pyarrow.fs": files.alone, "local disk": files.local},
                {"pyarrow.fs": 0.8},
            ),
        ]


def rows_of(start: int, count: int) -> pa.Table:
    """Rows of about a hundred bytes, of which compression leaves about sixty."""
    ids = np.arange(start, start + count)
    letters = np.random.default_rng(start).integers(97, 123, count * TEXT_BYTES, np.uint8)
    ends = pa.py_buffer(np.arange(0, (count + 1) * TEXT_BYTES, TEXT_BYTES, dtype=np.int32))
    text = pa.StringArray.from_buffers(count, ends, pa.py_buffer(letters))
    return pa.table([ids, np.zeros(count, np.int32), ids * 0.5, text], schema=ARROW)


def summed(batches: Sequence[pa.RecordBatch]) -> int:
    return sum(pc.sum(batch.column("id")).as_py() or 0 for batch in batches)


class LocalLog:
    """A log of one bucket on the disk of its server."""

    options: dict[str, str] = {}

    def __init__(self, connection: FlussConnection, path: TablePath, rows: int) -> None:
        self.connection = connection
        descriptor = TableDescriptor(Schema(ARROW), bucket_count=1, properties=self.options)
        admin = connection.get_admin().result(CONNECT_S)
        admin.create_table(path, descriptor).result(CONNECT_S)
        self.table = connection.get_table(path).result(CONNECT_S)
        self.size = 0
        with self.table.new_append().create_writer() as writer:
            for start in range(0, rows, WRITE_ROWS):
                some = rows_of(start, min(WRITE_ROWS, rows - start))
                self.size += some.nbytes
                writer.write_arrow(some)
        self.rows = rows

    def scan(self) -> Measured:
        """The client's scan of the range."""
        core = async_connection(self.connection)
        info = table_info(self.connection, self.table.get_table_path())
        ranges = {TableBucket(info.table_id, 0): (0, self.rows)}

        async def read() -> int:
            reading = read_ranges(core.backend, info, ranges, config=core.config)
            return sum([summed([batch.batch]) async for batch in reading])

        return stopwatch(lambda: (self.size, run_blocking(read())))


class RemoteLog(LocalLog):
    """A log whose rows up to the last whole segment are on S3 and nowhere else."""

    options = {"table.log.tiered.local-segments": "1"}

    def __init__(self, connection: FlussConnection, path: TablePath, rows: int) -> None:
        super().__init__(connection, path, rows)
        admin = connection.get_admin().result(CONNECT_S)
        configs = admin.describe_cluster_configs().result(CONNECT_S)
        folder = next(c.value for c in configs if c.key == "remote.data.dir")
        self.bucket = "/".join(str(folder).split("/")[:3])
        self._storage = open_storage(str(folder))
        self.wire = table_info(connection, path).schema.wire
        self._wait()

    def _wait(self) -> None:
        """Wait until the segments are on S3 and not on the server's disk."""
        deadline = time.monotonic() + REMOTE_WAIT_S
        size, whole = self.size, self.rows
        while True:
            starts = sorted(self._segments())
            if len(starts) > 1:
                # The end of the last segment is not known by its name.
                self.rows, self.segments = starts[-1], [self._files[n] for n in starts[:-1]]
                self.size = int(size * self.rows / whole)
                before = self._remote_bytes()
                self.scan()
                if self._remote_bytes() - before >= sum(f.size for f in self.segments):
                    return
            if time.monotonic() > deadline:
                raise SystemExit(
                    f"the log was not on S3 within {REMOTE_WAIT_S:.0f} s: give a cluster with "
                    "small segments (log.segment.file-size) and a remote.data.dir on S3"
                )
            time.sleep(0.5)

    def _remote_bytes(self) -> float:
        return float(self.connection.metrics().get("remote_log.bytes", 0))

    def _segments(self) -> dict[int, pafs.FileInfo]:
        """The segments of the table on S3, by their first offset."""
        table_id = self.table.get_table_info().table_id
        selector = pafs.FileSelector(self._storage.path, recursive=True, allow_not_found=True)
        self._files = {}
        for info in self._storage.filesystem.get_file_info(selector):
            found = _SEGMENT.search(info.path)
            if found and f"-{table_id}/" in info.path:
                self._files[int(found[1])] = info
        return self._files

    def alone(self) -> Measured:
        """The same segments, read by pyarrow.fs and decoded one after the other."""

        def work() -> tuple[float, object]:
            total = 0
            for data in self._whole_segments():
                headers = iter_log_batches(memoryview(data))
                total += summed([decoded(header, self.wire) for header in headers])
            return self.size, total

        return stopwatch(work)

    def bytes_alone(self) -> Measured:
        """The bytes of the same segments, read by pyarrow.fs; nothing is decoded."""

        def work() -> tuple[float, object]:
            for _ in self._whole_segments():
                pass
            return self.size, None

        return stopwatch(work)

    def _whole_segments(self) -> Iterator[pa.Buffer]:
        for info in self.segments:
            with self._storage.filesystem.open_input_file(info.path) as file:
                yield file.read_buffer()


class Files:
    """A plan of some buckets, written as a Parquet file each."""

    def __init__(self, bucket: str, folder: Path, rows: int) -> None:
        self._target = f"{bucket}/bench"
        self._folder = folder
        count = rows // FILES
        self._tables = [rows_of(at * count, count) for at in range(FILES)]
        self._size = sum(table.nbytes for table in self._tables)
        identity = TableIdentity("bench", TablePath("bench", "rows"), 1, 1)
        ranges = tuple(BucketRange(None, None, at, 0, count) for at in range(FILES))
        self._plan = ScanPlan("bench", "bench", identity, 1, tuple(ARROW.names), (), ranges)

    def _read(self, part: ScanPlan) -> pa.RecordBatchReader:
        (one,) = part.ranges
        return self._tables[one.bucket].to_reader(WRITE_ROWS)

    def _written(self, directory: str) -> Measured:
        def work() -> tuple[float, object]:
            return self._size, ParquetSink(directory).write(self._plan, self._read).rows

        return stopwatch(work)

    def sink(self) -> Measured:
        """The sink, into a new folder on S3."""
        return self._written(f"{self._target}/{uuid.uuid4().hex}")

    def local(self) -> Measured:
        """The sink, into a new folder on this machine's disk."""
        return self._written(str(self._folder / uuid.uuid4().hex))

    def alone(self) -> Measured:
        """pyarrow's writer on pyarrow.fs, file after file, without any promise."""
        place = open_storage(f"{self._target}/{uuid.uuid4().hex}")

        def work() -> tuple[float, object]:
            for at, table in enumerate(self._tables):
                path = f"{place.path}/{at}.parquet"
                pq.write_table(table, path, compression="zstd", filesystem=place.filesystem)
            return self._size, sum(table.num_rows for table in self._tables)

        return stopwatch(work)
