"""Waiting for tables: any number of waiters, one poller per cluster and event loop.

A waiter looks at answers to questions. Equal questions are one request per interval, however many
waiters there are, and questions that are due at the same time are asked together. The poller stops
when nobody waits. Cancelling a waiter does not affect the others. After a retriable error the
question is asked again, with growing pauses.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from fluss_client import FlussConnection
from fluss_client.aio import FlussConnection as AsyncConnection
from fluss_client.engine import async_connection, runtime
from fluss_client.errors import ClosedError, FlussError

log = logging.getLogger(__name__)
POLL_INTERVAL_S = 1.0
QUESTIONS_AT_ONCE_MAX = 32
BACKOFF_MAX_S = 60.0
INTERVAL_MIN_S = 0.001
REPORT_GAP_FIRST_S = 1.0
REPORT_GAP_MAX_S = 60.0
SEEN_AGAIN_S = 10.0
"""How often waiters look at an answer that stays the same."""
_NOTHING = object()

T = TypeVar("T")


class Question(Protocol):
    """A request to a cluster; two equal questions are one request."""

    async def ask(self, core: AsyncConnection) -> Any:
        """Return the current answer."""


@dataclass(frozen=True)
class Look:
    """A question, how often to ask it, and what an answer means: None to go on waiting.

    Args:
        question: What to ask.
        decide: Returns the result of the wait for an answer, or None to go on waiting.
        interval_s: The time between two looks.
        failed: Is called with an error after which the question is asked again.
        steady: Whether `decide` says the same for an equal answer, whenever it is asked. Then it is
            not asked about every answer that equals the one before it.
    """

    question: Question
    decide: Callable[[Any], Any]
    interval_s: float = POLL_INTERVAL_S
    failed: Callable[[FlussError], None] | None = None
    steady: bool = False


class LookReport:
    """Says how far a wait is: at its first look, then at intervals that double up to a limit.

    So the log of a long wait stays short, however often it looks.

    Args:
        say: Is called with a sentence. It runs where the looks do.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._due_s = 0.0
        self._gap_s = REPORT_GAP_FIRST_S

    def look(self, tell: Callable[[], str]) -> None:
        """Report a poll if a report is due; `tell` is called for the sentence only then."""
        now_s = time.monotonic()
        if now_s < self._due_s:
            return
        self._due_s = now_s + self._gap_s
        self._gap_s = min(REPORT_GAP_MAX_S, self._gap_s * 2)
        self._say(tell())


@dataclass(eq=False)
class _Waiter:
    connection: AsyncConnection
    done: asyncio.Future[Any]


@dataclass(eq=False)
class _Group:
    """All waiters for the answers to one question. There may be 100,000 of them."""

    lookers: dict[_Waiter, Look] = field(default_factory=dict)
    new: dict[_Waiter, Look] = field(default_factory=dict)
    """Those that have not seen `answer`."""
    unsteady: dict[_Waiter, Look] = field(default_factory=dict)
    """Those that must see every answer."""
    answer: Any = _NOTHING
    """The last one, after which the question did not fail."""
    decided_s: float = -math.inf
    """When all have seen it."""
    intervals: Counter[float] = field(default_factory=Counter)
    """How many looks have each interval."""
    due_s: float = 0.0
    failures: int = 0

    def add(self, waiter: _Waiter, look: Look) -> None:
        """Let a waiter look at the answers, too."""
        self.lookers[waiter] = self.new[waiter] = look
        if not look.steady:
            self.unsteady[waiter] = look
        self.intervals[look.interval_s] += 1

    def remove(self, waiter: _Waiter) -> None:
        """Forget a waiter; all of them may leave after one answer."""
        interval_s = self.lookers.pop(waiter).interval_s
        self.new.pop(waiter, None)
        self.unsteady.pop(waiter, None)
        self.intervals[interval_s] -= 1
        if not self.intervals[interval_s]:
            del self.intervals[interval_s]

    def waiting(self) -> list[tuple[_Waiter, Look]]:
        return _waiting(self.lookers)

    def asker(self) -> _Waiter | None:
        """Return one that waits; None if nobody does."""
        return next((waiter for waiter in self.lookers if not waiter.done.done()), None)

    def concerned(self, answer: Any, now_s: float) -> list[tuple[_Waiter, Look]]:
        """Return those that must look at an answer: all, if it is another one than before.

        Otherwise the others have seen an equal one, and look again only now and then, so that the
        reports of their waits go on.
        """
        if self.answer == answer and now_s - self.decided_s < SEEN_AGAIN_S:
            found = {**self.unsteady, **self.new}
        else:
            found, self.decided_s = self.lookers, now_s
        self.answer, self.new = answer, {}
        return _waiting(found)

    def plan_next(self, now_s: float) -> None:
        """Set the time of the next request: a multiple of the interval, for shared requests."""
        # All may have left while the question was asked.
        interval_s = max(INTERVAL_MIN_S, min(self.intervals, default=POLL_INTERVAL_S))
        if self.failures:
            self.due_s = now_s + min(BACKOFF_MAX_S, interval_s * 2**self.failures)
        else:
            self.due_s = (math.floor(now_s / interval_s) + 1) * interval_s


class Poller:
    """Makes the requests to one cluster for all waiters of one event loop."""

    def __init__(self) -> None:
        self._groups: dict[Question, _Group] = {}
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self.requests = 0
        """The number of requests so far."""

    async def wait(
        self, core: AsyncConnection, looks: Sequence[Look], timeout_s: float | None = None
    ) -> Any:
        """Return what the first look decides, or raise its error.

        Args:
            core: The connection.
            looks: Looks at different questions.
            timeout_s: How long to wait; None waits forever.

        Raises:
            TimeoutError: The time has passed.
        """
        waiter = _Waiter(core, asyncio.get_running_loop().create_future())
        for look in looks:
            group = self._groups.setdefault(look.question, _Group())
            group.add(waiter, look)
            # A new waiter need not wait until the interval of the others ends.
            group.due_s = 0.0
        self._start()
        try:
            async with asyncio.timeout(timeout_s):
                return await waiter.done
        finally:
            self._forget(waiter, looks)

    def _forget(self, waiter: _Waiter, looks: Sequence[Look]) -> None:
        for look in looks:
            group = self._groups[look.question]
            group.remove(waiter)
            if not group.lookers:
                del self._groups[look.question]
                self._wake.set()

    def _start(self) -> None:
        self._wake.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._poll())

    async def _poll(self) -> None:
        try:
            await self._rounds()
        except Exception as error:
            for group in self._groups.values():
                _fail(group, error)
            raise
        finally:
            # The next waiter makes another; so no poller outlives its loop.
            for key in [k for k, p in _pollers.items() if p is self]:
                del _pollers[key]

    async def _rounds(self) -> None:
        loop = asyncio.get_running_loop()
        gate = asyncio.Semaphore(QUESTIONS_AT_ONCE_MAX)
        while self._groups:
            self._wake.clear()
            now_s = loop.time()
            due = [(q, g) for q, g in self._groups.items() if g.due_s <= now_s]
            for _, group in due:
                group.plan_next(now_s)
            await asyncio.gather(*(self._ask(q, g, gate) for q, g in due))
            pause_s = min((g.due_s for g in self._groups.values()), default=0.0) - loop.time()
            try:
                async with asyncio.timeout(max(0.0, pause_s)):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _ask(self, question: Question, group: _Group, gate: asyncio.Semaphore) -> None:
        async with gate:
            while (asker := group.asker()) is not None:
                try:
                    self.requests += 1
                    answer = await question.ask(asker.connection)
                except ClosedError as error:
                    # Its connection is closed; the next one may have another.
                    if not asker.done.done():
                        asker.done.set_exception(error)
                    continue
                except FlussError as error:
                    if error.is_retriable:
                        group.failures += 1
                        group.plan_next(asyncio.get_running_loop().time())
                        log.debug("asking %s: %s", question, error)
                        group.answer = _NOTHING
                        for _, look in group.waiting():
                            if look.failed is not None:
                                look.failed(error)
                    else:
                        _fail(group, error)
                    return
                group.failures = 0
                _decide(group.concerned(answer, asyncio.get_running_loop().time()), answer)
                return


def _waiting(lookers: Mapping[_Waiter, Look]) -> list[tuple[_Waiter, Look]]:
    return [(waiter, look) for waiter, look in lookers.items() if not waiter.done.done()]


def _decide(concerned: Sequence[tuple[_Waiter, Look]], answer: Any) -> None:
    for waiter, look in concerned:
        try:
            result = look.decide(answer)
        except FlussError as error:
            waiter.done.set_exception(error)
            continue
        if result is not None and not waiter.done.done():
            waiter.done.set_result(result)


def _fail(group: _Group, error: Exception) -> None:
    for waiter, _ in group.waiting():
        if not waiter.done.done():
            waiter.done.set_exception(error)


_pollers: dict[tuple[asyncio.AbstractEventLoop, str, str], Poller] = {}


def poller_of(core: AsyncConnection) -> Poller:
    """Return the poller that all connections to one cluster share on one event loop."""
    config = core.config
    loop = asyncio.get_running_loop()
    key = (loop, config.resolved_bootstrap(), config.security_sasl_username)
    return _pollers.setdefault(key, Poller())


async def on_its_loop(
    connection: AsyncConnection | FlussConnection,
    make: Callable[[AsyncConnection], Coroutine[Any, Any, T]],
) -> T:
    """Run a coroutine on the loop of the connection: for the facade, on the client's I/O thread.

    Cancelling the waiting cancels the coroutine.
    """
    if isinstance(connection, FlussConnection):
        future = asyncio.run_coroutine_threadsafe(
            make(async_connection(connection)), runtime().loop
        )
        return await asyncio.wrap_future(future)
    return await make(connection)
