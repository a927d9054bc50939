"""Making a call while its line fails, and judging what came of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import fluss_client as fluss
from fluss_client.errors import FlussError
from tests.contract.tables import done
from tests.faults.ground import Call, Ground
from tests.fix_proxy import Fault, FaultyLines
from tests.waiting import client_limits, scaled

PATIENCE_MS = {"connect_timeout": 800, "request_timeout": 800, "retry_timeout": 1500}
HUNG_S = 30.0
"""Far beyond every deadline of `PATIENCE_MS`, also on a machine with much else to do."""


@dataclass(frozen=True)
class Outcome:
    """How a call ended: with a value, with an error, or not at all."""

    value: Any = None
    error: BaseException | None = None
    hung: bool = False
    seconds: float = 0.0


def outcome_of(call: Callable[[], Any]) -> Outcome:
    """Make a call on a thread of its own, so that one that never ends is seen to."""
    found: list[Outcome] = []

    def run() -> None:
        began = time.monotonic()
        try:
            value = call()
        except BaseException as error:  # noqa: BLE001 (judged by the caller)
            found.append(Outcome(error=error, seconds=time.monotonic() - began))
        else:
            found.append(Outcome(value, seconds=time.monotonic() - began))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    hung_s = scaled(HUNG_S)
    thread.join(hung_s)
    return found[0] if found else Outcome(hung=True, seconds=hung_s)


class Striker:
    """A connection over faulty lines, and the calls that are made on it."""

    def __init__(self, ground: Ground, lines: FaultyLines) -> None:
        self.ground = ground
        self.lines = lines
        limits = client_limits(**PATIENCE_MS)
        self.config = fluss.Config({"bootstrap.servers": lines.bootstrap_servers, **limits})
        self.connection = done(fluss.FlussConnection.create(self.config))

    def strike(self, call: Call, kind: str, in_request: bool) -> Outcome:
        """Make the call while the fault waits for it; the lines are whole again afterwards."""
        ready = self._ready(call)
        self.lines.inject(Fault(kind, call.api.key, in_request))
        found = outcome_of(ready)
        self.lines.restore()
        return found

    def _ready(self, call: Call) -> Callable[[], Any]:
        """Lines that a fault has ended are opened again here; that may take a try."""
        for _ in range(3):
            try:
                return call.make(self.ground, self.connection)
            except FlussError as error:
                if not error.is_retriable:
                    raise
        return call.make(self.ground, self.connection)

    def verdict(self, call: Call, kind: str, found: Outcome) -> str:
        """What is wrong with how the call ended; empty when nothing is."""
        if found.hung:
            return "it hung"
        if found.error is not None:
            if isinstance(found.error, FlussError) and found.error.message:
                return ""
            return f"it raised {found.error!r}"
        if kind == "corrupt" and not call.summed:
            return ""  # no sum covers these messages: the value may be another one
        return "" if call.right(self.ground, found.value) else f"it gave {found.value!r}"

    def close(self) -> None:
        self.connection.close()
