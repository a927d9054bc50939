"""The next items of an iterator are made on other threads while the caller works on this one.

It helps where both take time outside of the interpreter: decoding, encoding, waiting for a server.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")
_END = object()
PARTS_AT_ONCE = min(4, os.cpu_count() or 1)
"""How many parts of one iteration are made at the same time."""

Part = Callable[[], Generator[T, None, None]]
"""Begins to make some of the items."""


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


@contextmanager
def read_parts_ahead(
    parts: Iterable[Part[T]], size_of: Callable[[T], int], bytes_max: int
) -> Iterator[Iterator[T]]:
    """Iterate over the items of some parts, of which several are made at the same time.

    It begins at once. At the end of the block no item is in the making any more, and the parts
    that were begun are closed.

    Args:
        parts: The parts. A part is never on two threads at the same time.
        size_of: Returns the bytes of an item.
        bytes_max: The bytes of items that wait for the caller. Beyond it, only an item that the
            caller waits for is begun.

    Returns:
        The items of all parts in their order. An error is raised where its item would be.
    """
    with ThreadPoolExecutor(PARTS_AT_ONCE, "fluss-ahead") as pool:
        making = _Making(parts, size_of, bytes_max, pool)
        try:
            making.start()
            yield making.items()
        finally:
            making.stop()
    making.close()


@dataclass(slots=True, eq=False)
class _Begun(Generic[T]):
    """A part that was begun: its items that wait for the caller, and how it ended."""

    items: Generator[T, None, None] | None = None
    waiting: deque[tuple[T, int]] = field(default_factory=deque)
    error: BaseException | None = None
    is_busy: bool = True
    is_over: bool = False


class _Making(Generic[T]):
    """The items of one iteration that are being made.

    No thread waits: one that may not make anything ends, and the caller starts it again when it
    has taken an item. So a reader that nobody reads to its end never holds up the interpreter.
    """

    def __init__(
        self,
        parts: Iterable[Part[T]],
        size_of: Callable[[T], int],
        bytes_max: int,
        pool: ThreadPoolExecutor,
    ) -> None:
        self._parts = iter(parts)
        self._size_of = size_of
        self._bytes_max = bytes_max
        self._pool = pool
        self._bytes = 0
        self._threads = 0
        self._changed = threading.Condition()
        self._begun: deque[_Begun[T]] = deque()
        self._is_beginning = False
        self._has_all_parts = False
        self._is_stopped = False

    def start(self) -> None:
        """Let threads make what may be made."""
        with self._changed:
            while self._threads < PARTS_AT_ONCE and (begun := self._take()) is not None:
                self._threads += 1
                self._pool.submit(self._work, begun)

    def items(self) -> Iterator[T]:
        """Return the items in the order of the parts."""
        while True:
            with self._changed:
                self._changed.wait_for(self._has_first)
                if self._is_stopped:
                    raise RuntimeError("items are made ahead within the block only")
                first = self._begun[0]
                if first.waiting:
                    item, size = first.waiting.popleft()
                    self._bytes -= size
                elif first.error is not None:
                    raise first.error
                elif self._has_all_parts and len(self._begun) == 1:
                    return
                else:
                    self._begun.popleft()
                    self.start()
                    continue
            self.start()
            yield item

    def stop(self) -> None:
        """Begin nothing more."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def close(self) -> None:
        """Close the parts that were begun. Nothing is in the making any more."""
        for begun in self._begun:
            if begun.items is not None:
                begun.items.close()

    def _has_first(self) -> bool:
        return self._is_stopped or bool(self._begun[0].waiting) or self._begun[0].is_over

    def _take(self) -> _Begun[T] | None:
        """Return the first part of which an item may be made; it is busy then."""
        if self._is_stopped:
            return None
        has_room = self._bytes < self._bytes_max
        for begun in self._begun:
            if not (begun.is_busy or begun.is_over) and (
                has_room or (begun is self._begun[0] and not begun.waiting)
            ):
                begun.is_busy = True
                return begun
        if self._has_all_parts or self._is_beginning or (self._begun and not has_room):
            return None
        self._is_beginning = True
        self._begun.append(_Begun())
        return self._begun[-1]

    def _work(self, begun: _Begun[T] | None) -> None:
        while begun is not None:
            found: object = _END
            size = 0
            try:
                if begun.items is None:
                    self._begin(begun)
                if begun.items is not None and (found := next(begun.items, _END)) is not _END:
                    size = self._size_of(found)  # type: ignore[arg-type]
            except BaseException as error:  # noqa: BLE001 - it is raised on the caller's thread
                begun.error = error
                found = _END
            with self._changed:
                if found is _END:
                    begun.is_over = True
                else:
                    begun.waiting.append((found, size))  # type: ignore[arg-type]
                    self._bytes += size
                begun.is_busy = False
                self._changed.notify_all()
                begun = self._take()
                self._threads -= begun is None

    def _begin(self, begun: _Begun[T]) -> None:
        part: Part[T] | None = None
        try:
            part = next(self._parts, None)
        finally:
            with self._changed:
                self._is_beginning = False
                self._has_all_parts = part is None
                self._changed.notify_all()
        # Another thread may begin the following part meanwhile.
        self.start()
        if part is not None:
            begun.items = part()
