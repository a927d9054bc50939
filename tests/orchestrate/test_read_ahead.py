"""Items that are made ahead: order, errors, and nothing in the making after the block."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from functools import partial

import pytest

from fluss_orchestrate.core.read_ahead import PARTS_AT_ONCE, read_ahead, read_parts_ahead
from tests.waiting import WAIT_S, scaled, wait_until


def test_items_come_in_their_order_from_another_thread() -> None:
    makers: set[int] = set()

    def items() -> Iterator[int]:
        for number in range(100):
            makers.add(threading.get_ident())
            yield number

    with read_ahead(items()) as found:
        assert list(found) == list(range(100))
    assert len(makers) == 1
    assert threading.get_ident() not in makers


def test_the_next_item_is_made_while_one_is_used() -> None:
    made = threading.Event()

    def items() -> Iterator[int]:
        yield 1
        made.set()
        yield 2

    with read_ahead(items()) as found:
        assert next(found) == 1
        made.wait()
        assert list(found) == [2]


def test_an_error_comes_where_its_item_would_be() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("of the second")

    with read_ahead(items()) as found:
        assert next(found) == 1
        with pytest.raises(ValueError, match="of the second"):
            next(found)


def test_nothing_is_in_the_making_after_the_block() -> None:
    begun, release, ended = threading.Event(), threading.Event(), threading.Event()

    def items() -> Iterator[int]:
        yield 1
        begun.set()
        release.wait(scaled(WAIT_S))
        ended.set()
        yield 2

    def leave() -> None:
        with read_ahead(items()) as found:
            next(found)
            begun.wait()
            threading.Timer(0.05, release.set).start()
            raise KeyError("the caller's")

    with pytest.raises(KeyError):
        leave()
    assert ended.is_set()


def parts_of(*counts: int) -> list[Callable[[], Generator[tuple[int, int], None, None]]]:
    """Parts with so many items each; an item is the number of its part and its own."""

    def part(number: int, count: int) -> Generator[tuple[int, int], None, None]:
        for at in range(count):
            yield number, at

    return [partial(part, number, count) for number, count in enumerate(counts)]


def test_items_of_parts_come_in_their_order() -> None:
    chance = random.Random(5)
    for bytes_max in (1, 3, 1000):
        counts = [chance.choice([0, 1, 2, 30]) for _ in range(60)]
        with read_parts_ahead(parts_of(*counts), lambda _: 1, bytes_max) as found:
            wanted = [(number, at) for number, count in enumerate(counts) for at in range(count)]
            assert list(found) == wanted
    with read_parts_ahead(parts_of(), lambda _: 1, 5) as found:
        assert list(found) == []


def test_parts_are_made_at_the_same_time() -> None:
    assert PARTS_AT_ONCE > 1, "this machine has one core"
    together = threading.Barrier(2)

    def part() -> Generator[int, None, None]:
        yield together.wait(scaled(WAIT_S))

    with read_parts_ahead([part, part], lambda _: 1, 100) as found:
        assert sorted(found) == [0, 1]


def test_a_slow_first_part_lets_the_others_fill_the_bound_only() -> None:
    release = threading.Event()
    made: list[int] = []

    def slow() -> Generator[int, None, None]:
        assert release.wait(scaled(WAIT_S))
        yield 0

    def quick(number: int) -> Generator[int, None, None]:
        for _ in range(50):
            made.append(number)
            yield number

    parts: list[Callable[[], Generator[int, None, None]]]
    parts = [slow, *(partial(quick, number) for number in range(1, 20))]
    with read_parts_ahead(parts, lambda _: 1, 10) as found:
        wait_until("the bound is reached", lambda: len(made) >= 10)
        # Each of the other threads may have begun one more item before the bound was reached.
        assert len(made) < 10 + PARTS_AT_ONCE
        release.set()
        assert [next(found), next(found)] == [0, 1]
        assert len(list(found)) == 19 * 50 - 1


def test_what_is_dropped_is_closed_and_errors_come_in_their_place() -> None:
    closed = []

    def part(number: int) -> Generator[int, None, None]:
        try:
            yield number
            if number == 2:
                raise OSError("the disk is gone")
            yield number
        finally:
            closed.append(number)

    parts = [partial(part, number) for number in range(4)]
    with read_parts_ahead(parts, lambda _: 1, 100) as found:
        assert [next(found) for _ in range(5)] == [0, 0, 1, 1, 2]
        with pytest.raises(OSError, match="the disk is gone"):
            next(found)
    closed.clear()
    with read_parts_ahead(parts, lambda _: 1, 1) as found:
        next(found)
    assert 0 in closed
    assert not [t for t in threading.enumerate() if t.name.startswith("fluss-ahead")]
    with pytest.raises(RuntimeError, match="within the block"):
        next(found)


def test_parts_that_cannot_be_named_are_an_error_after_those_before() -> None:
    def parts() -> Iterator[Callable[[], Generator[int, None, None]]]:
        yield lambda: (n for n in [1, 2])
        raise OSError("the footer is damaged")

    with read_parts_ahead(parts(), lambda _: 1, 100) as found:
        assert [next(found), next(found)] == [1, 2]
        with pytest.raises(OSError, match="footer"):
            next(found)


def test_a_reader_that_is_dropped_half_read_does_not_hold_up_the_interpreter() -> None:
    code = (
        "from fluss_orchestrate.core.read_ahead import read_parts_ahead\n"
        "def part():\n"
        "    yield from range(100)\n"
        "block = read_parts_ahead([part] * 9, lambda _: 1, 2)\n"
        "print(next(block.__enter__()))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"
