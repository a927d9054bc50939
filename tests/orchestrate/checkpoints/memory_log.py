"""An event log in memory: what a store must do, without anything that could go wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fluss_orchestrate.core.checkpoints import Event, EventKind
from fluss_orchestrate.core.checkpoints.events import INDEXED_KINDS


class MemoryEventLog:
    def __init__(self) -> None:
        self._events: dict[str, dict[int, Event]] = {}

    def head(self, name: str, run_key: str | None = None) -> Event | None:
        events = self._events.get(name)
        return events[max(events)] if events else None

    def seen_head(self, name: str) -> Event | None:
        return self.head(name)

    def heads(self, names: Sequence[str], known: Mapping[str, Event]) -> dict[str, Event]:
        found = {name: self.head(name) for name in names}
        return {name: event for name, event in found.items() if event is not None}

    def event(self, name: str, sequence: int) -> Event | None:
        return self._events.get(name, {}).get(sequence)

    def events(self, name: str, start: int, stop: int) -> list[Event]:
        known = self._events.get(name, {})
        return [known[s] for s in sorted(known) if start <= s < stop]

    def plan_event_of(self, name: str, run_key: str) -> Event | None:
        of_run = [
            event
            for event in self._events.get(name, {}).values()
            if event.run_key == run_key and event.kind in INDEXED_KINDS
        ]
        last = max(of_run, key=lambda event: event.sequence, default=None)
        return last if last is not None and last.kind is EventKind.PLAN else None

    def append(self, event: Event, previous: Event | None) -> bool:
        known = self._events.setdefault(event.name, {})
        if event.sequence in known:
            return False
        known[event.sequence] = event
        return True

    def names(self) -> list[str]:
        return list(self._events)

    def close(self) -> None:
        pass
