"""What a condition is: something about one table that comes true, as plain values.

A sensor keeps a condition where it likes, and any process can go on waiting for it. What it means
is fixed when it is made: positions and targets in it are offsets, never "now".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from fluss_client import FlussConnection, TablePath
from fluss_client.aio import FlussConnection as AsyncConnection
from fluss_client.engine import async_connection, run_blocking
from fluss_client.errors import ConfigError, FlussError
from fluss_orchestrate.core.lake.errors import WaitTimedOutError
from fluss_orchestrate.core.polling import (
    POLL_INTERVAL_S,
    Look,
    LookReport,
    on_its_loop,
    poller_of,
)

Outcome = dict[str, Any]
"""What was found, as plain values."""

_kinds: dict[str, type[Condition]] = {}


class Condition(ABC):
    """Something to wait for."""

    kind: ClassVar[str]
    path: TablePath

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        _kinds[cls.kind] = cls

    @abstractmethod
    def looks(self, interval_s: float) -> Sequence[Look]:
        """What to ask; the first look that decides gives the outcome."""

    @property
    @abstractmethod
    def wanted(self) -> str:
        """What is waited for, with its numbers."""

    @abstractmethod
    def found(self, answer: Any) -> str:
        """Say how far an answer is from what is wanted."""

    @property
    @abstractmethod
    def unmet(self) -> str:
        """What is to be said when time runs out."""

    @abstractmethod
    def values(self) -> dict[str, Any]:
        """The condition's own fields as plain values."""

    @classmethod
    @abstractmethod
    def of_values(cls, path: TablePath, values: Mapping[str, Any]) -> Condition:
        """The condition from `values`."""

    async def wait(
        self,
        core: AsyncConnection,
        interval_s: float,
        timeout_s: float | None,
        report: LookReport | None = None,
    ) -> Outcome:
        """Wait on the cluster's poller, on the connection's own loop."""
        looks = _ReportedLooks(self, report)
        try:
            outcome: Outcome = await poller_of(core).wait(core, looks.of(interval_s), timeout_s)
            return outcome
        except TimeoutError:
            if timeout_s is None:
                raise
            raise WaitTimedOutError.after(self.path, timeout_s, looks.unmet) from None

    async def check(
        self, core: AsyncConnection, report: LookReport | None = None
    ) -> Outcome | None:
        """One look, now."""
        for look in self.looks(POLL_INTERVAL_S):
            answer = await look.question.ask(core)
            outcome: Outcome | None = look.decide(answer)
            if outcome is not None:
                return outcome
            if report is not None:
                report.look(lambda answer=answer: self.found(answer))  # type: ignore[misc]
        return None

    def to_json(self) -> dict[str, Any]:
        """The condition as plain values."""
        return {"kind": self.kind, "table": str(self.path), **self.values()}


class _ReportedLooks:
    """The looks of a condition, which also remember the last answer and report it."""

    def __init__(self, condition: Condition, report: LookReport | None) -> None:
        self._condition = condition
        self._report = report
        self._answers: list[Any] = []
        self._failure: FlussError | None = None

    def of(self, interval_s: float) -> list[Look]:
        return [
            replace(look, decide=self._deciding(look), failed=self._failed)
            for look in self._condition.looks(interval_s)
        ]

    def _deciding(self, look: Look) -> Callable[[Any], Any]:
        def decide(answer: Any) -> Any:
            result = look.decide(answer)
            if result is None:
                self._answers, self._failure = [answer], None
                if self._report is not None:
                    self._report.look(lambda: self._condition.found(answer))
            return result

        return decide

    def _failed(self, error: FlussError) -> None:
        self._failure = error
        if self._report is not None:
            self._report.look(lambda: f"the cluster gave no answer: {error}")

    @property
    def unmet(self) -> str:
        """What did not come, and how far it was at the last look."""
        unmet = self._condition.unmet
        if self._answers:
            unmet += f": {self._condition.found(self._answers[0])}"
        if self._failure is not None:
            unmet += f"; the cluster gave no answer at the last look: {self._failure}"
        return unmet


def condition_from_json(value: Mapping[str, Any]) -> Condition:
    """The condition from `to_json`."""
    found = _kinds.get(str(value.get("kind")))
    if found is None:
        raise ConfigError(f"'{value.get('kind')}' is no condition; there are {sorted(_kinds)}")
    return found.of_values(TablePath.parse(value["table"]), value)


async def wait_until(
    connection: AsyncConnection | FlussConnection,
    condition: Condition,
    *,
    timeout_s: float | None = None,
    poll_interval_s: float = POLL_INTERVAL_S,
    report: LookReport | None = None,
) -> Outcome:
    """Wait until a condition holds.

    All waiters of a cluster share one poller. Cancelling stops the waiting and nothing else.

    Args:
        connection: The cluster. With a blocking connection the waiting, and `report`, run on the
            client's I/O thread; else on this loop.
        condition: What to wait for.
        timeout_s: How long to wait; None waits forever.
        poll_interval_s: The time between two looks.
        report: Says how far the wait is, at some of the looks.

    Returns:
        What was found.

    Raises:
        WaitTimedOutError: If the time passes; it says how far the wait was.
    """
    return await on_its_loop(
        connection, lambda core: condition.wait(core, poll_interval_s, timeout_s, report)
    )


def holds(
    connection: FlussConnection, condition: Condition, report: LookReport | None = None
) -> Outcome | None:
    """Look once at whether a condition holds. Blocks.

    Args:
        connection: The cluster.
        condition: What to look for.
        report: Says how far it is, if it does not hold.

    Returns:
        What is found now, or None while the condition does not hold.
    """
    return run_blocking(condition.check(async_connection(connection), report))
