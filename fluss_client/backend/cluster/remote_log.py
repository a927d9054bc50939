"""Reads log segments that the servers have moved to remote storage.

A fetch of an old offset is answered with files instead of records. The answer says at which byte of
the first file to start, so that reading needs no state: read a range of about the requested size,
return its complete batches, and let the next fetch ask for what follows.

`remote_files.py` reads the files. A range is split into several requests at once
(`scanner.remote-log.read-concurrency`), and several buckets are read at the same time
(`scanner.remote-log.prefetch-num`), on separate threads (`remote-file.download-thread-num`).
"""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING

from fluss_client.backend.cluster.remote_files import RemoteFiles
from fluss_client.backend.contract import FetchPosition
from fluss_client.codec.log_batch import iter_log_batches
from fluss_client.errors import CorruptDataError
from fluss_client.net.rate import RateLimit
from fluss_client.wire import fluss_pb2 as pb

if TYPE_CHECKING:
    from fluss_client.backend.cluster.calls import Calls

READ_BYTES_MIN = 1 << 20


class RemoteLog:
    """Reads the remote segments of one cluster."""

    def __init__(self, calls: Calls, files: RemoteFiles, rate: RateLimit) -> None:
        self._rate = rate
        # The client refers to this object; a strong reference back would keep both alive.
        self._calls: Calls = weakref.proxy(calls)
        self._files = files
        self._reads = asyncio.Semaphore(calls.config.scanner_remote_log_prefetch_num)

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
            data = await self._files.read_range(path, start, length)
            self._rate.add(len(data))
            self._calls.net_metrics.count("remote_log.bytes", len(data))
            if _reaches(data, position.offset):
                return data
            if length < size or len(data) < length:
                raise CorruptDataError(f"{path} holds no batch with offset {position.offset}")
            size *= 4


def _reaches(data: memoryview, offset: int) -> bool:
    return any(header.next_offset > offset for header in iter_log_batches(data))
