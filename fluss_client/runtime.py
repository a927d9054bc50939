"""The I/O thread of the process, the worker threads for CPU work, forks, and exit.

There is one I/O thread per process. Its event loop only moves bytes; encoding and decoding run on
the caller's thread or on `workers()`. A fork copies no threads into the child. So objects remember
the process that made them (`ProcessBound`) and raise `ForkedError` in another one, and the child
builds a runtime of its own on first use.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import concurrent.futures.thread
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fluss_client.errors import ClosedError, ForkedError, ReentrantCallError, TimedOutError

T = TypeVar("T")
WORKER_THREADS_MAX = 4
EXIT_DEADLINE_S = 30.0


class ProcessBound:
    """A mixin for objects with sockets or threads: usable only in the process that made them."""

    _pid: int

    def _bind_process(self) -> None:
        self._pid = os.getpid()

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            raise ForkedError(
                f"this {type(self).__name__} was made in process {self._pid} before a fork and "
                f"cannot be used in process {os.getpid()}: make a new connection after the fork"
            )


class Runtime(ProcessBound):
    """The I/O thread and its event loop."""

    def __init__(self) -> None:
        self._bind_process()
        self.loop = asyncio.new_event_loop()
        # The loop itself keeps only weak references to tasks.
        self._tasks: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self._main, name="fluss-io", daemon=True)
        self._thread.start()

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def on_thread(self) -> bool:
        """Return whether the caller runs on the I/O thread."""
        return threading.current_thread() is self._thread

    def start(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start a coroutine on the I/O thread.

        Returns:
            The future of its result. It cannot be cancelled: a caller that stops waiting does not
            stop the work.

        Raises:
            ForkedError: This runtime belongs to the parent process.
        """
        self._check_process()
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        future.set_running_or_notify_cancel()
        self.loop.call_soon_threadsafe(self._begin, coroutine, future)
        return future

    def _begin(
        self, coroutine: Coroutine[Any, Any, T], future: concurrent.futures.Future[T]
    ) -> None:
        task = self.loop.create_task(coroutine)
        self._tasks.add(task)

        def finish(done: asyncio.Task[T]) -> None:
            self._tasks.discard(done)
            if done.cancelled():
                future.set_exception(ClosedError("the call was stopped: its connection closed"))
                return
            error = done.exception()
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(done.result())

        task.add_done_callback(finish)

    def call(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine on the I/O thread and wait for its result.

        Args:
            coroutine: The work.
            timeout_s: How long to wait; None without a bound.

        Raises:
            TimedOutError: There was no result in time. The work goes on.
            ReentrantCallError: The caller is the I/O thread, which would wait for itself.
        """
        if self.on_thread():
            coroutine.close()
            raise ReentrantCallError(
                "a blocking call was made on the client's own I/O thread; await it instead"
            )
        return wait_for(self.start(coroutine), timeout_s)


def wait_for(future: concurrent.futures.Future[T], timeout_s: float | None) -> T:
    """Wait for the result of a future.

    Raises:
        TimedOutError: There was no result in time. The work goes on.
    """
    try:
        return future.result(timeout_s)
    except concurrent.futures.TimeoutError:
        if future.done():
            raise
        raise TimedOutError(f"no result within {timeout_s} s; the call goes on") from None


async def until_done(future: concurrent.futures.Future[Any]) -> None:
    """Wait on the running loop until the future is done, without taking its result or error."""
    if future.done():
        return
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not waiter.done():
            waiter.set_result(None)

    def on_done(_: concurrent.futures.Future[Any]) -> None:
        # Runs on the thread that finished the future. If the loop is closed, nobody waits any more.
        if not loop.is_closed():
            loop.call_soon_threadsafe(wake)

    future.add_done_callback(on_done)
    await waiter


_lock = threading.Lock()
_runtime: Runtime | None = None
_workers: concurrent.futures.ThreadPoolExecutor | None = None
_exit_hooks: dict[int, Callable[[float], None]] = {}


def runtime() -> Runtime:
    """Return the runtime of this process; it is made on first use."""
    global _runtime
    current = _runtime
    if current is not None and current._pid == os.getpid():
        return current
    with _lock:
        if _runtime is None or _runtime._pid != os.getpid():
            _runtime = Runtime()
        return _runtime


def workers() -> concurrent.futures.ThreadPoolExecutor:
    """Return the worker threads for encoding, compressing and decoding."""
    global _workers
    with _lock:
        if _workers is None:
            count = min(WORKER_THREADS_MAX, os.cpu_count() or 1)
            _workers = concurrent.futures.ThreadPoolExecutor(count, "fluss-codec")
        return _workers


def at_exit(owner: object, hook: Callable[[float], None]) -> Callable[[], None]:
    """Register a hook for the exit of the interpreter.

    Args:
        owner: The object that the hook belongs to; one hook per object.
        hook: Is called with the seconds that it may take.

    Returns:
        A function that removes the hook.
    """
    key = id(owner)
    _exit_hooks[key] = hook
    return lambda: (_exit_hooks.pop(key, None), None)[1]


def _run_exit_hooks() -> None:
    for hook in list(_exit_hooks.values()):
        hook(EXIT_DEADLINE_S)
    _exit_hooks.clear()


def _after_fork() -> None:
    # In the child: the lock may be held by a thread that does not exist here, the I/O thread and
    # the workers are gone, and the rows of the parent's writers are flushed by the parent.
    global _lock, _runtime, _workers
    _lock = threading.Lock()
    _runtime = None
    _workers = None
    _exit_hooks.clear()


# A flush at exit needs worker threads. Functions of `atexit` run after the thread pools were shut
# down, which is too late. Functions registered here run in reverse order, so this one runs before
# the one that concurrent.futures registered when it was imported above.
threading._register_atexit(_run_exit_hooks)  # type: ignore[attr-defined]
os.register_at_fork(after_in_child=_after_fork)
