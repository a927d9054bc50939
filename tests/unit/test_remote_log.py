"""Reading a part of a remote segment in several ranges."""

from __future__ import annotations

import asyncio
import itertools
import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluss_client.backend.cluster.remote_files import (
    RANGE_BYTES_MIN,
    READ_BYTES_MIN,
    RemoteFiles,
    RemoteLog,
    ranges,
)
from fluss_client.backend.contract import FetchPosition
from fluss_client.codec.log_batch import encode_log_batch, iter_log_batches
from fluss_client.config import Config
from fluss_client.errors import CorruptDataError, StorageError
from fluss_client.model.table import TableBucket
from fluss_client.net.rate import RateLimit
from fluss_client.wire import fluss_pb2 as pb


@given(st.integers(0, 1 << 40), st.integers(1, 64 << 20), st.integers(1, 50))
def test_ranges_follow_each_other_and_are_not_tiny(start: int, length: int, parts: int) -> None:
    found = ranges(start, length, parts)
    assert 1 <= len(found) <= parts
    position = start
    for first, size in found:
        assert first == position
        assert size >= min(length, RANGE_BYTES_MIN)
        position += size
    assert position == start + length


def test_a_local_range_is_read_and_a_missing_file_is_told(tmp_path: Path) -> None:
    content = os.urandom(5 << 20)
    path = tmp_path / "segment.log"
    path.write_bytes(content)
    files = RemoteFiles(Client(Config({"bootstrap.servers": "nowhere:1"})), RateLimit(0))  # type: ignore[arg-type]
    try:
        for location in (str(path), f"file://{path}", f"file:{path}"):
            data = asyncio.run(files.read_range(location, 100, 4 << 20))
            assert bytes(data) == content[100 : 100 + (4 << 20)]
        with pytest.raises(StorageError, match=r"cannot read .*gone\.log: there is no such file"):
            asyncio.run(files.read_range(f"{tmp_path}/gone.log", 0, 10))
    finally:
        files.close()


class Segment:
    """A segment of a log on the local disk, and a server that answers fetches with it."""

    def __init__(self, folder: Path, sizes: list[int], rows: int = 10) -> None:
        batches = []
        for at, size in enumerate(sizes):
            batch = b"".join(encode_log_batch([os.urandom(size)], schema_id=1, record_count=rows))
            # The server writes the offset into the batch that it gets.
            batches.append((at * rows).to_bytes(8, "little") + batch[8:])
        *self.starts, self.size = itertools.accumulate(map(len, batches), initial=0)
        self.rows = rows
        self.stop = rows * len(sizes)
        (folder / "id").mkdir()
        self.file = folder / "id" / f"{0:020d}.log"
        self.file.write_bytes(b"".join(batches))
        self.folder = folder

    def answer(self, offset: int, behind: int) -> pb.PbRemoteLogFetchInfo:
        """Where to read an offset; the index is so many batches behind."""
        at = max(0, offset // self.rows - behind)
        info = pb.PbRemoteLogFetchInfo(
            remote_log_tablet_dir=str(self.folder), first_start_pos=self.starts[at]
        )
        info.remote_log_segments.add(
            remote_log_segment_id="id",
            remote_log_start_offset=0,
            remote_log_end_offset=self.stop,
            segment_size_in_bytes=self.size,
        )
        return info


@pytest.mark.parametrize("batch", [3_000, 40_000, 1_500_000, 5_000_000])
@pytest.mark.parametrize("behind", [0, 3])
def test_a_segment_is_read_about_once(tmp_path: Path, batch: int, behind: int) -> None:
    """Also if batches are larger than a range, and if the index is far before the offset."""
    segment = Segment(tmp_path, [batch] * (12_000_000 // batch))
    client = Client(Config({"bootstrap.servers": "nowhere:1"}))
    files = RemoteFiles(client, RateLimit(0))  # type: ignore[arg-type]
    log = RemoteLog(client, files, RateLimit(0))  # type: ignore[arg-type]

    async def read() -> int:
        offset, fetch_bytes, fetches = 0, 1 << 20, 0
        while offset < segment.stop:
            position = FetchPosition(TableBucket(1, 0), offset, fetch_bytes)
            data = await log.read(segment.answer(offset, behind), position)
            found = [h for h in iter_log_batches(data) if h.next_offset > offset]
            assert found[0].base_offset == offset
            offset, fetches = found[-1].next_offset, fetches + 1
            fetch_bytes = min(2 * fetch_bytes, 4 << 20)
        return fetches

    try:
        fetches = asyncio.run(read())
    finally:
        files.close()
    # The batch that a range ends in is read again by the next one.
    assert client.net_metrics.bytes <= segment.size + fetches * min(batch + 100, 4 << 20)
    assert fetches <= 2 + segment.size // READ_BYTES_MIN


def test_a_segment_without_the_offset_is_told(tmp_path: Path) -> None:
    segment = Segment(tmp_path, [1000] * 20)
    client = Client(Config({"bootstrap.servers": "nowhere:1"}))
    files = RemoteFiles(client, RateLimit(0))  # type: ignore[arg-type]
    log = RemoteLog(client, files, RateLimit(0))  # type: ignore[arg-type]
    position = FetchPosition(TableBucket(1, 0), segment.stop, 1 << 20)
    try:
        with pytest.raises(CorruptDataError, match=f"holds no batch with offset {segment.stop}"):
            asyncio.run(log.read(segment.answer(0, 0), position))
        segment.file.write_bytes(segment.file.read_bytes()[:-700])
        with pytest.raises(CorruptDataError, match="ends at byte"):
            asyncio.run(log.read(segment.answer(0, 0), position))
    finally:
        files.close()


class Counted:
    """Counts the bytes that were read."""

    def __init__(self) -> None:
        self.bytes = 0

    def count(self, name: str, count: int) -> None:
        assert name == "remote_log.bytes"
        self.bytes += count


@dataclass
class Client:
    """What remote files need of the client that holds them."""

    config: Config
    net_metrics: Counted = field(default_factory=Counted)
