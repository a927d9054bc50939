"""Reading a part of a remote segment in several ranges."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluss_client.backend.cluster.remote_files import RANGE_BYTES_MIN, RemoteFiles, ranges
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


@dataclass
class Client:
    """What remote files need of the client that holds them."""

    config: Config
