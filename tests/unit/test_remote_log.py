"""Reading a part of a remote segment in several ranges."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from fluss_client.backend.cluster import remote_log
from fluss_client.backend.cluster.remote_log import RANGE_BYTES_MIN, RemoteLog, ranges
from fluss_client.config import Config
from fluss_client.errors import StorageError
from fluss_client.net.rate import RateLimit


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


def test_a_piece_is_joined_from_its_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = os.urandom(5 << 20)
    path = tmp_path / "segment.log"
    path.write_bytes(content)
    asked: list[tuple[int, int]] = []

    def read(filesystem: Any, name: str, start: int, length: int) -> bytes:
        asked.append((start, length))
        return real(filesystem, name.replace("s3://", "s3:///"), start, length)

    real = remote_log._read_remote
    monkeypatch.setattr(remote_log, "_read_remote", read)
    monkeypatch.setattr(RemoteLog, "_filesystem", lambda *_: _ready(fs.LocalFileSystem()))
    config = Config({"bootstrap.servers": "nowhere:1", "scanner.remote-log.read-concurrency": 3})
    calls = Client(config)
    remote = RemoteLog(calls, RateLimit(0))  # type: ignore[arg-type]
    try:
        data = asyncio.run(remote._read_range(f"s3:/{path}", 100, 4 << 20))
        assert bytes(data) == content[100 : 100 + (4 << 20)]
        assert len(asked) == 3
        with pytest.raises(StorageError, match="cannot read"):
            asyncio.run(remote._read_range(f"s3:/{tmp_path}/gone.log", 0, 10))
    finally:
        remote.close()


@dataclass
class Client:
    """What a remote log needs of the client that holds it."""

    config: Config


async def _ready(value: Any) -> Any:
    return value
