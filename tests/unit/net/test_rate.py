"""The limit for bytes per second."""

from __future__ import annotations

import asyncio
import time

from fluss_client.net.rate import RateLimit


def test_the_average_stays_below_the_limit() -> None:
    limit = RateLimit(1_000_000)

    async def read() -> float:
        started = time.monotonic()
        for _ in range(4):
            await limit.ready()
            limit.add(100_000)
        await limit.ready()
        return time.monotonic() - started

    assert asyncio.run(read()) >= 0.4 - 0.01


def test_threads_wait_too() -> None:
    limit = RateLimit(1_000_000)
    limit.add(200_000)
    started = time.monotonic()
    limit.block_until_ready()
    assert time.monotonic() - started >= 0.2 - 0.01


def test_zero_is_no_limit() -> None:
    limit = RateLimit(0)
    limit.add(1 << 40)
    assert limit.delay_s() == 0
