"""Files in a cluster's remote storage, opened with the security token of its servers.

The environment may replace what the token says (`FLUSS_STORAGE_<ALIAS>__S3__ENDPOINT`), and its
credentials make the token unnecessary. A token is asked for again before it ends, by one caller for
all, and once more if the store says that it has ended. Reads and copies run on a pool of threads.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import os
import time
import weakref
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow.fs as pafs

from fluss_client.backend.contract import FetchPosition
from fluss_client.codec.log_batch import iter_log_batches
from fluss_client.errors import CorruptDataError, FlussError, StorageError
from fluss_client.net.rate import RateLimit
from fluss_client.storage.failures import FAILURES, has_expired, storage_error
from fluss_client.storage.filesystems import open_storage
from fluss_client.storage.locations import Location, parse_location
from fluss_client.storage.properties import (
    VARIABLE_PREFIX,
    StorageProperties,
    environment_storage,
    token_properties,
)
from fluss_client.wire import fluss_pb2 as pb
from fluss_client.wire.apis import GET_FILESYSTEM_SECURITY_TOKEN

if TYPE_CHECKING:
    from fluss_client.backend.cluster.calls import Calls


T = TypeVar("T")

READ_BYTES_MIN = 1 << 20
RANGE_BYTES_MIN = 4 << 20
"""Ranges are not split below this size: more requests would cost more than they save."""
OPEN_FILES_MAX = 64
"""Files that stay open for their next range. Opening one costs a request for its size."""
KNOWN_ENDS_MAX = 1024
COPY_BYTES = 1 << 20
TOKEN_LIFE_FRACTION = 0.75
"""A token is renewed after this part of its life, so that no read uses an expired one."""
TOKEN_RENEW_S = 600.0
"""When a token is renewed that does not say when it ends."""
EXPIRED_ATTEMPTS_MAX = 3


@dataclass(frozen=True, slots=True)
class _Opened:
    filesystem: pafs.FileSystem
    renew_s: float


@dataclass(frozen=True, slots=True)
class _OpenFile:
    """A file that is read range by range, and the file system with whose token it was opened."""

    filesystem: pafs.FileSystem
    file: Any


class RemoteFiles:
    """Reads the files of one cluster's remote storage."""

    def __init__(self, calls: Calls, rate: RateLimit) -> None:
        config = calls.config
        # The client refers to this object; a strong reference back would keep both alive.
        self._calls: Calls = weakref.proxy(calls)
        self._rate = rate
        self._alias = config.resolved_alias()
        self._opened: dict[tuple[str, str], _Opened] = {}
        self._opening = asyncio.Lock()
        self._files: OrderedDict[str, _OpenFile] = OrderedDict()
        self._ranges = config.scanner_remote_log_read_concurrency
        self._threads = concurrent.futures.ThreadPoolExecutor(
            config.remote_file_download_thread_num, "fluss-remote"
        )

    def close(self) -> None:
        """End the threads; reads that have not started are cancelled."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._opened.clear()
        self._files.clear()

    async def read_range(
        self, path: str, start: int, length: int, size: int | None = None
    ) -> memoryview:
        """Return `length` bytes of a file, fewer only at its end.

        Args:
            path: The file. It is never written again.
            start: The first byte.
            length: The number of bytes.
            size: The size of the file, if it is known.

        Raises:
            StorageError: The file cannot be read; the message says why.
        """
        place = parse_location(path)
        if place.is_local:
            return await self._of_location(place, "read", _read_local, place.path, start, length)

        async def read(filesystem: pafs.FileSystem) -> memoryview:
            try:
                file = await self._open_file(filesystem, place.path, size)
                cuts = ranges(start, length, self._ranges)
                parts = [self._on_thread(_read_at, file, *one) for one in cuts]
                found = await asyncio.gather(*parts)
            except BaseException:
                self._files.pop(place.path, None)
                raise
            return memoryview(found[0] if len(found) == 1 else b"".join(found))

        return await self._with_filesystem(place, "read", read)

    async def _open_file(self, filesystem: pafs.FileSystem, path: str, size: int | None) -> Any:
        """Return a file that is open, for any number of readers at the same time."""
        known = self._files.get(path)
        if known is None or known.filesystem is not filesystem:
            file = await self._on_thread(_open_whole, filesystem, path, size)
            known = self._files[path] = _OpenFile(filesystem, file)
            while len(self._files) > OPEN_FILES_MAX:
                # Others may be reading it: it is closed when the last of them is done.
                self._files.popitem(last=False)
        self._files.move_to_end(path)
        return known.file

    async def download(self, path: str, target: Path) -> None:
        """Copy a file, with the time of its last change, to a local path.

        Raises:
            StorageError: The file cannot be read.
        """
        place = parse_location(path)

        async def copy(filesystem: pafs.FileSystem) -> None:
            await self._on_thread(copy_file, filesystem, place.path, target, self._rate)

        await self._with_filesystem(place, "read", copy)

    async def _with_filesystem(
        self, place: Location, doing: str, work: Callable[[pafs.FileSystem], Awaitable[T]]
    ) -> T:
        for attempt in itertools.count(1):
            filesystem = await self._filesystem(place)
            try:
                return await work(filesystem)
            except FAILURES as error:
                told = await self._on_thread(storage_error, error, place, doing, filesystem)
                if has_expired(told) and attempt < EXPIRED_ATTEMPTS_MAX:
                    # The clocks differ, or the process stood still for longer than the token lives.
                    self._forget(place, filesystem)
                    continue
                raise told from error
        raise AssertionError("unreachable")

    async def _of_location(
        self, place: Location, doing: str, work: Callable[..., T], *args: Any
    ) -> T:
        try:
            return await self._on_thread(work, *args)
        except OSError as error:
            raise storage_error(error, place, doing) from error

    def _on_thread(self, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._threads, work, *args)

    def _forget(self, place: Location, filesystem: pafs.FileSystem) -> None:
        known = self._opened.get((place.scheme, place.host))
        if known is not None and known.filesystem is filesystem:
            del self._opened[place.scheme, place.host]

    async def _filesystem(self, place: Location) -> pafs.FileSystem:
        key = (place.scheme, place.host)
        known = self._opened.get(key)
        if known is not None and time.monotonic() < known.renew_s:
            return known.filesystem
        # Many buckets notice the end of a token at once; one asks, the others wait for its answer.
        async with self._opening:
            known = self._opened.get(key)
            if known is None or time.monotonic() >= known.renew_s:
                known = self._opened[key] = await self._open(place)
            return known.filesystem

    async def _open(self, place: Location) -> _Opened:
        properties = environment_storage(self._alias)
        renew_s = float("inf")
        if not properties.has_credentials(place.family):
            given, life_s = await self._token(place)
            properties, renew_s = properties.over(given), time.monotonic() + life_s
        storage = await self._on_thread(lambda: open_storage(place, properties))
        return _Opened(storage.filesystem, renew_s)

    async def _token(self, place: Location) -> tuple[StorageProperties, float]:
        """Return what the servers' token says, and for how many seconds to use it."""
        request = pb.GetFileSystemSecurityTokenRequest()
        try:
            answer = await self._calls.on_any(GET_FILESYSTEM_SECURITY_TOKEN, request)
        except FlussError as error:
            word = self._alias.upper().replace("-", "_")
            raise StorageError(
                f"the servers give no token for {place}: {error}. Mend their access to the token "
                f"service, or give this process credentials of its own "
                f"({VARIABLE_PREFIX}{word}__S3__ACCESS_KEY_ID and the like)"
            ) from error
        extra = {item.key: item.value for item in answer.addition_info}
        life_s = TOKEN_RENEW_S
        if answer.HasField("expiration_time"):
            left_s = answer.expiration_time / 1000 - time.time()
            life_s = left_s * TOKEN_LIFE_FRACTION
        return token_properties(place.scheme, bytes(answer.token), extra), life_s


def _read_local(path: str, start: int, length: int) -> memoryview:
    with open(path, "rb", buffering=0) as file:
        return memoryview(os.pread(file.fileno(), length, start))


def _open_whole(filesystem: pafs.FileSystem, path: str, size: int | None) -> Any:
    """Open a file, and check its size if it is known."""
    file = filesystem.open_input_file(path)
    # Arrow takes an answer that was cut before the size for one of an empty file.
    if size is not None and file.size() != size:
        raise OSError(_other_size(path, file.size(), size))
    return file


def _other_size(path: str, found: int, size: int | None) -> str:
    return (
        f"{path} has {found} bytes here and {size} in the store: an answer of the store was cut "
        "off, or the file is damaged; read it again"
    )


def _read_at(file: Any, start: int, length: int) -> bytes:
    found: bytes = file.read_at(length, start)
    return found


def copy_file(filesystem: pafs.FileSystem, path: str, target: Path, rate: RateLimit) -> None:
    """Copy a file of a pyarrow file system, with the time of its last change. Blocks.

    Raises:
        StorageError: The local file cannot be written; other failures are those of `FAILURES`.
    """
    info = filesystem.get_file_info(path)
    if info.type == pafs.FileType.NotFound:
        raise FileNotFoundError(f"{path} does not exist")
    # Without a buffer of its own, so that closing the file cannot fail at what is left in it.
    copied = 0
    with filesystem.open_input_stream(path) as source, open(target, "wb", buffering=0) as file:
        while data := source.read(COPY_BYTES):
            _write_local(file, data, target)
            copied += len(data)
            rate.add(len(data))
            rate.block_until_ready()
    # No file of a snapshot is empty, but what Arrow takes for one may be.
    if not copied or (info.size is not None and copied != info.size):
        raise OSError(_other_size(path, copied, info.size))
    if info.mtime_ns is not None:
        os.utime(target, ns=(info.mtime_ns, info.mtime_ns))


def _write_local(file: FileIO, data: bytes, target: Path) -> None:
    left = memoryview(data)
    try:
        while left:
            left = left[file.write(left) :]
    except OSError as error:
        # It must not be taken for a failure of the remote storage.
        raise StorageError(f"cannot write {target}: {error.strerror}") from error


def ranges(start: int, length: int, parts_max: int) -> list[tuple[int, int]]:
    """Split a range into parts that are read at once; return start and length of each."""
    parts = max(1, min(parts_max, length // RANGE_BYTES_MIN))
    cuts = [start + length * at // parts for at in range(parts + 1)]
    return [(first, last - first) for first, last in itertools.pairwise(cuts)]


class RemoteLog:
    """Reads log segments that the servers have moved to remote storage.

    A fetch of an old offset is answered with files instead of records. The answer says at which
    byte of the first file to start, so that reading needs no state: read a range of about the
    requested size, return its complete batches, and let the next fetch ask for what follows.

    The byte of an answer is that of an index, which may be some batches before the offset. So the
    byte at which the last range of a file ended is kept, and the next one begins there.

    A range is split into several requests at once (`scanner.remote-log.read-concurrency`), and
    several buckets are read at the same time (`scanner.remote-log.prefetch-num`), on separate
    threads (`remote-file.download-thread-num`).
    """

    def __init__(self, calls: Calls, files: RemoteFiles, rate: RateLimit) -> None:
        self._rate = rate
        # The client refers to this object; a strong reference back would keep both alive.
        self._calls: Calls = weakref.proxy(calls)
        self._files = files
        self._reads = asyncio.Semaphore(calls.config.scanner_remote_log_prefetch_num)
        self._ends: OrderedDict[str, tuple[int, int]] = OrderedDict()
        """The offset that comes next in a file, and the byte where it begins."""

    async def read(self, info: pb.PbRemoteLogFetchInfo, position: FetchPosition) -> memoryview:
        """Return complete batches from the position on, about as many bytes as it allows."""
        async with self._reads:
            return await self._read(info, position)

    async def _read(self, info: pb.PbRemoteLogFetchInfo, position: FetchPosition) -> memoryview:
        if not info.remote_log_segments:
            raise CorruptDataError("a remote log answer names no segment")
        segment = info.remote_log_segments[0]
        name = f"{segment.remote_log_start_offset:020d}.log"
        path = f"{info.remote_log_tablet_dir}/{segment.remote_log_segment_id}/{name}"
        size = segment.segment_size_in_bytes
        start = info.first_start_pos if info.HasField("first_start_pos") else 0
        offset, known = self._ends.get(path, (-1, 0))
        if offset == position.offset:
            start = max(start, known)
        wanted = max(READ_BYTES_MIN, position.bytes_max)
        data = memoryview(b"")
        while True:
            at = start + len(data)
            length = size - at if size - at < wanted + READ_BYTES_MIN else wanted
            if length <= 0:
                raise CorruptDataError(f"{path} holds no batch with offset {position.offset}")
            await self._rate.ready()
            more = await self._files.read_range(path, at, length, size)
            self._rate.add(len(more))
            self._calls.net_metrics.count("remote_log.bytes", len(more))
            if len(more) < length:
                raise CorruptDataError(f"{path} ends at byte {at + len(more)}, not at {size}")
            data = memoryview(b"".join((data, more))) if data else more
            whole, following = complete_batches(data)
            if following > position.offset:
                self._keep_end(path, following, start + whole)
                return data
            # A batch is longer than the range, or the index was far before the offset.
            start, data = start + whole, data[whole:]

    def _keep_end(self, path: str, offset: int, byte: int) -> None:
        self._ends[path] = (offset, byte)
        self._ends.move_to_end(path)
        while len(self._ends) > KNOWN_ENDS_MAX:
            self._ends.popitem(last=False)


def complete_batches(data: memoryview) -> tuple[int, int]:
    """Return where the last complete batch ends, and the offset after it; 0 and -1 without one."""
    end, offset = 0, -1
    for header in iter_log_batches(data):
        end += header.nbytes
        offset = header.next_offset
    return end, offset
