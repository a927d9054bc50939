"""A checkpoint store in Fluss itself, in a table that keeps the first row of every key.

All rows are in one bucket, so that a batch of them is written as a whole or not at all:

    (name, sequence)             an event; its body too, when that is small
    (body of a nonce, 0)         a larger body, written in the batch of its event
    (base of a name, 0)          the first sequence, where it is not 0 (after `compact`)
    (runs of a name and key, k)  the sequence of the k-th `plan` or `abandon` event of a run key
    (names, k)                   the k-th name of the store

The first writer of a sequence wins. A visible row with the nonce of an attempt shows that this
attempt was the first. The row in `runs` for an event is in the batch of the event after it: so
every event but the head is in the index, and the head is read anyway.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from fluss_client import FlussConnection, TablePath
from fluss_client.engine import Backoff, Deadline, async_connection, backend_of, run_blocking
from fluss_client.errors import TimedOutError
from fluss_orchestrate.core.checkpoints.events import (
    INDEXED_KINDS,
    RESERVED,
    Event,
    EventKind,
    new_nonce,
)
from fluss_orchestrate.core.checkpoints.fluss_names import NAMES, KnownNames
from fluss_orchestrate.core.checkpoints.fluss_rows import (
    EVENT_COLUMNS,
    REPLICAS_WANTED,
    CheckpointTable,
    Key,
    Row,
)
from fluss_orchestrate.core.checkpoints.known_heads import KnownHeads
from fluss_orchestrate.core.checkpoints.records import (
    RecordKey,
    RecordRow,
    rebuilt,
    recorded,
)
from fluss_orchestrate.core.checkpoints.store import CheckpointStore

DEFAULT_DATABASE = "fluss_orchestrate"
DEFAULT_TABLE = "checkpoints"
INLINE_BODY_BYTES_MAX = 4096
"""Larger bodies get a row of their own, so that looking for the head moves few bytes."""
GALLOP_STEPS = 40
PROBES_AT_ONCE = 32
RUN_SLOTS_AT_ONCE = 8
EVENTS_AT_ONCE = 64
HEADS_AT_ONCE = 256
"""Known heads that one look-up checks; each is two keys."""
SEARCHES_AT_ONCE_MAX = 16

T = TypeVar("T")


class FlussCheckpointStore(CheckpointStore):
    """A checkpoint store in a table of Fluss. It is the default store.

    The table may be in the cluster that is read, or in another one. It is created when it is first
    used. The store does not close the connection.

    An event is recorded when every replica in sync has it. In Fluss 0.9 a follower learns of a row
    only with its next fetch, and it fetches every `log.replica.fetch.wait-max-time` (500 ms). So
    with several replicas a plan and its commit take a second. Set that option of the servers to
    about 20 ms if that matters.

    Args:
        connection: The connection to the cluster that keeps the table.
        database: The database of the table.
        table: The name of the table.
        replicas: The number of copies of the table, at most the number of servers.
    """

    def __init__(
        self,
        connection: FlussConnection,
        database: str = DEFAULT_DATABASE,
        table: str = DEFAULT_TABLE,
        replicas: int = REPLICAS_WANTED,
    ) -> None:
        self.path = TablePath(database, table)
        super().__init__(FlussEventLog(connection, self.path, replicas))


class FlussEventLog:
    """Events as rows of a checkpoint table."""

    def __init__(self, connection: FlussConnection, path: TablePath, replicas: int) -> None:
        self._connection = connection
        self._path = path
        self._replicas = replicas
        self._open_lock = threading.Lock()
        self._table: CheckpointTable | None = None
        self._heads = KnownHeads()
        self._names = KnownNames(_base_key)
        self._unindexed: tuple[str, frozenset[str]] = ("", frozenset())
        """The nonce of a head, and the run keys that have no entry in the index meanwhile."""

    def _opened(self) -> CheckpointTable:
        with self._open_lock:
            if self._table is None:
                core = async_connection(self._connection)
                self._table = run_blocking(
                    CheckpointTable.open(
                        backend_of(core), core.config, self._path, self._replicas, EVENT_COLUMNS
                    )
                )
            return self._table

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return run_blocking(work)

    def head(self, name: str, run_key: str | None = None) -> Event | None:
        """Return the last event, found with a few look-ups however long the history is."""
        found = self._call(self._head(self._opened(), name, run_key))
        return self._remembered(found) if isinstance(found, Mapping) else found

    def seen_head(self, name: str) -> Event | None:
        """Return the last event that was read or written here."""
        return self._heads.get(name)

    def heads(self, names: Sequence[str], known: Mapping[str, Event]) -> dict[str, Event]:
        """Return the last events: one look-up for all known ones, some for each of the others."""
        found = self._call(self._heads_of(self._opened(), names, known))
        heads = {name: event for name, event in found.items() if isinstance(event, Event)}
        rows = [row for row in found.values() if isinstance(row, Mapping)]
        for first in range(0, len(rows), EVENTS_AT_ONCE):
            part = rows[first : first + EVENTS_AT_ONCE]
            upon = {row["name"]: known.get(row["name"]) for row in part}
            upon = {n: self._heads.get(n) or event for n, event in upon.items()}
            before = {n: event for n, event in upon.items() if event is not None}
            for event in rebuilt(part, self._fetched, before, at_once=True):
                heads[event.name] = self._heads.remember(event)
        return {name: heads[name] for name in names if name in heads}

    def event(self, name: str, sequence: int) -> Event | None:
        """Return one event."""
        found = self.events(name, sequence, sequence + 1)
        return found[0] if found else None

    def events(self, name: str, start: int, stop: int) -> list[Event]:
        """Return the events of some sequences."""
        rows = self._fetched([(name, sequence) for sequence in range(start, stop)])
        return rebuilt(rows, self._fetched, self._heads)

    def plan_event_of(self, name: str, run_key: str) -> Event | None:
        """Return the plan of a run key, found in the index."""
        head = self._heads.get(name)
        if head is not None and self._is_unindexed(run_key, head):
            return None
        sequence = self._call(self._plan_of(self._opened(), name, run_key))
        return None if sequence is None else self.event(name, sequence)

    def append(self, event: Event, previous: Event | None) -> Event | None:
        """Write the event, then read which event has the sequence."""
        made, body = recorded(event, previous)
        if not self._call(self._append(self._opened(), made, body, previous)):
            return None
        return self._heads.remember(made)

    def names(self) -> list[str]:
        """Return every name that was registered and has events; reads those that are new."""
        return self._call(self._names.read(self._opened()))

    def _remembered(self, row: RecordRow) -> Event:
        (event,) = rebuilt([row], self._fetched, self._heads, at_once=True)
        return self._heads.remember(event)

    def _fetched(self, keys: Sequence[RecordKey]) -> list[RecordRow]:
        """Return the records of some names and sequences that exist."""
        return self._call(self._records(self._opened(), keys))

    def close(self) -> None:
        """Do nothing: the caller owns the connection."""

    async def _head(
        self, table: CheckpointTable, name: str, run_key: str | None = None
    ) -> Event | RecordRow | None:
        """Return the last event if it is known, or its record."""
        known = self._heads.get(name)
        if known is not None:
            here, after = await self._around(table, known, run_key)
            if here is not None and here["nonce"] == known.nonce:
                if after is None:
                    return known
                return await self._head_from(table, name, known.sequence + 1)
            # The known event does not exist any more: the table was created again.
            self._heads.forget(name)
        base = (await table.lookup([(_base_key(name), 0)]))[0]
        return await self._head_from(table, name, 0 if base is None else _number(base))

    async def _heads_of(
        self, table: CheckpointTable, names: Sequence[str], known: Mapping[str, Event]
    ) -> dict[str, Event | RecordRow]:
        """Return the last events that are known, and the records of the others."""
        old = [known[name] for name in names if name in known]
        rows: list[dict[str, Any] | None] = []
        for first in range(0, len(old), HEADS_AT_ONCE):
            part = old[first : first + HEADS_AT_ONCE]
            rows += await table.lookup([(e.name, e.sequence + k) for e in part for k in (0, 1)])
        found: dict[str, Event | RecordRow | None] = {}
        for at, event in enumerate(old):
            here, after = rows[2 * at], rows[2 * at + 1]
            # Another nonce shows that the table was created again.
            if here is not None and here["nonce"] == event.nonce and after is None:
                found[event.name] = event
        gate = asyncio.Semaphore(SEARCHES_AT_ONCE_MAX)

        async def search(name: str) -> None:
            async with gate:
                found[name] = await self._head(table, name)

        async with asyncio.TaskGroup() as group:
            for name in names:
                if name not in found:
                    group.create_task(search(name))
        return {name: head for name, head in found.items() if head is not None}

    async def _around(
        self, table: CheckpointTable, known: Event, run_key: str | None
    ) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        """Return the rows of a known event and of the one after it.

        The caller is likely to append next. So this also notes which run keys have no entry in the
        index. That cannot change while the event is the head.
        """
        run_keys = [known.run_key] if known.kind in INDEXED_KINDS else []
        run_keys += [run_key] if run_key is not None else []
        here, after, *slots = await table.lookup(
            [
                (known.name, known.sequence),
                (known.name, known.sequence + 1),
                *((_run_name(known.name, key), 0) for key in run_keys),
            ]
        )
        if after is None:
            found = zip(run_keys, slots, strict=True)
            self._unindexed = (known.nonce, frozenset(key for key, slot in found if slot is None))
        return here, after

    async def _head_from(self, table: CheckpointTable, name: str, base: int) -> RecordRow | None:
        row = await self._last(table, name, await self._look(table, name, _gallop(base)))
        return None if row is None else (await self._with_bodies(table, [row]))[0]

    async def _last(
        self, table: CheckpointTable, name: str, found: dict[int, dict[str, Any] | None]
    ) -> dict[str, Any] | None:
        """Return the row of the highest sequence, given some rows around it."""
        there = [s for s, row in found.items() if row is not None]
        if not there:
            return None
        low = max(there)
        high = min((s for s, row in found.items() if row is None and s > low), default=low + 1)
        row = found[low]
        while high - low > 1:
            step = max(1, (high - low) // PROBES_AT_ONCE)
            found = await self._look(table, name, range(low + step, high, step))
            for sequence, candidate in found.items():
                if candidate is not None and sequence > low:
                    low, row = sequence, candidate
            high = min((s for s, r in found.items() if r is None and s > low), default=high)
        return row

    async def _look(
        self, table: CheckpointTable, name: str, sequences: Sequence[int]
    ) -> dict[int, dict[str, Any] | None]:
        rows = await table.lookup([(name, s) for s in sequences])
        return dict(zip(sequences, rows, strict=True))

    async def _with_bodies(
        self, table: CheckpointTable, rows: Sequence[dict[str, Any]]
    ) -> list[RecordRow]:
        apart = [row["nonce"] for row in rows if row["body"] is None]
        found = await table.lookup([(_body_key(n), 0) for n in apart]) if apart else []
        # The batch of an event has written its body, so that it exists.
        bodies = {n: row["body"] for n, row in zip(apart, found, strict=True) if row is not None}
        return [{**row, "body": row["body"] or bodies.get(row["nonce"], b"")} for row in rows]

    async def _records(self, table: CheckpointTable, keys: Sequence[RecordKey]) -> list[RecordRow]:
        records: list[RecordRow] = []
        for first in range(0, len(keys), EVENTS_AT_ONCE):
            rows = await table.lookup(keys[first : first + EVENTS_AT_ONCE])
            there = [row for row in rows if row is not None]
            records += await self._with_bodies(table, there)
        return records

    async def _plan_of(self, table: CheckpointTable, name: str, run_key: str) -> int | None:
        """Return the sequence of the plan of a run key, unless it was abandoned."""
        _, last = await self._run_slots(table, name, run_key)
        return None if last is None or last["kind"] != EventKind.PLAN else _number(last)

    async def _run_slots(
        self, table: CheckpointTable, name: str, run_key: str
    ) -> tuple[int, dict[str, Any] | None]:
        """Return how many entries a run key has in the index, and the last one."""
        key = _run_name(name, run_key)
        count, last, at_once = 0, None, 1
        while True:
            keys = [(key, count + i) for i in range(at_once)]
            for row in await table.lookup(keys):
                if row is None:
                    return count, last
                count, last = count + 1, row
            at_once = RUN_SLOTS_AT_ONCE

    async def _append(
        self, table: CheckpointTable, event: Event, body: bytes, previous: Event | None
    ) -> bool:
        rows: list[Row] = []
        if previous is None:
            await self._register(table, event.name)
            if event.sequence > 0:
                base = str(event.sequence).encode()
                rows.append({"name": _base_key(event.name), "seq": 0, "body": base})
        elif previous.kind in INDEXED_KINDS:
            rows += await self._index_rows(table, previous)
        inline = len(body) <= INLINE_BODY_BYTES_MAX
        if not inline:
            rows.append({"name": _body_key(event.nonce), "seq": 0, "body": body})
        rows.append(_event_row(event, body if inline else None))
        await table.put(rows)
        won = await self._visible(table, (event.name, event.sequence)) == event.nonce
        if won:
            self._note_successor(event, previous)
        return won

    def _is_unindexed(self, run_key: str, head: Event) -> bool:
        """Return whether it is known for this head that the run key has no entry in the index."""
        nonce, run_keys = self._unindexed
        return nonce == head.nonce and run_key in run_keys

    def _note_successor(self, event: Event, previous: Event | None) -> None:
        """Keep what is known of the index, except for the run key that just got an entry."""
        nonce, run_keys = self._unindexed
        if previous is None or previous.nonce != nonce:
            return
        added = {previous.run_key} if previous.kind in INDEXED_KINDS else set()
        self._unindexed = (event.nonce, run_keys - added)

    async def _visible(self, table: CheckpointTable, key: Key) -> str:
        """Return the nonce of the row of a key that was written, by this process or another one."""
        config = self._connection.config
        deadline = Deadline(config.request_timeout_ms, Backoff.of(config))
        for attempt in range(1 << 30):
            row = (await table.lookup([key]))[0]
            if row is not None:
                return str(row["nonce"])
            if deadline.passed():
                break
            await deadline.backoff.pause(attempt)
        raise TimedOutError(
            f"{self._path}: event {key[1]} of checkpoint '{key[0]}' was acknowledged but does "
            "not show; do the same again, which is safe"
        )

    async def _index_rows(self, table: CheckpointTable, event: Event) -> list[Row]:
        """Return the index entry of an event that is about to get a successor; none if it has one.

        No other entry can take the slot: the next event of this run key comes after that successor,
        and the batch of the successor contains this entry.
        """
        count, last = 0, None
        if not self._is_unindexed(event.run_key, event):
            count, last = await self._run_slots(table, event.name, event.run_key)
        if last is not None and _number(last) >= event.sequence:
            return []
        return [
            {
                "name": _run_name(event.name, event.run_key),
                "seq": count,
                "kind": str(event.kind),
                "nonce": event.nonce,
                "body": str(event.sequence).encode(),
            }
        ]

    async def _register(self, table: CheckpointTable, name: str) -> None:
        """Add a name to the list of names. Adding it twice does no harm."""
        while True:
            found = await self._look(table, NAMES, _gallop(0))
            last = await self._last(table, NAMES, found)
            slot = 0 if last is None else int(last["seq"]) + 1
            nonce = new_nonce()
            row = {"name": NAMES, "seq": slot, "nonce": nonce, "body": name.encode()}
            await table.put([row])
            if await self._visible(table, (NAMES, slot)) == nonce:
                return


def _gallop(base: int) -> list[int]:
    """Yield sequences from `base` on; each step is twice as long as the one before."""
    return [base + (1 << k) - 1 for k in range(GALLOP_STEPS)]


def _event_row(event: Event, body: bytes | None) -> Row:
    return {
        "name": event.name,
        "seq": event.sequence,
        "kind": str(event.kind),
        "nonce": event.nonce,
        "body": body,
    }


def _number(row: Row) -> int:
    """Return the number in the body of a row."""
    return int(row["body"])


def _base_key(name: str) -> str:
    return f"{RESERVED}base{RESERVED}{name}"


def _body_key(nonce: str) -> str:
    return f"{RESERVED}body{RESERVED}{nonce}"


def _run_name(name: str, run_key: str) -> str:
    return f"{RESERVED}run{RESERVED}{name}{RESERVED}{run_key}"
