"""Moving checkpoints from one store to another: export, import and compaction.

Events keep their sequences, so a pending plan can be committed in the new store. Only the newest
events are moved; a run key whose plan is older would get a new plan there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from fluss_client.errors import CorruptDataError
from fluss_orchestrate.core import plain_values as plain
from fluss_orchestrate.core.checkpoints.events import (
    Event,
    EventKind,
    event_from_json,
    new_nonce,
)
from fluss_orchestrate.core.checkpoints.store import CheckpointStore
from fluss_orchestrate.core.errors import CheckpointConflictError

EXPORT_VERSION = 1
EVENTS_KEPT = 200
MOVED = "moved_to"


def export_checkpoints(
    store: CheckpointStore, names: Iterable[str] | None = None, keep: int = EVENTS_KEPT
) -> dict[str, Any]:
    """Return the newest `keep` events of each checkpoint, as plain values for a JSON file."""
    chosen = store.names(internal=True) if names is None else list(names)
    exported = {}
    for name in chosen:
        store.require(name)
        exported[name] = [event.to_json() for event in _oldest_first(store, name, keep)]
    return {"version": EXPORT_VERSION, "checkpoints": exported}


def import_checkpoints(store: CheckpointStore, exported: Mapping[str, Any]) -> list[str]:
    """Put exported checkpoints into a store, and return their names.

    If the store has a name already, it must have the same events, from an import that was
    interrupted. Otherwise the import is refused before anything of that name is written.
    """
    with plain.reading("export of checkpoints"):
        plain.check_version(exported, EXPORT_VERSION, "an export of checkpoints")
        groups = {
            name: [event_from_json(value) for value in events]
            for name, events in plain.mapping(exported["checkpoints"]).items()
        }
    for name, events in groups.items():
        _check_run(name, events)
        _copy(store, events)
    return list(groups)


def compact(source: CheckpointStore, target: CheckpointStore, keep: int = EVENTS_KEPT) -> list[str]:
    """Move every checkpoint with its newest events into another, new store, and return the names.

    Each is retired in the old store first, so that a run that still uses it is refused there. It
    may be repeated after a crash. Retired checkpoints are not moved.
    """
    moved = []
    for name in source.names(internal=True):
        head = source.require(name)
        if head.state.retired and not _is_move(head):
            continue
        if not head.state.retired:
            source.retire(name, MOVED, with_pending=True)
        events = _oldest_first(source, name, keep + 1)
        _copy(target, (replace(e, nonce=new_nonce()) for e in events if not _is_move(e)))
        moved.append(name)
    return moved


def _is_move(event: Event) -> bool:
    return event.kind is EventKind.RETIRE and event.details.get("reason") == MOVED


def _oldest_first(store: CheckpointStore, name: str, keep: int) -> Iterator[Event]:
    """Iterate over the newest events. Each is dropped after it was used: positions may be large."""
    events = list(store.history(name, keep))
    while events:
        yield events.pop()


def _check_run(name: str, events: list[Event]) -> None:
    if not events:
        raise CorruptDataError(f"the export of checkpoint '{name}' has no events")
    first = events[0].sequence
    for at, event in enumerate(events):
        if event.name != name or event.sequence != first + at:
            raise CorruptDataError(
                f"the export of checkpoint '{name}' has a gap at event {first + at}"
            )


def _copy(store: CheckpointStore, events: Iterable[Event]) -> None:
    previous: Event | None = None
    for event in events:
        known = store.log.event(event.name, event.sequence)
        if known is None and previous is None and store.head(event.name) is not None:
            raise _other(event)
        if known is None:
            known = store.log.append(event, previous)
            if known is None:
                raise _other(event)
        elif known.to_json() != event.to_json():
            raise _other(event)
        previous = known


def _other(event: Event) -> CheckpointConflictError:
    return CheckpointConflictError(
        event.name,
        f"the store has another history of it at event {event.sequence}; nothing was imported "
        "over it: import into an empty store, or `retire` it and use another name",
        event.sequence,
    )
