"""The last events that a process has read or written, so that it need not build them again."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

from fluss_orchestrate.core.checkpoints.events import Event
from fluss_orchestrate.core.checkpoints.layers import follow

HEADS_KEPT_MAX = 256
PLACES_KEPT_MAX = 1 << 20
"""About 200 MB. One event is kept, whatever it has."""


class KnownHeads(Mapping[str, Event]):
    """The last known event of each name. Others may have added events since.

    Threads may share it.
    """

    def __init__(self) -> None:
        self._events: dict[str, Event] = {}
        self._places = 0
        self._lock = threading.Lock()

    def __getitem__(self, name: str) -> Event:
        return self._events[name]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._events))

    def __len__(self) -> int:
        return len(self._events)

    def remember(self, event: Event) -> Event:
        """Keep an event, unless a later one of its name is known, and return it."""
        if not follow(event.layers) and event.state.position is not None:
            return event  # Its position cannot be built, until the store has all events again.
        with self._lock:
            known = self._events.get(event.name)
            if known is None or known.sequence <= event.sequence:
                self._drop(event.name)
                self._events[event.name] = event
                self._places += _places(event)
                while len(self._events) > HEADS_KEPT_MAX or (
                    self._places > PLACES_KEPT_MAX and len(self._events) > 1
                ):
                    self._drop(next(iter(self._events)))
        return event

    def forget(self, name: str) -> None:
        """Drop the event of a name: the store does not have it any more."""
        with self._lock:
            self._drop(name)

    def _drop(self, name: str) -> None:
        event = self._events.pop(name, None)
        if event is not None:
            self._places -= _places(event)


def _places(event: Event) -> int:
    return event.layers[-1].check[0] if event.layers else 0
