"""Writer ids that belong to a load, kept in Fluss so that every attempt uses the same ones.

A server knows the last five batches of a writer id in a bucket. So a load is cut into units of at
most five batches per bucket, always at the same rows, and each unit gets a writer id before it is
sent. Units are pinned in blocks, to ask the ledger once for many. The first attempt to pin a block
wins, and all others use its writer ids.

    (<name>, 0)       how the load is cut, and when it was begun
    (<name>, 1)       the load is done
    (<name>, 2 + n)   the units of block n: writer ids, row counts, digests of their rows, and
                      where the logs ended of buckets that no earlier block has rows for
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from fluss_client.backend.contract import Backend
from fluss_client.errors import CorruptDataError
from fluss_client.model.table import TableInfo
from fluss_orchestrate.core.checkpoints.events import now_ms
from fluss_orchestrate.core.checkpoints.fluss_rows import CheckpointTable
from fluss_orchestrate.core.loading.errors import RowsDifferError
from fluss_orchestrate.core.plan import Position

HEADER, DONE, FIRST_BLOCK = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Cut:
    """How a load is cut: the first attempt decides, for good."""

    batch_rows: int
    created_ms: int


@dataclass(frozen=True, slots=True)
class UnitMark:
    """What tells a unit's rows from others: their count, and a digest where one was taken."""

    rows: int
    digest: str


@dataclass(frozen=True, slots=True)
class Block:
    """Some units, pinned."""

    writer_ids: tuple[int, ...]
    marks: tuple[UnitMark, ...]
    before: Position
    """Where logs ended when the block was pinned, of places that it was the first to need."""

    def to_json(self) -> dict[str, Any]:
        """The block as plain values."""
        return {
            "writer_ids": list(self.writer_ids),
            "marks": [[mark.rows, mark.digest] for mark in self.marks],
            "before": [[*place, offset] for place, offset in self.before.items()],
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Block:
        """The block from `to_json`."""
        return cls(
            tuple(value["writer_ids"]),
            tuple(UnitMark(int(rows), digest) for rows, digest in value["marks"]),
            {(partition, bucket): offset for partition, bucket, offset in value["before"]},
        )


class Pins:
    """The pins of one load into one table. Its coroutines run on the I/O thread."""

    def __init__(
        self, backend: Backend, ledger: CheckpointTable, target: TableInfo, kind: str, load_id: str
    ) -> None:
        self._backend = backend
        self._ledger = ledger
        self._target = target
        self._load_id = load_id
        self._name = f"{kind}/{target.table_id}/{load_id}"

    async def cut(self, proposed_rows: int | None = None) -> Cut | None:
        """How the load is cut; with a proposal, that one if nobody was first."""
        row = await self._row(HEADER)
        if row is None and proposed_rows is not None:
            await self._put(HEADER, "cut", {"batch_rows": proposed_rows})
            row = await self._must(HEADER)
        if row is None:
            return None
        return Cut(int(_body(row)["batch_rows"]), int(row["created_ms"]))

    async def block(
        self,
        number: int,
        marks: Sequence[UnitMark],
        ends: Callable[[], Coroutine[Any, Any, Position]],
    ) -> Block:
        """Block `number` as it was pinned; now, if it was not, with `ends()` as its `before`.

        `RowsDifferError` when it was pinned for other rows.
        """
        row = await self._row(FIRST_BLOCK + number)
        if row is None:
            path = self._target.table_path
            ids = await asyncio.gather(*(self._backend.init_writer([path]) for _ in marks))
            own = Block(tuple(ids), tuple(marks), await ends())
            await self._put(FIRST_BLOCK + number, "units", own.to_json())
            row = await self._must(FIRST_BLOCK + number)
        found = Block.from_json(_body(row))
        if found.marks != tuple(marks):
            raise RowsDifferError(
                str(self._target.table_path), self._load_id, _differ(found, marks)
            )
        return found

    async def holds_block(self, number: int) -> bool:
        """Whether block `number` was pinned by some attempt."""
        return await self._row(FIRST_BLOCK + number) is not None

    async def done(self) -> dict[str, Any] | None:
        """What was recorded when the load was done; None if it is not."""
        row = await self._row(DONE)
        return None if row is None else _body(row)

    async def finish(self, result: dict[str, Any]) -> None:
        """Record that every unit is in the target."""
        await self._put(DONE, "done", result)

    async def _row(self, seq: int) -> dict[str, Any] | None:
        return (await self._ledger.lookup([(self._name, seq)]))[0]

    async def _must(self, seq: int) -> dict[str, Any]:
        row = await self._row(seq)
        if row is None:
            raise CorruptDataError(f"the pin ({self._name}, {seq}) was written and is not there")
        return row

    async def _put(self, seq: int, kind: str, body: dict[str, Any]) -> None:
        await self._ledger.put(
            [
                {
                    "name": self._name,
                    "seq": seq,
                    "kind": kind,
                    "plan_id": self._load_id,
                    "created_ms": now_ms(),
                    "body": json.dumps(body).encode(),
                }
            ]
        )


def _differ(found: Block, marks: Sequence[UnitMark]) -> str:
    was, now = sum(m.rows for m in found.marks), sum(m.rows for m in marks)
    return differ_text(
        f"{was} rows then, {now} now" if was != now else "equal in number, not in content"
    )


def differ_text(what: str) -> str:
    """What to say of rows that are not those of their load."""
    return (
        f"it was begun with other rows ({what}). A load id stands for the same rows in the same "
        "order; give other rows an id of their own"
    )


def _body(row: dict[str, Any]) -> dict[str, Any]:
    value = json.loads(row["body"])
    assert isinstance(value, dict)
    return value
