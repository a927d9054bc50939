"""The names in a checkpoint table, of which each pass reads only those that it does not know.

Names are registered in the order of their slots (`fluss_store.py` has the rows), and are never
removed. A name counts when it has an event: a crash may come between both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from fluss_orchestrate.core.checkpoints.events import RESERVED
from fluss_orchestrate.core.checkpoints.fluss_rows import CheckpointTable

NAMES = f"{RESERVED}names"
NAMES_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class _Seen:
    """What one pass has read."""

    slots: int = 0
    """How many slots."""
    last_nonce: str = ""
    """The nonce of the last of them. Another one shows that the table was created again."""
    with_events: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    """Names that are registered and had no event yet."""


class KnownNames:
    """The names that were read. Several passes may run at the same time.

    Args:
        base_key: Returns the key of the row with the first sequence of a name.
    """

    def __init__(self, base_key: Callable[[str], str]) -> None:
        self._base_key = base_key
        self._seen = _Seen()

    async def read(self, table: CheckpointTable) -> list[str]:
        """Return every name that was registered and has events."""
        seen = await self._with_new_slots(table, self._seen)
        seen = await self._with_first_events(table, seen)
        # Of two passes either result is true: a later one reads what it lacks.
        self._seen = seen
        return list(seen.with_events)

    async def _with_new_slots(self, table: CheckpointTable, seen: _Seen) -> _Seen:
        names = dict.fromkeys(seen.without)
        while True:
            known = [seen.slots - 1] if seen.slots else []
            slots = range(seen.slots, seen.slots + NAMES_AT_ONCE)
            found = await table.lookup([(NAMES, slot) for slot in (*known, *slots)])
            last = found.pop(0) if known else None
            if known and (last is None or last["nonce"] != seen.last_nonce):
                names, seen = {}, _Seen()
                continue
            rows = [row for row in found if row is not None]
            names |= dict.fromkeys(bytes(row["body"]).decode() for row in rows)
            if rows:
                seen = replace(
                    seen, slots=seen.slots + len(rows), last_nonce=str(rows[-1]["nonce"])
                )
            if len(rows) < NAMES_AT_ONCE:
                return replace(seen, without=tuple(names))

    async def _with_first_events(self, table: CheckpointTable, seen: _Seen) -> _Seen:
        there: dict[str, bool] = {}
        for first in range(0, len(seen.without), NAMES_AT_ONCE):
            names = seen.without[first : first + NAMES_AT_ONCE]
            bases = await table.lookup([(self._base_key(name), 0) for name in names])
            firsts = [
                (name, 0 if base is None else int(base["body"]))
                for name, base in zip(names, bases, strict=True)
            ]
            rows = await table.lookup(firsts)
            there |= {name: row is not None for name, row in zip(names, rows, strict=True)}
        if not any(there.values()):
            return seen
        # A name that two processes registered at once has two slots.
        new = dict.fromkeys((*seen.with_events, *(name for name in there if there[name])))
        without = tuple(name for name in there if not there[name])
        return replace(seen, with_events=tuple(new), without=without)
