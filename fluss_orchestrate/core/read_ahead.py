"""The next item of an iterator is made on another thread while the caller works on this one.

It helps where both take time outside of the interpreter: decoding, encoding, waiting for a server.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TypeVar

T = TypeVar("T")
_END = object()


@contextmanager
def read_ahead(items: Iterable[T]) -> Iterator[Iterator[T]]:
    """Iterate over items, of which one is made ahead.

    At the end of the block no item is in the making any more, and a generator of items is closed,
    so that what the items are made of can be closed, too.

    Args:
        items: The items. They are made on one thread, which is not that of the caller.

    Returns:
        The same items in the same order. An error of theirs is raised where the item would be.
    """
    source = iter(items)
    with ExitStack() as ended, ThreadPoolExecutor(1, "fluss-ahead") as pool:
        if isinstance(source, Generator):
            ended.callback(source.close)

        # One thread only: an iterator cannot be used by two at once.
        def taken() -> Iterator[T]:
            following = pool.submit(next, source, _END)
            while (item := following.result()) is not _END:
                following = pool.submit(next, source, _END)
                yield item  # type: ignore[misc]

        yield taken()
