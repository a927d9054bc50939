"""The poller by itself: questions that fail, and waiters that leave at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from fluss_client.aio import FlussConnection
from fluss_client.errors import ClosedError, NetworkError
from fluss_orchestrate.core import polling
from fluss_orchestrate.core.polling import Look, Poller

CORE = cast(FlussConnection, None)
"""Only questions use the connection."""
CROWD = 5_000
TURNS = 20
"""Enough turns of the loop for an error to reach everybody."""


@dataclass(frozen=True)
class Asked:
    """A question whose answer the test gives."""

    name: str
    answer: Callable[[], Any] = field(compare=False)
    begun: asyncio.Event = field(default_factory=asyncio.Event, compare=False)
    goes_on: asyncio.Event = field(default_factory=asyncio.Event, compare=False)

    async def ask(self, core: FlussConnection) -> Any:
        self.begun.set()
        await self.goes_on.wait()
        return self.answer()


def raising(error: Exception) -> Callable[[], Any]:
    def answer() -> Any:
        raise error

    return answer


def wait(poller: Poller, question: Asked, interval_s: float = 0.01) -> asyncio.Task[Any]:
    looks = [Look(question, lambda answer: answer, interval_s)]
    return asyncio.ensure_future(poller.wait(CORE, looks))


@pytest.mark.parametrize("error", [NetworkError("the line broke"), ClosedError("it was closed")])
def test_a_question_fails_when_its_last_waiter_has_left(error: Exception) -> None:
    async def main() -> None:
        poller = Poller()
        failing, other = Asked("a", raising(error)), Asked("b", lambda: "found")
        leaving, staying = wait(poller, failing), wait(poller, other)
        await failing.begun.wait()
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        failing.goes_on.set()
        for _ in range(TURNS):
            await asyncio.sleep(0)
        other.goes_on.set()
        assert await staying == "found"

    asyncio.run(main())


def test_a_crowd_leaves_after_one_answer() -> None:
    async def main() -> None:
        poller, answers = Poller(), [None, None, "found"]
        question = Asked("a", lambda: answers.pop(0))
        question.goes_on.set()
        crowd = [wait(poller, question, interval_s) for interval_s in (0.02, 0.01) * (CROWD // 2)]
        assert await asyncio.gather(*crowd) == ["found"] * CROWD
        assert (poller.requests, poller._groups) == (3, {})

    asyncio.run(main())


def test_the_shortest_interval_of_those_who_wait_counts() -> None:
    async def main() -> None:
        poller, answers = Poller(), iter(range(1, 100))
        question = Asked("a", lambda: next(answers))
        question.goes_on.set()
        seldom = [Look(question, lambda answer: answer if answer > 20 else None, 30.0)]
        waiting = asyncio.ensure_future(poller.wait(CORE, seldom))
        often = [Look(question, lambda answer: answer if answer > 5 else None, 0.01)]
        assert await poller.wait(CORE, often) == 6
        (group,) = poller._groups.values()
        assert dict(group.intervals) == {30.0: 1}
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert poller._groups == {}

    asyncio.run(main())


@pytest.mark.parametrize("steady", [True, False])
def test_a_steady_look_sees_an_answer_once_and_every_change(
    steady: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what it waits for, if that was there before it came, and what comes after an error."""

    async def main() -> None:
        seen: list[Any] = []
        given = ["a", "a", "a", "b", "b", NetworkError("lost"), "b", "b", "c"]
        left = list(given)
        asked_on = asyncio.Event()

        def answer() -> Any:
            if poller.requests > len(given) + 2:
                asked_on.set()
            found = left.pop(0) if len(left) > 1 else left[0]
            if isinstance(found, Exception):
                raise found
            return found

        def decide(found: Any) -> Any:
            seen.append(found)
            return found if found == "c" else None

        poller, question = Poller(), Asked("q", answer)
        question.goes_on.set()
        look = Look(question, decide, 0.005, steady=steady)
        first = asyncio.ensure_future(poller.wait(CORE, [look]))
        assert await first == "c"
        assert seen == (["a", "b", "b", "c"] if steady else [g for g in given if g is not given[5]])
        late = Look(question, lambda found: found, 0.005, steady=True)
        held = Look(question, lambda found: None, 0.005, steady=True)
        holder = asyncio.ensure_future(poller.wait(CORE, [held]))
        await asked_on.wait()
        assert await poller.wait(CORE, [late]) == "c"
        holder.cancel()
        await asyncio.gather(holder, return_exceptions=True)

    monkeypatch.setattr(polling, "SEEN_AGAIN_S", 3600.0)
    asyncio.run(main())
