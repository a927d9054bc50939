"""The bound on unacknowledged bytes."""

from __future__ import annotations

import threading

import pytest

from fluss_client.aio.writing.accumulator import BufferMemory
from fluss_client.errors import BufferFullError
from fluss_client.options import UNBOUNDED_MS
from tests.waiting import wait_until


def test_it_counts_what_is_taken_and_given_back() -> None:
    memory = BufferMemory(100, UNBOUNDED_MS)
    memory.reserve(60)
    assert memory.try_reserve(40)
    assert not memory.try_reserve(1)
    memory.release(40)
    assert memory.used_bytes == 60


def test_a_full_buffer_refuses_after_its_time_and_takes_nothing() -> None:
    memory = BufferMemory(100, 1)
    memory.reserve(100)
    with pytest.raises(BufferFullError, match="100 of 100 bytes"):
        memory.reserve(1)
    assert memory.used_bytes == 100
    memory.release(100)
    memory.reserve(1)


def test_what_is_larger_than_the_bound_goes_alone() -> None:
    memory = BufferMemory(100, 1)
    memory.reserve(1)
    with pytest.raises(BufferFullError):
        memory.reserve(1000)
    memory.release(1)
    memory.reserve(1000)
    with pytest.raises(BufferFullError):
        memory.reserve(1)


def test_bytes_that_are_there_already_may_exceed_the_bound() -> None:
    memory = BufferMemory(100, 1)
    memory.force(150)
    assert not memory.try_reserve(1)
    memory.force(-150)
    assert memory.try_reserve(100)


def test_who_waits_first_is_served_first() -> None:
    memory = BufferMemory(100, UNBOUNDED_MS)
    memory.reserve(100)
    order: list[str] = []
    waiting = threading.Semaphore(0)

    def take(name: str, nbytes: int) -> None:
        waiting.release()
        memory.reserve(nbytes)
        order.append(name)
        memory.release(nbytes)

    large = threading.Thread(target=take, args=("large", 100))
    large.start()
    waiting.acquire()
    # The thread is between its word and its place in the queue.
    wait_until("the place in the queue", lambda: memory._waiting, pause_s=0.001)
    assert not memory.try_reserve(1), "a small request must not overtake a large one"
    small = threading.Thread(target=take, args=("small", 1))
    small.start()
    memory.release(100)
    large.join()
    small.join()
    assert sorted(order) == ["large", "small"]
    assert memory.used_bytes == 0
