"""The retry policy: pauses, deadlines, and what is tried again."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from fluss_client.config import Config
from fluss_client.errors import FlussError, NetworkError, RowError
from fluss_client.net.retry import Backoff, Deadline, retrying

ROOT = Path(__file__).parents[2]


def test_pauses_double_up_to_the_longest_and_are_jittered() -> None:
    backoff = Backoff(first_ms=20, max_ms=100)
    for attempt, full_ms in enumerate((20, 40, 80, 100, 100)):
        pauses = [backoff.delay_ms(attempt) for _ in range(200)]
        assert full_ms / 2 <= min(pauses) < max(pauses) <= full_ms
    assert backoff.delay_ms(10_000) <= 100
    spread = Backoff(first_ms=20, max_ms=100, jitter_low=0)
    assert min(spread.delay_ms(9) for _ in range(500)) < 50


def test_the_configuration_sets_the_pauses() -> None:
    assert Backoff.of(Config()) == Backoff()
    config = Config({"retry-backoff": "7ms", "retry-backoff-max": "1s"})
    assert Backoff.of(config) == Backoff(first_ms=7, max_ms=1000)


@pytest.mark.parametrize(("error", "attempts"), [(NetworkError("lost"), 3), (RowError("bad"), 1)])
def test_only_errors_that_may_pass_are_tried_again(error: FlussError, attempts: int) -> None:
    seen: list[FlussError] = []
    made = 0

    async def call() -> str:
        nonlocal made
        made += 1
        if made < 3:
            raise error
        return "done"

    async def on_error(error: FlussError) -> None:
        seen.append(error)

    deadline = Deadline(30_000, Backoff(first_ms=0.1, max_ms=0.1))
    work = retrying(call, deadline, on_error=on_error)
    if attempts == 3:
        assert asyncio.run(work) == "done"
    else:
        with pytest.raises(RowError):
            asyncio.run(work)
    assert made == attempts
    assert seen == [error] * (attempts - 1)


def test_no_pause_goes_beyond_the_deadline() -> None:
    async def call() -> None:
        raise NetworkError("lost")

    with pytest.raises(NetworkError):
        asyncio.run(retrying(call, Deadline(10, Backoff(first_ms=60_000, max_ms=60_000))))


def test_one_file_decides_on_pauses() -> None:
    """Jitter or doubling elsewhere would be a second retry policy."""
    own = re.compile(r"random\.uniform|\*\* ?attempt|<< ?attempt|_(wait|pause)_\w+ \* 2")
    found = [
        str(path.relative_to(ROOT))
        for package in ("fluss_client", "fluss_orchestrate")
        for path in (ROOT / package).rglob("*.py")
        if own.search(path.read_text())
    ]
    assert found == ["fluss_client/net/retry.py"]
