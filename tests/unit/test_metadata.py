"""What a client knows of its cluster, once it is closed."""

from __future__ import annotations

import asyncio

import pytest

from fluss_client.config import Config
from fluss_client.errors import ClosedError
from fluss_client.model.table import TableBucket, TablePath
from fluss_client.net.metadata import Metadata
from fluss_client.net.metrics import Metrics
from fluss_client.net.pool import ConnectionPool


def test_nothing_is_begun_after_the_close() -> None:
    async def ask() -> None:
        config = Config({"bootstrap.servers": "localhost:1"})
        metadata = Metadata([], ConnectionPool(config, Metrics()), config)
        await metadata.close()
        with pytest.raises(ClosedError):
            await metadata.find_leader(TablePath("d", "t"), TableBucket(1, 0))
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(ask())
