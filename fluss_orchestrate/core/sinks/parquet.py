"""A directory of Parquet files: one file per range of a plan, and the range is its name.

    t17-p3-b0-00000000000000000000-00000000000000004096-5f0c…e1.parquet
    table id, partition id (none without partitions), bucket, first offset, end, plan id

A file is complete as soon as it is visible. If a range is written again, the same file is written
again, whole: the plan fixes its name and its rows. How that is reached depends on the store:

- Local disks, HDFS, Azure and file systems that the caller gives: the file is written under a
  hidden name, flushed to a local disk, and renamed. Hidden files are what a crash left behind;
  `sweep` removes them.
- S3, Google Cloud Storage, and what speaks the protocol of S3: there is no rename, but an object
  appears when its upload is complete, and replaces the one before it at once. The file is encoded
  in memory, or beyond `SPOOL_BYTES` in a temporary file on this machine, and uploaded under its
  name when it is complete. A rename there would be a copy, which ends at 5 GiB on S3. A run that
  is killed leaves at most an upload that was never completed; a lifecycle rule of the bucket
  removes those (AbortIncompleteMultipartUpload).
  If the answer to an upload is lost, the object is looked for before the upload counts as failed.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import IO, Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from fluss_client.engine import (
    FAILURES,
    Storage,
    StorageProperties,
    as_filesystem,
    open_storage,
    parse_location,
    room_needed,
    storage_error,
)
from fluss_client.errors import ConfigError, StorageError
from fluss_orchestrate.core.plan import BucketRange, ScanPlan
from fluss_orchestrate.core.sinks.base import ReadPlan, SinkForm, SinkResult, range_plan
from fluss_orchestrate.core.sinks.registry import (
    FieldKind,
    SinkDeclaration,
    SinkField,
    file_node,
    register,
)

SWEEP_AGE_S = 24 * 3600
WRITERS_MAX = min(4, os.cpu_count() or 1)
"""Files that are encoded at once. Each one needs memory for a row group and for the batches that
its reader has fetched ahead."""
ROW_GROUP_BYTES = 16 << 20
"""Arrow bytes that are collected before they are written as one row group."""
BATCH_TIMES = {"_timestamp", "__timestamp"}
"""The columns in which scans and the lake give the time when a row's batch was written. The value
is the same for all rows of a batch."""
SPOOL_BYTES = 32 << 20
"""What is held in memory of a file for an object store, before it goes to a temporary file."""
UPLOAD_BYTES = 8 << 20
"""What is passed on at once of a file that is uploaded."""
_UPLOADED = ("s3", "gcs")
_HIDDEN = "."
_TEMPORARY = ".tmp"


class ParquetSink:
    """Writes plans into a directory as Parquet files.

    The files of a plan that was abandoned stay until `discard(plan)` removes them. The directory is
    opened when the sink is used first.

    Args:
        directory: A local path, a URI such as `s3://bucket/path`, or a path of `filesystem`.
        filesystem: A file system of pyarrow or fsspec; None for the one that the path names.
        compression: The codec of the files.
        storage: Properties of the store by the names of pyiceberg, such as `s3.endpoint`. What is
            not given here comes from the environment (`FLUSS_STORAGE__S3__ENDPOINT`, `AWS_REGION`).
            `name` chooses properties that the environment has under that name.

    Raises:
        ConfigError: The directory is empty, or a property is unknown.
    """

    exactly_once = True
    form = SinkForm.APPEND

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        filesystem: Any = None,
        compression: str = "zstd",
        storage: Mapping[str, str] | None = None,
    ) -> None:
        given = os.fspath(directory)
        if not given.strip():
            raise ConfigError("a Parquet sink needs a directory, and this one is empty")
        self._location = parse_location(given)
        self._given = None if filesystem is None else as_filesystem(filesystem)
        self._directory = self._location.path if filesystem is None else given
        self._compression = compression
        properties = dict(storage or {})
        self._storage_name = properties.pop("name", None)
        self._properties = StorageProperties(properties)
        self._opened: Storage | None = None
        self._opening = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        if self._given is not None and not isinstance(self._given, pafs.LocalFileSystem):
            raise ConfigError(
                "a Parquet sink with an open file system is never pickled, because that may hold "
                "credentials: give the sink a URI, and the properties of its store by the "
                "environment"
            )
        return self.__dict__ | {"_opened": None, "_opening": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._opening = threading.Lock()

    @property
    def identity(self) -> str:
        """The type of the file system and the directory, without the host of a URI."""
        kind = self._location.family if self._given is None else self._given.type_name
        return f"parquet:{kind}:{self._directory}"

    @property
    def _fs(self) -> pafs.FileSystem:
        with self._opening:
            if self._opened is None:
                self._opened = (
                    open_storage(self._location, self._properties, name=self._storage_name)
                    if self._given is None
                    else Storage(self._given, self._location)
                )
            return self._opened.filesystem

    @property
    def _is_uploaded(self) -> bool:
        """Whether files are uploaded under their names, because the store has no rename."""
        return self._fs.type_name in _UPLOADED

    def file_name(self, plan: ScanPlan, part: BucketRange) -> str:
        """Return the name of the file that contains the range `part` of a `plan`."""
        partition = "p" if part.partition_id is None else f"p{part.partition_id}"
        return (
            f"t{plan.table.table_id}-{partition}-b{part.bucket}-{part.start:020d}-{part.stop:020d}"
            f"-{plan.plan_id}.parquet"
        )

    def already_done(self, plan: ScanPlan) -> SinkResult | None:
        """Return what the directory holds of a `plan`; None if a file of the plan is missing.

        Raises:
            StorageError: The directory cannot be read.
        """
        found = []
        # Mostly nothing was written yet, which the first file tells; the others are looked for at
        # once.
        for parts in (plan.ranges[:1], plan.ranges[1:]):
            with ThreadPoolExecutor(WRITERS_MAX, "fluss-parquet") as pool:
                for one in pool.map(lambda part: self._done(plan, part), parts):
                    if one is None:
                        pool.shutdown(wait=False, cancel_futures=True)
                        return None
                    found.append(one)
        files = [self.file_name(plan, part) for part in plan.ranges]
        rows, size = sum(rows for rows, _ in found), sum(size for _, size in found)
        return SinkResult(rows, size, {"files": files}, moved=0)

    def write(self, plan: ScanPlan, read: ReadPlan) -> SinkResult:
        """Write the files that are missing, several at once.

        Args:
            plan: The plan.
            read: Returns a reader of the rows of a part of the plan.

        Raises:
            StorageError: A file cannot be written; the message says why.
        """
        if not self._is_uploaded:
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
                # Do not wait until the other files are complete: they stop at their next batch.
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
        """Delete the files of a `plan` that was abandoned.

        Returns:
            The number of deleted files.
        """
        count = 0
        for part in plan.ranges:
            path = self._path(self.file_name(plan, part))
            if self._fs.get_file_info(path).type == pafs.FileType.File:
                self._fs.delete_file(path)
                count += 1
        return count

    def sweep(self, age_s: float = SWEEP_AGE_S) -> int:
        """Delete incomplete files that a crash left behind.

        Args:
            age_s: Only files that were not written to for so many seconds are deleted, because a
                younger file may belong to a process that is still running.

        Returns:
            The number of deleted files.
        """
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
        try:
            info = self._fs.get_file_info(path)
            if info.type != pafs.FileType.File:
                return None
            with self._fs.open_input_file(path) as file:
                return pq.read_metadata(file).num_rows, info.size
        except pa.ArrowInvalid:
            # Without a footer it is no file of this sink: it is written again.
            return None
        except FAILURES as error:
            raise self._failure(error, "read") from error

    def _failure(self, error: BaseException, doing: str) -> StorageError:
        return storage_error(error, self._location, doing, self._fs)

    def _write_range(self, name: str, reader: pa.RecordBatchReader) -> tuple[int, int]:
        if self._is_uploaded:
            temporary = room_needed(tempfile.gettempdir(), "write", "set TMPDIR to another disk")
            with (
                temporary,
                tempfile.SpooledTemporaryFile(SPOOL_BYTES, prefix="fluss-parquet-") as spool,
            ):
                rows = write_parquet(spool, reader, self._compression)
                return rows, self._upload(name, spool)
        # Two processes may write the same range at once, so each one uses its own hidden name.
        hidden = self._path(f"{_HIDDEN}{name}.{uuid.uuid4().hex}{_TEMPORARY}")
        try:
            with (
                room_needed(self._directory, "write"),
                self._fs.open_output_stream(hidden) as stream,
            ):
                rows = write_parquet(stream, reader, self._compression)
            self._sync(hidden)
            size = self._fs.get_file_info(hidden).size
            self._fs.move(hidden, self._path(name))
        except BaseException:
            if self._fs.get_file_info(hidden).type == pafs.FileType.File:
                self._fs.delete_file(hidden)
            raise
        return rows, size

    def _upload(self, name: str, spool: IO[bytes]) -> int:
        """Upload a complete file under its name; return its size."""
        size = spool.seek(0, os.SEEK_END)
        spool.seek(0)
        path = self._path(name)
        try:
            with self._fs.open_output_stream(path) as stream:
                while data := spool.read(UPLOAD_BYTES):
                    stream.write(data)
        except FAILURES as error:
            if not self._holds(path, size):
                raise self._failure(error, "write") from error
        return size

    def _holds(self, path: str, size: int) -> bool:
        """Whether the store has the object although the answer to its upload was an error."""
        try:
            return bool(self._fs.get_file_info(path).size == size)
        except FAILURES:
            return False

    def _path(self, name: str) -> str:
        return f"{self._directory.rstrip('/')}/{name}"

    def _sync(self, path: str) -> None:
        """Flush a file or directory to a local disk, before the checkpoint is committed."""
        if not isinstance(self._fs, pafs.LocalFileSystem):
            return
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _unless(given_up: threading.Event, reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Stop a reader with an error as soon as another file of the plan has failed."""

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            if given_up.is_set():
                raise InterruptedError("another file of the plan could not be written")
            yield batch

    return pa.RecordBatchReader.from_batches(reader.schema, batches())


def write_parquet(stream: Any, reader: pa.RecordBatchReader, compression: str) -> int:
    """Write rows as a Parquet file, in row groups of a good size; return how many there were.

    Args:
        stream: The file, open for writing; it stays open.
        reader: The rows.
        compression: The codec.
    """
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


def columns_with_dictionary(schema: pa.Schema) -> list[str] | bool:
    """Return the columns that get a dictionary: those whose values are repeated.

    A dictionary of ids, measures or times grows until the writer gives it up. This takes a third of
    the time of writing and makes the files larger. The lake writes its files by this rule, too.
    """
    if any(pa.types.is_nested(field.type) for field in schema):
        return True
    chosen = [f.name for f in schema if f.name in BATCH_TIMES or not _seldom_repeats(f.type)]
    return chosen or False


def _seldom_repeats(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_floating(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_int64(kind)
        or pa.types.is_decimal(kind)
    )


register(
    SinkDeclaration(
        name="parquet",
        sink=ParquetSink,
        summary="A directory of Parquet files.",
        promise="exactly once",
        how="one file per range, named by range and plan id; it appears when it is complete: "
        "renamed, or on S3 and Google Cloud Storage uploaded whole",
        place="DIR",
        fields=(
            SinkField(
                "path",
                "The directory: a local path, or a URI such as `s3://bucket/path`.",
                templated=True,
            ),
            SinkField("compression", "The codec of the files.", default="zstd"),
            SinkField(
                "storage",
                "Properties of the store by the names of pyiceberg, such as `s3.endpoint`; `name` "
                "chooses those that the environment has under that name.",
                FieldKind.PROPERTIES,
                default={},
                templated=True,
                connection="storage",
            ),
        ),
        make=lambda values, _: ParquetSink(
            values["path"], compression=values["compression"], storage=values["storage"]
        ),
        dataset=lambda values, _: file_node(values["path"]),
    )
)
