"""Who writes into a table: loads, or one mirror. Both record themselves before they write.

A load is recorded before it looks for a mirror, and a mirror claims the table before it looks for
loads and rows. So of two that begin at the same time, at least one sees the other. The records are
in the ledger of loads, whose first row of a key stays:

    (loads-into/<table id>, n)            load n: its kind and id
    (loads-into/<table id>#refused, n)    load n was refused, and writes nothing
    (mirror/<table id>, n)                claim n: the checkpoint and the table that it mirrors
    (mirror/<table id>#outcome, n)        whether claim n holds, once loads and rows were looked for

A claim that another one follows was given up. One without an outcome may come to hold, so loads
take it for one that holds. Loads and mirrors that use different ledgers do not see each other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fluss_client import TableInfo
from fluss_orchestrate.core.checkpoints.events import now_ms
from fluss_orchestrate.core.checkpoints.fluss_rows import CheckpointTable

PROBES = 20
"""How many records are looked up at once to find the last one; each is twice as far away."""
RECORDS_AT_ONCE_MAX = 500
LOADS, MIRROR = "loads-into", "mirror"
"""What the names of these records begin with, where those of a load begin with its kind."""
DONE = 1
"""The record of a load that is done, beside its header (`ledger.py`)."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim of a mirror.

    Attributes:
        number: Its number among the claims of the table.
        checkpoint: The checkpoint of the mirror.
        source: The table that is mirrored.
        plan_id: The plan that made the claim.
        holds: Whether it holds; None if that was not decided.
    """

    number: int
    checkpoint: str
    source: str
    plan_id: str
    holds: bool | None


class TableOwnership:
    """The records of who writes into one table. Its coroutines run on the I/O thread."""

    def __init__(self, table: CheckpointTable, target: TableInfo) -> None:
        self._table = table
        self._id = target.table_id
        self._loads = f"{LOADS}/{target.table_id}"
        self._mirror = f"{MIRROR}/{target.table_id}"

    async def enter(self, kind: str, load_id: str) -> Claim | None:
        """Record that a load is about to write; return the mirror that forbids it, if any."""
        number, last = await self._last(self._loads)
        mine = {"kind": kind, "load_id": load_id}
        if last != mine or await self._body(f"{self._loads}#refused", number) is not None:
            number += 1
            while await self._first(self._loads, number, mine) != mine:
                number += 1
        claim = await self.claim()
        if claim is not None:
            await self._first(f"{self._loads}#refused", number, {})
        return claim

    async def unfinished(self) -> list[str]:
        """Return the ids of the loads that may still write."""
        end = (await self._last(self._loads))[0] + 1
        found: dict[str, None] = {}
        for start in range(0, end, RECORDS_AT_ONCE_MAX):
            numbers = range(start, min(end, start + RECORDS_AT_ONCE_MAX))
            loads = await self._bodies([(self._loads, n) for n in numbers])
            refused = await self._bodies([(f"{self._loads}#refused", n) for n in numbers])
            begun = [
                one
                for one, gone in zip(loads, refused, strict=True)
                if one is not None and gone is None
            ]
            keys = [(f"{one['kind']}/{self._id}/{one['load_id']}", DONE) for one in begun]
            done = await self._bodies(keys)
            left = [one for one, end_ in zip(begun, done, strict=True) if end_ is None]
            found |= dict.fromkeys(str(one["load_id"]) for one in left)
        return list(found)

    async def claim(self) -> Claim | None:
        """Return the claim that holds or may come to hold; None if the table is no mirror."""
        number, body = await self._last(self._mirror)
        if body is None:
            return None
        claim = await self._claim_of(number, body)
        return None if claim.holds is False else claim

    async def claimed(self, checkpoint: str, source: str, plan_id: str) -> Claim:
        """Claim the table for a mirror unless there is a claim, and return the one that stays."""
        number, body = await self._last(self._mirror)
        if body is not None:
            claim = await self._claim_of(number, body)
            if claim.holds is not False:
                return claim
        mine = {"checkpoint": checkpoint, "source": source, "plan_id": plan_id}
        return await self._claim_of(number + 1, await self._first(self._mirror, number + 1, mine))

    async def decide(self, claim: Claim, holds: bool) -> bool:
        """Record whether a claim holds, unless that was decided; return what was decided."""
        body = await self._first(f"{self._mirror}#outcome", claim.number, {"holds": holds})
        return bool(body["holds"])

    async def _claim_of(self, number: int, body: dict[str, Any]) -> Claim:
        outcome = await self._body(f"{self._mirror}#outcome", number)
        return Claim(
            number,
            str(body["checkpoint"]),
            str(body["source"]),
            str(body["plan_id"]),
            None if outcome is None else bool(outcome["holds"]),
        )

    async def _last(self, name: str) -> tuple[int, dict[str, Any] | None]:
        """Return the number and the body of the last record of a name; -1 if there is none."""
        return await last_record(self._bodies, name)

    async def _body(self, name: str, number: int) -> dict[str, Any] | None:
        return (await self._bodies([(name, number)]))[0]

    async def _bodies(self, keys: Sequence[tuple[str, int]]) -> list[dict[str, Any] | None]:
        found = await self._table.lookup(keys) if keys else []
        return [None if row is None else json.loads(row["body"]) for row in found]

    async def _first(self, name: str, number: int, body: dict[str, Any]) -> dict[str, Any]:
        """Write a record unless there is one, and return the one that stays."""
        return await first_record(self._table, name, number, body)


async def last_record(
    look_up: Callable[[Sequence[tuple[str, int]]], Any], name: str
) -> tuple[int, Any]:
    """Return the number and the row of the last record of a name; -1 and None if there is none.

    Args:
        look_up: Returns the records of some names and numbers, None for those that are not there.
        name: The name.
    """
    number, last = -1, None
    while True:
        probes = [number + (1 << at) for at in range(PROBES)]
        found = await look_up([(name, probe) for probe in probes])
        there = [(n, one) for n, one in zip(probes, found, strict=True) if one is not None]
        if not there:
            return number, last
        number, last = there[-1]


async def first_record(
    table: CheckpointTable, name: str, number: int, body: dict[str, Any]
) -> dict[str, Any]:
    """Write a record of a mirror or a load unless there is one, and return the one that stays."""
    row = {
        "name": name,
        "seq": number,
        "kind": name.partition("/")[0],
        "created_ms": now_ms(),
        "body": json.dumps(body).encode(),
    }
    await table.put([row])
    found = (await table.lookup([(name, number)]))[0]
    stays: dict[str, Any] = body if found is None else json.loads(found["body"])
    return stays
