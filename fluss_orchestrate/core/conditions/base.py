"""What a condition is: something about one table that comes true, as plain values.

A sensor keeps a condition where it likes, and any process can go on waiting for it. What it means
is fixed when it is made: positions and targets in it are offsets, never "now".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from fluss_client.aio.connection import FlussConnection as AsyncConnection
from fluss_client.errors import ConfigError
from fluss_client.facade.connection import FlussConnection
from fluss_client.model.table import TablePath
from fluss_client.runtime import runtime
from fluss_orchestrate.core.lake.errors import WaitTimedOutError
from fluss_orchestrate.core.polling import POLL_INTERVAL_S, Look, on_its_loop, poller_of

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
        self, core: AsyncConnection, interval_s: float, timeout_s: float | None
    ) -> Outcome:
        """Wait on the cluster's poller, on the connection's own loop."""
        try:
            found: Outcome = await poller_of(core).wait(core, self.looks(interval_s), timeout_s)
            return found
        except TimeoutError:
            if timeout_s is None:
                raise
            raise WaitTimedOutError.after(self.path, timeout_s, self.unmet) from None

    async def check(self, core: AsyncConnection) -> Outcome | None:
        """One look, now."""
        for look in self.looks(POLL_INTERVAL_S):
            outcome: Outcome | None = look.decide(await look.question.ask(core))
            if outcome is not None:
                return outcome
        return None

    def to_json(self) -> dict[str, Any]:
        """The condition as plain values."""
        return {"kind": self.kind, "table": str(self.path), **self.values()}


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
) -> Outcome:
    """Wait until the condition holds; what was found. `WaitTimedOutError` after `timeout_s`.

    All waiters of a cluster share one poller. With a facade connection the waiting runs on the
    client's I/O thread, else on this loop. Cancelling stops the waiting and nothing else.
    """
    return await on_its_loop(
        connection, lambda core: condition.wait(core, poll_interval_s, timeout_s)
    )


def holds(connection: FlussConnection, condition: Condition) -> Outcome | None:
    """What is found now, or None while the condition does not hold. Blocks."""
    return runtime().call(condition.check(connection.core))
