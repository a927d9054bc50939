"""Stream the key state of a bucket from its latest KV snapshot.

A KV snapshot is a set of RocksDB files in the cluster's remote storage. Servers keep the last two.
A lease keeps one for longer, so the order of calls is: find the latest snapshot, lease it, ask for
its files. A server grants a lease on a snapshot that is gone already; then the files are not found,
and all begins again.

Files in remote storage are copied into a temporary folder under their RocksDB names; then the lease
is released. Files on a local disk are linked there instead, and the lease is renewed while the
cursor is open and released when it is closed. If the process dies, the lease expires by itself.
RocksDB opens the folder read-only.

Files whose lease may have expired are not read any further: they may be gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from fluss_client.backend.cluster.cluster_admin import ClusterAdminCalls
from fluss_client.backend.cluster.kv_scan import ScanCursor
from fluss_client.backend.cluster.reads import ReadCalls
from fluss_client.backend.contract import STATE_READ_BYTES_MAX
from fluss_client.backend.temporary_folder import TemporaryFolder
from fluss_client.codec.binary.blobs import Blobs
from fluss_client.config import Config
from fluss_client.errors import (
    ClosedError,
    CorruptDataError,
    FlussError,
    KvSnapshotNotExistError,
    PartitionNotExistError,
    StorageError,
    StorageRefusedError,
    TooManyScannersError,
    UnsupportedByServerError,
)
from fluss_client.model.cluster import KvSnapshot
from fluss_client.model.table import TableBucket, TableInfo
from fluss_client.net.connection import Address
from fluss_client.storage.failures import NO_ROOM
from fluss_client.storage.locations import parse_location
from fluss_client.wire import apis
from fluss_client.wire import fluss_pb2 as pb

T = TypeVar("T")
log = logging.getLogger(__name__)
ATTEMPTS_MAX = 10
"""How often a snapshot is looked for again that was removed before it was leased."""
RENEWALS_PER_LEASE = 3
PROGRESS_LOG_S = 30.0
"""A copy that takes longer than this tells how far it is, as often."""
LATEST_KEPT_MAX, LATEST_KEPT_S = 64, 10.0
"""Of how many partitions it is known, and how long, which snapshot of a bucket is the latest."""
NAMES_KEPT_MAX = 100_000
OPEN_FILES_MAX = 64
READ_AHEAD_BYTES = 1 << 20


def can_open_snapshots() -> bool:
    """Whether the package that reads RocksDB files is installed (the extra `keys`)."""
    return importlib.util.find_spec("rocksdict") is not None


class StateCalls(ReadCalls, ClusterAdminCalls):
    """The key state of buckets, streamed from KV snapshots."""

    def __init__(self, bootstrap: list[Address], config: Config) -> None:
        super().__init__(bootstrap, config)
        # What one answer said about the buckets of a partition, and until when it is used. A bucket
        # takes its snapshot once, so who reads a bucket again gets a new answer.
        self._latest: dict[tuple[int, int | None], tuple[float, dict[TableBucket, KvSnapshot]]] = {}
        self._partition_names: dict[int, str] = {}

    async def open_state(
        self, table: TableInfo, bucket: TableBucket
    ) -> SnapshotCursor | ScanCursor | None:
        """Open the server's own scan if there is one (1.0), else the latest KV snapshot."""
        if await self._leader_scans(table, bucket):
            cursor = ScanCursor(self, table, bucket)
            try:
                await cursor.open()
                return cursor
            except TooManyScannersError:
                if not can_open_snapshots():
                    raise
            except UnsupportedByServerError:
                pass  # the bucket has moved to an older server
        return await self._open_snapshot(table, bucket)

    async def _leader_scans(self, table: TableInfo, bucket: TableBucket) -> bool:
        """Return whether the leader of a bucket serves scans of the key state."""
        node = await self.locate(table, bucket)
        try:
            connection = await self.pool.get(self.metadata.tablet_address(node))
        except FlussError as error:
            if not error.retriable:
                raise
            return False
        return connection.supports(apis.SCAN_KV)

    async def _open_snapshot(self, table: TableInfo, bucket: TableBucket) -> SnapshotCursor | None:
        if not can_open_snapshots():
            return None
        failed: StorageError | None = None
        failed_id = None
        for _ in range(ATTEMPTS_MAX):
            found = await self._latest_snapshot(table, bucket)
            if found is None or found.snapshot_id is None or found.log_offset is None:
                return None
            if failed is not None and failed_id == found.snapshot_id:
                # The latest snapshot is still the one whose files could not be fetched.
                raise failed
            cursor = SnapshotCursor(self, table, bucket, found.snapshot_id, found.log_offset)
            try:
                await cursor.open()
            except KvSnapshotNotExistError:
                await cursor.close()
                continue
            except StorageRefusedError:
                await cursor.close()
                raise
            except StorageError as error:
                # If its files were deleted while they were fetched, there is a newer one.
                await cursor.close()
                failed, failed_id = error, found.snapshot_id
                continue
            except BaseException:
                await cursor.close()
                raise
            return cursor
        raise StorageError(
            f"{table.table_path}: the latest KV snapshot of {bucket} was removed {ATTEMPTS_MAX} "
            "times before it could be opened; try again"
        )

    async def _latest_snapshot(self, table: TableInfo, bucket: TableBucket) -> KvSnapshot | None:
        """Return the latest snapshot of a bucket; one request serves all buckets of a partition.

        The server looks up every bucket for each request: a request per bucket would cost the
        square of their number.
        """
        place = bucket.table_id, bucket.partition_id
        until_s, known = self._latest.get(place, (0.0, {}))
        if bucket not in known or until_s < time.monotonic():
            name = None
            if bucket.partition_id is not None:
                name = await self._partition_name(table, bucket.partition_id)
            known = {one.bucket: one for one in await self.list_kv_snapshots(table, name)}
            if bucket not in known and bucket.partition_id is not None:
                # The name belongs to another partition now, because this one was dropped.
                self._partition_names.pop(bucket.partition_id, None)
                await self._partition_name(table, bucket.partition_id)
            if len(self._latest) >= LATEST_KEPT_MAX:
                self._latest.clear()
            self._latest[place] = time.monotonic() + LATEST_KEPT_S, known
        return known.pop(bucket, None)

    async def _partition_name(self, table: TableInfo, partition_id: int) -> str:
        if partition_id not in self._partition_names:
            if len(self._partition_names) >= NAMES_KEPT_MAX:
                self._partition_names.clear()
            for info in await self.list_partitions(table.table_path, None):
                self._partition_names[info.partition_id] = info.partition_name
        name = self._partition_names.get(partition_id)
        if name is None:
            raise PartitionNotExistError(
                f"partition {partition_id} of table {table.table_path} does not exist"
            )
        return name


class SnapshotCursor:
    """The rows of one KV snapshot, in key order."""

    kind = "snapshot"

    def __init__(
        self,
        calls: StateCalls,
        table: TableInfo,
        bucket: TableBucket,
        snapshot_id: int,
        offset: int,
    ) -> None:
        self._calls = calls
        self._table = table
        self._bucket = bucket
        self.snapshot_id = snapshot_id
        self.offset = offset
        self.bytes_fetched = 0
        self._told_s = 0.0
        self._lease_id = f"fluss-orchestrate-{uuid.uuid4()}"
        self._lease_ms = calls.config.scanner_state_lease_ms
        self._renewal: asyncio.Task[None] | None = None
        self._leased_until_s = 0.0
        self._renewal_error: FlussError | None = None
        self.made_ms: int | None = None
        self._in_place = False
        self._folder: TemporaryFolder | None = None
        self._database: Any = None
        self._values: Iterator[bytes] = iter(())
        # Each thread that allocates keeps memory for itself, so one does all the reading.
        self._thread = ThreadPoolExecutor(1, "fluss-state-read")
        self._last_value: bytes | None = None
        self._ended = False

    @property
    def folder(self) -> str:
        """Where the files of the snapshot are."""
        assert self._folder is not None
        return str(self._folder.path)

    async def open(self) -> None:
        """Lease the snapshot, fetch its files and open them."""
        await self._acquire()
        files = await self._files()
        self._renewal = asyncio.create_task(self._renew())
        base = self._calls.config.scanner_state_folder
        self._folder = await asyncio.to_thread(TemporaryFolder, base)
        await self._fetch_all(files)
        self._check_lease()
        if not self._in_place:
            # Nobody can delete the copies.
            await self._end_lease()
        await self._on_thread(self._open_database)

    def _on_thread(self, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    async def _acquire(self) -> None:
        request = pb.AcquireKvSnapshotLeaseRequest(
            lease_id=self._lease_id, lease_duration_ms=self._lease_ms
        )
        leased = request.snapshots_to_lease.add(table_id=self._table.table_id)
        entry = leased.bucket_snapshots.add(
            bucket_id=self._bucket.bucket_id, snapshot_id=self.snapshot_id
        )
        if self._bucket.partition_id is not None:
            entry.partition_id = self._bucket.partition_id
        until_s = time.monotonic() + self._lease_ms / 1000
        answer = await self._calls.on_coordinator(
            apis.ACQUIRE_KV_SNAPSHOT_LEASE, request, repeatable=True
        )
        if answer.unavailable_snapshots:
            raise KvSnapshotNotExistError(f"snapshot {self.snapshot_id} of {self._bucket} is gone")
        self._leased_until_s = until_s

    async def _files(self) -> list[tuple[str, str]]:
        request = pb.GetKvSnapshotMetadataRequest(
            table_id=self._table.table_id,
            bucket_id=self._bucket.bucket_id,
            snapshot_id=self.snapshot_id,
        )
        if self._bucket.partition_id is not None:
            request.partition_id = self._bucket.partition_id
        answer = await self._calls.on_any(apis.GET_KV_SNAPSHOT_METADATA, request)
        self.offset = answer.log_offset
        files = [(f.remote_path, f.local_file_name) for f in answer.snapshot_files]
        for _, name in files:
            # The name comes from the network and becomes a path here.
            if os.path.basename(name) != name or name in ("", ".", ".."):
                raise CorruptDataError(f"a KV snapshot names the file {name!r}")
        return files

    async def _renew(self) -> None:
        """Renew the lease until the cursor is closed."""
        pause_s = self._lease_ms / 1000 / RENEWALS_PER_LEASE
        while True:
            await asyncio.sleep(pause_s)
            if time.monotonic() > self._leased_until_s:
                # A server would grant a lease on files that it has deleted meanwhile.
                return
            try:
                await self._acquire()
            except FlussError as error:
                # The lease holds for a while yet: the next attempt may succeed.
                self._renewal_error = error

    def _check_lease(self) -> None:
        if time.monotonic() > self._leased_until_s:
            why = self._renewal_error or "this process stood still for longer than that"
            raise StorageError(
                f"{self._table.table_path}: the lease of KV snapshot {self.snapshot_id} "
                f"({self._lease_ms} ms, scanner.state.lease) was not renewed in time, so its files "
                f"may be deleted: {why}. Read again"
            )

    async def _fetch_all(self, files: Sequence[tuple[str, str]]) -> None:
        self._told_s = time.monotonic()
        fetches = [asyncio.create_task(self._fetch(remote, name)) for remote, name in files]
        try:
            await asyncio.gather(*fetches)
        except BaseException:
            # The folder is deleted now: no other copy may begin in it.
            for fetch in fetches:
                fetch.cancel()
            await asyncio.wait(fetches)
            raise

    async def _fetch(self, remote: str, name: str) -> None:
        assert self._folder is not None
        target = self._folder.path / name
        place = parse_location(remote)
        try:
            if place.is_local:
                self._in_place = True
                await asyncio.to_thread(os.symlink, place.path, target)
            else:
                await self._calls.download(remote, target)
            found = target.stat()
            self.made_ms = max(self.made_ms or 0, int(found.st_mtime * 1000))
            self._count(found.st_size)
        except StorageRefusedError as error:
            raise StorageRefusedError(f"{self._table.table_path}: {error}") from error
        except (OSError, StorageError) as error:
            raise StorageError(
                f"{self._table.table_path}: cannot fetch {remote} of KV snapshot "
                f"{self.snapshot_id} into {self._folder.path}: {error}. This machine needs access "
                "to the cluster's remote storage (remote.data.dir), and room in the temporary "
                "folder (scanner.state.folder)"
            ) from error

    def _count(self, size: int) -> None:
        self.bytes_fetched += size
        if time.monotonic() - self._told_s > PROGRESS_LOG_S:
            self._told_s = time.monotonic()
            log.info(
                "%s: %d bytes of KV snapshot %d of %s are here so far",
                self._table.table_path,
                self.bytes_fetched,
                self.snapshot_id,
                self._bucket,
            )

    def _open_database(self) -> None:
        from rocksdict import AccessType, Options, Rdict, ReadOptions

        options = Options(raw_mode=True)
        options.set_max_open_files(OPEN_FILES_MAX)
        try:
            self._database = Rdict(self.folder, options, access_type=AccessType.read_only())
            self._values = self._database.values(read_opt=self._read_options(ReadOptions))
        except Exception as error:  # noqa: BLE001 (rocksdict raises plain Exception)
            raise self._failure(error) from None

    @staticmethod
    def _read_options(make: Callable[[], Any]) -> Any:
        options = make()
        options.fill_cache(False)
        options.set_readahead_size(READ_AHEAD_BYTES)
        return options

    async def read(self, rows_max: int) -> Blobs | None:
        if self._database is None:
            raise ClosedError("the cursor was closed")
        if self._in_place:
            await self._calls.rate.ready()
        values = None if self._ended else await self._on_thread(self._next, rows_max)
        # What was read while the lease held is right; afterwards a file may have been missing.
        if self._in_place:
            self._check_lease()
        return values

    def _next(self, rows_max: int) -> Blobs | None:
        try:
            values = Blobs.from_iterator(self._values, rows_max, STATE_READ_BYTES_MAX)
        except Exception as error:  # noqa: BLE001 (rocksdict raises plain Exception)
            raise self._damage(error) from None
        if not len(values):
            self._check_end()
            self._ended = True
            return None
        self._last_value = values[len(values) - 1]
        if self._in_place:
            self._calls.rate.add(values.data.size)
        return values

    def _check_end(self) -> None:
        """Raise if the iteration ended at a damaged block, which it does without an error.

        A value contains its key's columns, so no two are equal: the iteration is complete if it
        ended with the value that is found from behind.
        """
        from rocksdict import ReadOptions

        end = self._database.iter(self._read_options(ReadOptions))
        try:
            end.seek_to_last()
            end.status()
            last = end.value() if end.valid() else None
        except Exception as error:  # noqa: BLE001 (rocksdict raises plain Exception)
            raise self._damage(error) from None
        if last != self._last_value:
            raise self._damage("rows follow after the end")

    def _failure(self, error: Exception) -> StorageError | CorruptDataError:
        """What an error says that was raised when the files were opened, which writes a little."""
        text = str(error)
        if not any(os.strerror(number) in text for number in NO_ROOM):
            return self._damage(error)
        return StorageError(
            f"{self._table.table_path}: cannot open KV snapshot {self.snapshot_id} in "
            f"{self.folder}: {text}. Set scanner.state.folder to a folder with more room"
        )

    def _damage(self, why: object) -> CorruptDataError:
        return CorruptDataError(
            f"{self._table.table_path}: KV snapshot {self.snapshot_id} of {self._bucket} is "
            f"damaged: {why}. Nothing was returned beyond the damage; read again after the next "
            "snapshot"
        )

    async def close(self) -> None:
        database, self._database = self._database, None
        folder, self._folder = self._folder, None
        self._values = iter(())
        await asyncio.to_thread(_dispose, database, folder)
        self._thread.shutdown(wait=False)
        await self._end_lease()

    async def _end_lease(self) -> None:
        """Stop renewing the lease, and release it."""
        if self._renewal is not None:
            self._renewal.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._renewal
            self._renewal = None
        lease_id, self._lease_id = self._lease_id, ""
        if not lease_id:
            return
        request = pb.ReleaseKvSnapshotLeaseRequest(lease_id=lease_id)
        entry = request.buckets_to_release.add(
            table_id=self._table.table_id, bucket_id=self._bucket.bucket_id
        )
        if self._bucket.partition_id is not None:
            entry.partition_id = self._bucket.partition_id
        # A lease that cannot be released expires by itself; it must not hide another error.
        with contextlib.suppress(FlussError):
            await self._calls.on_coordinator(
                apis.RELEASE_KV_SNAPSHOT_LEASE, request, repeatable=True
            )


def _dispose(database: Any, folder: TemporaryFolder | None) -> None:
    if database is not None:
        database.close()
    if folder is not None:
        folder.close()
