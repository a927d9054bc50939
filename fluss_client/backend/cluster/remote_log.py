"""Reads log segments that the servers have moved to remote storage.

A fetch of an old offset is answered with files instead of records. The answer says at which byte of
the first file to start, so that reading needs no state: read a range of about the requested size,
return its complete batches, and let the next fetch ask for what follows.

Paths with the scheme `file` (or none) are read from the local disk, others through pyarrow's file
systems with a token of the cluster. A remote range is split into several requests at once
(`scanner.remote-log.read-concurrency`), and several buckets are read at the same time
(`scanner.remote-log.prefetch-num`), on separate threads (`remote-file.download-thread-num`).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import json
import os
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from fluss_client.backend.contract import FetchPosition
from fluss_client.codec.batches.log_batch import iter_log_batches
from fluss_client.errors import CorruptDataError, StorageError, UnsupportedError
from fluss_client.net.rate import RateLimit
from fluss_client.wire import fluss_pb2 as pb
from fluss_client.wire.apis import GET_FILESYSTEM_SECURITY_TOKEN

if TYPE_CHECKING:
    from fluss_client.backend.cluster.calls import Calls

T = TypeVar("T")

READ_BYTES_MIN = 1 << 20
RANGE_BYTES_MIN = 1 << 20
"""Ranges are not split below this size: more requests would cost more than they save."""
COPY_BYTES = 1 << 20
TOKEN_LIFE_FRACTION = 0.75
"""A token is renewed after this part of its life, so that no read uses an expired one."""
TOKEN_RENEW_S = 600.0


class RemoteLog:
    """Reads the remote segments of one cluster."""

    def __init__(self, calls: Calls, rate: RateLimit) -> None:
        config = calls.config
        self._rate = rate
        # The client refers to this object; a strong reference back would keep both alive.
        self._calls: Calls = weakref.proxy(calls)
        self._filesystems: dict[str, tuple[Any, float]] = {}
        self._reads = asyncio.Semaphore(config.scanner_remote_log_prefetch_num)
        self._ranges = config.scanner_remote_log_read_concurrency
        self._threads = concurrent.futures.ThreadPoolExecutor(
            config.remote_file_download_thread_num, "fluss-remote"
        )

    def close(self) -> None:
        """End the threads; reads that have not started are cancelled."""
        self._threads.shutdown(wait=False, cancel_futures=True)

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
        start = info.first_start_pos if info.HasField("first_start_pos") else 0
        size = max(READ_BYTES_MIN, position.bytes_max)
        while True:
            length = min(size, segment.segment_size_in_bytes - start)
            if length <= 0:
                raise CorruptDataError(f"{path} ends before offset {position.offset}")
            await self._rate.ready()
            data = await self._read_range(path, start, length)
            self._rate.add(len(data))
            self._calls.net_metrics.count("remote_log.bytes", len(data))
            if _reaches(data, position.offset):
                return data
            if length < size or len(data) < length:
                raise CorruptDataError(f"{path} holds no batch with offset {position.offset}")
            size *= 4

    async def _read_range(self, path: str, start: int, length: int) -> memoryview:
        scheme = urlsplit(path).scheme
        try:
            if scheme in ("", "file"):
                local = urlsplit(path).path if scheme else path
                return await self._on_thread(_read_local, local, start, length)
            filesystem = await self._filesystem(scheme)
            parts = [
                self._on_thread(_read_remote, filesystem, path, *one)
                for one in ranges(start, length, self._ranges)
            ]
            return memoryview(b"".join(await asyncio.gather(*parts)))
        except OSError as error:
            raise StorageError(f"cannot read remote log segment {path}: {error}") from error

    async def download(self, remote: str, target: Path) -> None:
        """Copy a file, with the time of its last change, to a local path."""
        filesystem = await self._filesystem(urlsplit(remote).scheme)
        await self._on_thread(copy_file, filesystem, remote, target, self._rate)

    def _on_thread(self, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._threads, work, *args)

    async def _filesystem(self, scheme: str) -> Any:
        known = self._filesystems.get(scheme)
        if known is not None and time.monotonic() < known[1]:
            return known[0]
        request = pb.GetFileSystemSecurityTokenRequest()
        answer = await self._calls.on_any(GET_FILESYSTEM_SECURITY_TOKEN, request)
        extra = {item.key: item.value for item in answer.addition_info}
        filesystem = make_filesystem(scheme, bytes(answer.token), extra)
        life_s = TOKEN_RENEW_S
        if answer.HasField("expiration_time"):
            left_s = answer.expiration_time / 1000 - time.time()
            life_s = max(1.0, left_s * TOKEN_LIFE_FRACTION)
        self._filesystems[scheme] = (filesystem, time.monotonic() + life_s)
        return filesystem


def make_filesystem(scheme: str, token: bytes, extra: dict[str, str]) -> Any:
    """Return the file system of a scheme, with the cluster's short-lived credentials."""
    if scheme in ("s3", "s3a", "s3n", "oss", "cosn", "obs"):
        from pyarrow import fs

        keys = json.loads(token) if token else {}
        return fs.S3FileSystem(
            access_key=keys.get("access_key_id"),
            secret_key=keys.get("access_key_secret"),
            session_token=keys.get("security_token"),
            endpoint_override=extra.get("fs.s3a.endpoint"),
            region=extra.get("fs.s3a.endpoint.region"),
        )
    if scheme in ("hdfs", "gs"):
        from pyarrow import fs

        return fs.FileSystem.from_uri(f"{scheme}://")[0]
    raise UnsupportedError(
        f"the remote log lies on '{scheme}:', which this client cannot read: it reads file, s3 "
        "and what pyarrow's file systems offer"
    )


def _read_local(path: str, start: int, length: int) -> memoryview:
    with open(path, "rb", buffering=0) as file:
        return memoryview(os.pread(file.fileno(), length, start))


def _read_remote(filesystem: Any, path: str, start: int, length: int) -> bytes:
    parts = urlsplit(path)
    with filesystem.open_input_file(f"{parts.netloc}{parts.path}") as file:
        found: bytes = file.read_at(length, start)
        return found


def copy_file(filesystem: Any, remote: str, target: Path, rate: RateLimit) -> None:
    """Copy a file of a pyarrow file system, with the time of its last change. Blocks."""
    parts = urlsplit(remote)
    path = f"{parts.netloc}{parts.path}"
    changed_ns = filesystem.get_file_info(path).mtime_ns
    with filesystem.open_input_stream(path) as source, open(target, "wb") as file:
        while data := source.read(COPY_BYTES):
            file.write(data)
            rate.add(len(data))
            rate.block_until_ready()
    if changed_ns is not None:
        os.utime(target, ns=(changed_ns, changed_ns))


def ranges(start: int, length: int, parts_max: int) -> list[tuple[int, int]]:
    """Split a range into parts that are read at once; return start and length of each."""
    parts = max(1, min(parts_max, length // RANGE_BYTES_MIN))
    cuts = [start + length * at // parts for at in range(parts + 1)]
    return [(first, last - first) for first, last in itertools.pairwise(cuts)]


def _reaches(data: memoryview, offset: int) -> bool:
    return any(header.next_offset > offset for header in iter_log_batches(data))
