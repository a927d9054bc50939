"""A directory of Parquet files: one per range of a plan, named by it.

    t17-p3-b0-00000000000000000000-00000000000000004096-5f0c…e1.parquet
    table id, partition id (none without partitions), bucket, first offset, end, plan id

A file is written under a hidden name and then renamed, so that it is there whole or not at all.
Writing a range again gives the same file again. Only files with these names count; hidden ones
are what a crash left, and `sweep` removes them.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from fluss_client.errors import ConfigError
from fluss_orchestrate.core.parquet_layout import ROW_GROUP_BYTES, columns_with_dictionary
from fluss_orchestrate.core.plan import BucketRange, ScanPlan
from fluss_orchestrate.core.sinks.base import ReadPlan, SinkResult, range_plan

SWEEP_AGE_S = 24 * 3600
WRITERS_MAX = min(4, os.cpu_count() or 1)
"""Files that are encoded at once; each holds a row group and what its reader has fetched ahead."""
_HIDDEN = "."
_TEMPORARY = ".tmp"


class ParquetSink:
    """Writes plans into a directory: a local path, a URI, or a path of a given file system.

    `filesystem` is one of pyarrow or fsspec. Object stores show a file when it is complete, so a
    rename that is a copy there does no harm. A plan that is abandoned leaves its files:
    `discard(plan)` removes them.
    """

    exactly_once = True
    needs_change_type = True

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        filesystem: Any = None,
        compression: str = "zstd",
    ) -> None:
        given = os.fspath(directory)
        if not given.strip():
            raise ConfigError("a Parquet sink needs a directory, and this one is empty")
        self._fs, self._directory = _open(given, filesystem)
        self._compression = compression

    @property
    def identity(self) -> str:
        """The kind of file system and the directory, without the host of a URI."""
        return f"parquet:{self._fs.type_name}:{self._directory}"

    def file_name(self, plan: ScanPlan, part: BucketRange) -> str:
        """The name of the file that holds one range of a plan."""
        partition = "p" if part.partition_id is None else f"p{part.partition_id}"
        return (
            f"t{plan.table.table_id}-{partition}-b{part.bucket}-{part.start:020d}-{part.stop:020d}"
            f"-{plan.plan_id}.parquet"
        )

    def already_done(self, plan: ScanPlan) -> SinkResult | None:
        """The plan's rows when every file of it is there."""
        rows = size = 0
        files = []
        for part in plan.ranges:
            found = self._done(plan, part)
            if found is None:
                return None
            rows, size = rows + found[0], size + found[1]
            files.append(self.file_name(plan, part))
        return SinkResult(rows, size, {"files": files}, moved=0)

    def write(self, plan: ScanPlan, read: ReadPlan) -> SinkResult:
        """Write the files that are not there yet, a few at once."""
        self._fs.create_dir(self._directory, recursive=True)
        given_up = threading.Event()

        def write_one(part: BucketRange) -> tuple[int, int, int]:
            found = self._done(plan, part)
            if found is not None:
                return *found, 0
            rows = _unless(given_up, read(range_plan(plan, part)))
            count, size = self._write_range(self.file_name(plan, part), rows)
            return count, size, count

        with ThreadPoolExecutor(WRITERS_MAX, "fluss-parquet") as pool:
            writing = [pool.submit(write_one, part) for part in plan.ranges]
            try:
                ended, _ = wait(writing, return_when=FIRST_EXCEPTION)
                for one in ended:
                    one.result()
            except BaseException:
                # The other files are not waited for to the end.
                given_up.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        written = [one.result() for one in writing]
        self._sync(self._directory)
        return SinkResult(
            sum(rows for rows, _, _ in written),
            sum(size for _, size, _ in written),
            {"files": [self.file_name(plan, part) for part in plan.ranges]},
            moved=sum(moved for _, _, moved in written),
        )

    def discard(self, plan: ScanPlan) -> int:
        """Delete the files of a plan that was abandoned; how many there were."""
        count = 0
        for part in plan.ranges:
            path = self._path(self.file_name(plan, part))
            if self._fs.get_file_info(path).type == pafs.FileType.File:
                self._fs.delete_file(path)
                count += 1
        return count

    def sweep(self, age_s: float = SWEEP_AGE_S) -> int:
        """Delete unfinished files that have not been written to for so long; how many."""
        selector = pafs.FileSelector(self._directory, allow_not_found=True)
        count = 0
        for info in self._fs.get_file_info(selector):
            hidden = info.base_name.startswith(_HIDDEN) and info.base_name.endswith(_TEMPORARY)
            age = time.time() - (info.mtime_ns or 0) / 1e9
            if hidden and age >= age_s:
                self._fs.delete_file(info.path)
                count += 1
        return count

    def _done(self, plan: ScanPlan, part: BucketRange) -> tuple[int, int] | None:
        path = self._path(self.file_name(plan, part))
        info = self._fs.get_file_info(path)
        if info.type != pafs.FileType.File:
            return None
        with self._fs.open_input_file(path) as file:
            return pq.read_metadata(file).num_rows, info.size

    def _write_range(self, name: str, reader: pa.RecordBatchReader) -> tuple[int, int]:
        # Two processes may write the same range at once: each under a name of its own.
        hidden = self._path(f"{_HIDDEN}{name}.{uuid.uuid4().hex}{_TEMPORARY}")
        try:
            with self._fs.open_output_stream(hidden) as stream:
                rows = _write_all(stream, reader, self._compression)
            self._sync(hidden)
            size = self._fs.get_file_info(hidden).size
            self._fs.move(hidden, self._path(name))
        except BaseException:
            if self._fs.get_file_info(hidden).type == pafs.FileType.File:
                self._fs.delete_file(hidden)
            raise
        return rows, size

    def _path(self, name: str) -> str:
        return f"{self._directory.rstrip('/')}/{name}"

    def _sync(self, path: str) -> None:
        """On a local disk: have it on the disk before anybody counts on it."""
        if not isinstance(self._fs, pafs.LocalFileSystem):
            return
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _open(directory: str, filesystem: Any) -> tuple[pafs.FileSystem, str]:
    if filesystem is None:
        if "://" in directory:
            fs, path = pafs.FileSystem.from_uri(directory)
            return fs, path
        return pafs.LocalFileSystem(), os.path.abspath(directory)
    if not isinstance(filesystem, pafs.FileSystem):
        filesystem = pafs.PyFileSystem(pafs.FSSpecHandler(filesystem))
    return filesystem, directory


def _unless(given_up: threading.Event, reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """The batches of a reader until its rows are not wanted any more."""

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            if given_up.is_set():
                raise InterruptedError("another file of the plan could not be written")
            yield batch

    return pa.RecordBatchReader.from_batches(reader.schema, batches())


def _write_all(stream: Any, reader: pa.RecordBatchReader, compression: str) -> int:
    rows = held_bytes = 0
    held: list[pa.RecordBatch] = []
    settings = {
        "compression": compression,
        "use_dictionary": columns_with_dictionary(reader.schema),
    }
    with pq.ParquetWriter(stream, reader.schema, **settings) as writer:

        def flush() -> None:
            if held:
                table = pa.Table.from_batches(held, reader.schema)
                writer.write_table(table, row_group_size=max(1, table.num_rows))
                held.clear()

        for batch in reader:
            rows += batch.num_rows
            held_bytes += batch.nbytes
            held.append(batch)
            if held_bytes >= ROW_GROUP_BYTES:
                flush()
                held_bytes = 0
        flush()
    return rows
