"""Items that are made ahead: order, errors, and nothing in the making after the block."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from fluss_orchestrate.core.read_ahead import read_ahead


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
        assert made.wait(30)
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
        release.wait(30)
        ended.set()
        yield 2

    def leave() -> None:
        with read_ahead(items()) as found:
            next(found)
            assert begun.wait(30)
            threading.Timer(0.05, release.set).start()
            raise KeyError("the caller's")

    with pytest.raises(KeyError):
        leave()
    assert ended.is_set()
