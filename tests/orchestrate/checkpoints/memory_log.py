"""An event log in memory: what a store must do, without anything that could go wrong.

It keeps the records that a store would keep, so that events are rebuilt from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fluss_orchestrate.core.checkpoints import Event, EventKind
from fluss_orchestrate.core.checkpoints.events import INDEXED_KINDS
from fluss_orchestrate.core.checkpoints.records import RecordKey, RecordRow, rebuilt, recorded


class MemoryEventLog:
    def __init__(self) -> None:
        self.records: dict[str, dict[int, RecordRow]] = {}

    def head(self, name: str, run_key: str | None = None) -> Event | None:
        records = self.records.get(name)
        if not records:
            return None
        return rebuilt([records[max(records)]], self._fetched, {}, at_once=True)[0]

    def seen_head(self, name: str) -> Event | None:
        return self.head(name)

    def heads(self, names: Sequence[str], known: Mapping[str, Event]) -> dict[str, Event]:
        found = {name: self.head(name) for name in names}
        return {name: event for name, event in found.items() if event is not None}

    def event(self, name: str, sequence: int) -> Event | None:
        found = self.events(name, sequence, sequence + 1)
        return found[0] if found else None

    def events(self, name: str, start: int, stop: int) -> list[Event]:
        known = self.records.get(name, {})
        rows = [known[s] for s in sorted(known) if start <= s < stop]
        return rebuilt(rows, self._fetched, {})

    def plan_event_of(self, name: str, run_key: str) -> Event | None:
        of_run = [
            sequence
            for sequence, row in self.records.get(name, {}).items()
            if row["run_key"] == run_key and row["kind"] in INDEXED_KINDS
        ]
        found = self.event(name, max(of_run)) if of_run else None
        return found if found is not None and found.kind is EventKind.PLAN else None

    def append(self, event: Event, previous: Event | None) -> Event | None:
        made, body = recorded(event, previous)
        known = self.records.setdefault(event.name, {})
        if event.sequence in known:
            return None
        known[event.sequence] = {
            "name": event.name,
            "seq": event.sequence,
            "kind": str(event.kind),
            "nonce": event.nonce,
            "run_key": event.run_key,
            "body": body,
        }
        return made

    def rewrite(self, name: str, change: Callable[[Event], Event]) -> None:
        """Put other events into the place of those that are there, each with its whole position."""
        for event in self.events(name, 0, 1 << 62):
            record = self.records[name][event.sequence]
            self.records[name][event.sequence] = {**record, "body": change(event).body()}

    def names(self) -> list[str]:
        return list(self.records)

    def close(self) -> None:
        pass

    def _fetched(self, keys: Sequence[RecordKey]) -> list[RecordRow]:
        known = [(self.records.get(name, {}), sequence) for name, sequence in keys]
        return [records[sequence] for records, sequence in known if sequence in records]
