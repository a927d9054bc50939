"""The result of a call that runs on the I/O thread: await it, or wait for it with `result()`.

A handle can be awaited any number of times, from any event loop. A timeout or a cancelled task
ends the waiting and never the call.
"""

from __future__ import annotations

import concurrent.futures
import logging
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

from fluss_client.aio.writing.results import Outcome
from fluss_client.errors import ReentrantCallError
from fluss_client.runtime import runtime, until_done, wait_for

T = TypeVar("T")
log = logging.getLogger(__name__)


class Handle(Generic[T]):
    """The result of a call on the I/O thread. The call has begun already.

    Wait for it with `await` or `result()`. The methods of the facade return it; do not call the
    constructor.
    """

    def __init__(self, future: concurrent.futures.Future[T], what: str = "call") -> None:
        self._future = future
        self._what = what
        self._seen = False

    @classmethod
    def start(cls, coroutine: Coroutine[Any, Any, T], what: str = "call") -> Handle[T]:
        """Start a coroutine on the I/O thread and return its handle.

        Args:
            coroutine: The coroutine.
            what: The name of the call, for error messages.
        """
        return cls(runtime().start(coroutine), what)

    @classmethod
    def of(cls, value: T) -> Handle[T]:
        """Return a handle whose result is the given `value`."""
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        future.set_result(value)
        return cls(future)

    def result(self, timeout: float | None = None) -> T:
        """Wait for the call and return its result.

        Args:
            timeout: Seconds to wait. None waits without a limit.

        Raises:
            TimedOutError: The time is over. The call continues.
            ReentrantCallError: This is the I/O thread, which would wait for itself.
            FlussError: The call failed.
        """
        self._may_block()
        return wait_for(self._future, timeout)

    def done(self) -> bool:
        """Return whether the call has ended."""
        return self._future.done()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the call and return its error, or None if it succeeded.

        Args:
            timeout: Seconds to wait. None waits without a limit.

        Raises:
            TimedOutError: The time is over. The call continues.
            ReentrantCallError: This is the I/O thread, which would wait for itself.
        """
        self._may_block()
        try:
            wait_for(self._future, timeout)
        except Exception as error:
            if not self._future.done():
                raise
            return error
        return None

    def _may_block(self) -> None:
        self._seen = True
        if not self._future.done() and runtime().on_thread():
            raise ReentrantCallError(
                "a blocking call was made on the client's own I/O thread; await it instead"
            )

    def add_done_callback(self, callback: Callable[[Handle[T]], None]) -> None:
        """Call a function when the call has ended.

        Args:
            callback: Called with this handle, on the I/O thread.
        """
        self._future.add_done_callback(lambda _: callback(self))

    def __await__(self) -> Generator[Any, None, T]:
        self._seen = True
        yield from until_done(self._future).__await__()
        return self._future.result()

    def __del__(self) -> None:
        future = getattr(self, "_future", None)
        if future is None or self._seen or not future.done() or future.cancelled():
            return
        # An error that nobody asked for must not vanish. `peek` leaves it for the next flush.
        error = future.peek() if isinstance(future, Outcome) else future.exception()
        if error is not None:
            log.error("%s failed and nobody looked at its result: %s", self._what, error)

    def __repr__(self) -> str:
        return f"<Handle {self._what}: {'done' if self.done() else 'under way'}>"
