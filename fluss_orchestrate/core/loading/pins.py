"""Writer ids that belong to a load, kept in Fluss so that every attempt uses the same ones.

A server knows the last five batches of a writer id in a bucket. So a load is cut into units of at
most five batches per bucket, always at the same rows, and each unit gets a writer id before it is
sent. Units are pinned in blocks, to ask the ledger once for many. The first attempt to pin a block
wins, and all others use its writer ids.

    (<name>, 0)       how the load is cut, how its rows are digested, its columns, and when it
                      was begun
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
from fluss_orchestrate.core.loading.errors import LoadError, RowsDifferError, differ_text
from fluss_orchestrate.core.plan import Position

HEADER, DONE, FIRST_BLOCK = 0, 1, 2
DIGEST_OF_TABLE, DIGEST_OF_COLUMNS = 1, 2
"""What a digest is taken of: of all columns that the table had, or of the load's own columns."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How a load is cut: the first attempt decides, for good."""

    batch_rows: int
    digest_version: int = DIGEST_OF_COLUMNS
    columns: tuple[str, ...] = ()
    """The load's own columns; empty where they were not recorded."""
    created_ms: int = -1

    def to_json(self) -> dict[str, Any]:
        """The cut as plain values."""
        return {
            "batch_rows": self.batch_rows,
            "digest": self.digest_version,
            "columns": list(self.columns),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any], created_ms: int) -> Cut:
        """The cut from `to_json`. Those without a version are of the first one."""
        return cls(
            int(value["batch_rows"]),
            int(value.get("digest", DIGEST_OF_TABLE)),
            tuple(value.get("columns", ())),
            created_ms,
        )


@dataclass(frozen=True, slots=True)
class UnitMark:
    """What tells a unit's rows from others: their count, and a digest where one was taken."""

    rows: int
    digest: str
    earlier: tuple[str, ...] = ()
    """Digests that the same rows had when the table had fewer columns."""

    def fits(self, pinned: UnitMark) -> bool:
        """Whether a unit that was pinned with that mark has these rows."""
        return pinned.rows == self.rows and pinned.digest in (self.digest, *self.earlier)


@dataclass(frozen=True, slots=True)
class Block:
    """Some units, pinned."""

    writer_ids: tuple[int, ...]
    marks: tuple[UnitMark, ...]
    before: Position
    """Where logs ended when the block was pinned, of places that it was the first to need."""

    def is_of(self, marks: Sequence[UnitMark]) -> bool:
        """Whether the block was pinned for units with these marks."""
        return len(self.marks) == len(marks) and all(
            mark.fits(pinned) for mark, pinned in zip(marks, self.marks, strict=True)
        )

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
        self,
        backend: Backend,
        ledger: CheckpointTable,
        target: TableInfo,
        kind: str,
        load_id: str,
        columns: Sequence[str] = (),
    ) -> None:
        self._backend = backend
        self._ledger = ledger
        self._target = target
        self._load_id = load_id
        self._columns = tuple(columns)
        self._name = f"{kind}/{target.table_id}/{load_id}"

    async def cut(self) -> Cut | None:
        """How the load is cut; None if no attempt has begun it."""
        row = await self._row(HEADER)
        return None if row is None else self._cut_of(row)

    async def begin(self, batch_rows: int) -> Cut:
        """How the load is cut: into batches of so many rows, if nobody was first."""
        proposed = Cut(batch_rows, columns=self._columns)
        await self._put(HEADER, "cut", proposed.to_json())
        return self._cut_of(await self._must(HEADER))

    def _cut_of(self, row: dict[str, Any]) -> Cut:
        cut = Cut.from_json(_body(row), int(row["created_ms"]))
        if cut.digest_version > DIGEST_OF_COLUMNS:
            raise LoadError(
                str(self._target.table_path),
                self._load_id,
                f"it was begun by a newer release (digest version {cut.digest_version}; this one "
                f"knows {DIGEST_OF_COLUMNS}); go on with that release",
            )
        return cut

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
        if not found.is_of(marks):
            raise RowsDifferError(
                str(self._target.table_path),
                self._load_id,
                differ_text(await self._difference(found, marks)),
            )
        return found

    async def _difference(self, found: Block, marks: Sequence[UnitMark]) -> str:
        was, now = sum(m.rows for m in found.marks), sum(m.rows for m in marks)
        if was != now:
            return f"{was} rows then, {now} now"
        cut = await self.cut()
        if cut is not None and cut.columns and set(cut.columns) != set(self._columns):
            then = ", ".join(cut.columns)
            return f"the columns were {then}, and are {', '.join(self._columns)}"
        return "equal in number, not in content"

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


def _body(row: dict[str, Any]) -> dict[str, Any]:
    value = json.loads(row["body"])
    assert isinstance(value, dict)
    return value
