"""The ledger of loads: writer ids, kept in Fluss so that every attempt of a load uses the same.

A server remembers the last five batches of a writer id in a bucket. A load is therefore cut into
units of at most five batches per bucket, always at the same rows, and each unit gets a writer id
before it is sent. The ledger is a first-row key table: the first row of a key stays, so the first
attempt that records something decides, and all other attempts follow it.

    (<name>, 0)         the header: how the load is cut, its columns, and when it was begun
    (<name>, 1)         the load is done, with its result
    (<name>, 2 + n)     part n: the writer ids of its units, and what identifies their rows
    (<name>#done, n)    part n is in the table (Spark only)

Before it writes, a load is also recorded among those of its table (`ownership.py`).

`<name>` is `<kind>/<table id>/<load id>`. `Pins` records the loads of one process, whose parts are
blocks of units; `fluss_orchestrate.spark.loading.splits` records the loads of Spark, whose parts
are splits of files.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from fluss_client import FlussConnection, TableInfo, TablePath
from fluss_client.engine import Backend, async_connection, backend_of, run_blocking, table_info
from fluss_client.errors import CorruptDataError
from fluss_orchestrate.core.checkpoints.events import now_ms
from fluss_orchestrate.core.checkpoints.fluss_rows import REPLICAS_WANTED, CheckpointTable
from fluss_orchestrate.core.loading.errors import (
    EXPIRED_TEXT,
    LoadError,
    MirroredTableError,
    PinExpiredError,
    RowsDifferError,
    differ_text,
)
from fluss_orchestrate.core.loading.ownership import DONE, TableOwnership
from fluss_orchestrate.core.plan import Position
from fluss_orchestrate.core.receipts import Receipt

DEFAULT_LEDGER = TablePath("fluss_orchestrate", "load_pins")
BULK_KIND = "bulk"
"""The kind of loads that Spark runs."""
PIN_AGE_MAX_MS = 6 * 24 * 3600 * 1000
"""Servers forget writer ids after seven days; one day is left for the load itself."""
WRITER_IDS_AT_ONCE_MAX = 64
HEADER, FIRST_PART = 0, 2
DIGEST_OF_TABLE, DIGEST_OF_COLUMNS = 1, 2
"""The columns of a digest: all columns that the table had, or the load's own columns."""


def open_ledger(
    connection: FlussConnection,
    path: TablePath = DEFAULT_LEDGER,
    replicas: int = REPLICAS_WANTED,
) -> CheckpointTable:
    """Open the ledger's table, and create it if it does not exist. Blocks."""
    core = async_connection(connection)
    return run_blocking(CheckpointTable.open(backend_of(core), core.config, path, replicas))


@dataclass(frozen=True, slots=True)
class Record:
    """One row of the ledger."""

    body: dict[str, Any]
    created_ms: int


class LoadLedger:
    """The records of one load into one table. Its coroutines run on the I/O thread."""

    def __init__(
        self, backend: Backend, table: CheckpointTable, target: TableInfo, kind: str, load_id: str
    ) -> None:
        self._backend = backend
        self._table = table
        self._target = target
        self.load_id = load_id
        self._kind = kind
        self._name = f"{kind}/{target.table_id}/{load_id}"

    @property
    def table(self) -> str:
        """The path of the table that is loaded."""
        return str(self._target.table_path)

    async def enter(self) -> None:
        """Record that the load is about to write, before each attempt.

        Raises:
            MirroredTableError: The table is a mirror.
        """
        if not self._target.has_primary_key():
            return  # It can be no mirror.
        claim = await TableOwnership(self._table, self._target).enter(self._kind, self.load_id)
        if claim is not None:
            raise MirroredTableError(self.table, self.load_id, claim.checkpoint)

    async def header(self) -> Record | None:
        """Return the header; None if no attempt has begun the load."""
        return (await self._records([(self._name, HEADER)]))[0]

    async def begin(self, header: dict[str, Any]) -> Record:
        """Record the header unless there is one, and return the one that stays."""
        await self._put([(self._name, HEADER, "cut", header)])
        return self.must(await self.header(), "the header")

    async def parts(self, numbers: Sequence[int]) -> list[Record | None]:
        """Return the records of some parts, None for those that have none."""
        return await self._records([(self._name, FIRST_PART + number) for number in numbers])

    async def pin_parts(self, bodies: dict[int, dict[str, Any]]) -> None:
        """Record parts by their number; those that are recorded already stay as they are."""
        await self._put(
            [(self._name, FIRST_PART + number, "units", body) for number, body in bodies.items()]
        )

    async def done_parts(self, numbers: Sequence[int]) -> list[Record | None]:
        """Return what was recorded when parts were done, None for those that are not."""
        return await self._records([(f"{self._name}#done", number) for number in numbers])

    async def finish_part(self, number: int, result: dict[str, Any]) -> None:
        """Record that a part is in the table."""
        await self._put([(f"{self._name}#done", number, "done", result)])

    async def done(self) -> dict[str, Any] | None:
        """Return what was recorded when the load was done; None if it is not."""
        found = (await self._records([(self._name, DONE)]))[0]
        return None if found is None else found.body

    async def finish(self, result: dict[str, Any]) -> None:
        """Record that every row is in the table."""
        await self._put([(self._name, DONE, "done", result)])

    async def writer_ids(self, count: int) -> list[int]:
        """Ask the server for new writer ids."""
        limit = asyncio.Semaphore(WRITER_IDS_AT_ONCE_MAX)

        async def one() -> int:
            async with limit:
                return await self._backend.init_writer([self._target.table_path])

        return list(await asyncio.gather(*(one() for _ in range(count))))

    def check_age(self, created_ms: int) -> None:
        """Check that the servers still know the writer ids of a load that was begun then.

        Raises:
            PinExpiredError: If the load was begun too long ago.
        """
        if now_ms() - created_ms > PIN_AGE_MAX_MS:
            raise PinExpiredError(self.table, self.load_id, EXPIRED_TEXT)

    def check_version(self, version: int, known: int, what: str = "version") -> None:
        """Check that this release can read a header.

        Raises:
            LoadError: If a newer release has begun the load.
        """
        if version > known:
            raise LoadError(
                self.table,
                self.load_id,
                f"it was begun by a newer release ({what} {version}; this one knows {known}); go "
                "on with that release",
            )

    def must(self, record: Record | None, what: str) -> Record:
        """Return a record that was just written, or that somebody else wrote before.

        Raises:
            CorruptDataError: If there is none.
        """
        if record is None:
            raise CorruptDataError(f"{what} of {self._name} was written and is not there")
        return record

    async def _records(self, keys: Sequence[tuple[str, int]]) -> list[Record | None]:
        return [
            None if row is None else Record(json.loads(row["body"]), int(row["created_ms"]))
            for row in await self._table.lookup(keys)
        ]

    async def _put(self, rows: Sequence[tuple[str, int, str, dict[str, Any]]]) -> None:
        await self._table.put(
            [
                {
                    "name": name,
                    "seq": seq,
                    "kind": kind,
                    "plan_id": self.load_id,
                    "created_ms": now_ms(),
                    "body": json.dumps(body).encode(),
                }
                for name, seq, kind, body in rows
            ]
        )


def finished_receipt(connection: FlussConnection, table: str, load_id: str) -> Receipt | None:
    """Return the receipt of a bulk load that is done, or None. Blocks."""
    info = table_info(connection, table)
    ledger = LoadLedger(backend_of(connection), open_ledger(connection), info, BULK_KIND, load_id)
    found = run_blocking(ledger.done())
    return None if found is None else Receipt.from_json(found)


@dataclass(frozen=True, slots=True)
class Cut:
    """How a load is split. The first attempt decides it."""

    batch_rows: int
    digest_version: int = DIGEST_OF_COLUMNS
    columns: tuple[str, ...] = ()
    """The load's own columns; empty where they were not recorded."""
    created_ms: int = -1

    def to_json(self) -> dict[str, Any]:
        """Return the cut as plain values."""
        return {
            "batch_rows": self.batch_rows,
            "digest": self.digest_version,
            "columns": list(self.columns),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any], created_ms: int) -> Cut:
        """Return the cut from what `to_json` returned. One without a version is of version 1."""
        return cls(
            int(value["batch_rows"]),
            int(value.get("digest", DIGEST_OF_TABLE)),
            tuple(value.get("columns", ())),
            created_ms,
        )


@dataclass(frozen=True, slots=True)
class UnitMark:
    """What identifies the rows of a unit: their number, and a digest if one was taken."""

    rows: int
    digest: str
    earlier: tuple[str, ...] = ()
    """Digests that the same rows had when the table had fewer columns."""

    def fits(self, pinned: UnitMark) -> bool:
        """Return whether a unit that was pinned with that mark has these rows."""
        return pinned.rows == self.rows and pinned.digest in (self.digest, *self.earlier)


@dataclass(frozen=True, slots=True)
class Block:
    """Units that were pinned together."""

    writer_ids: tuple[int, ...]
    marks: tuple[UnitMark, ...]
    before: Position
    """Where logs ended when the block was pinned, of places that it was the first to need."""

    def is_of(self, marks: Sequence[UnitMark]) -> bool:
        """Return whether the block was pinned for units with these marks."""
        return len(self.marks) == len(marks) and all(
            mark.fits(pinned) for mark, pinned in zip(marks, self.marks, strict=True)
        )

    def to_json(self) -> dict[str, Any]:
        """Return the block as plain values."""
        return {
            "writer_ids": list(self.writer_ids),
            "marks": [[mark.rows, mark.digest] for mark in self.marks],
            "before": [[*place, offset] for place, offset in self.before.items()],
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Block:
        """Return the block from what `to_json` returned."""
        return cls(
            tuple(value["writer_ids"]),
            tuple(UnitMark(int(rows), digest) for rows, digest in value["marks"]),
            {(partition, bucket): offset for partition, bucket, offset in value["before"]},
        )


class Pins:
    """The pins of a load that one process sends. Its coroutines run on the I/O thread."""

    def __init__(self, ledger: LoadLedger, columns: Sequence[str] = ()) -> None:
        self._ledger = ledger
        self._columns = tuple(columns)

    async def enter(self) -> None:
        """Record that the load is about to write; refuse a mirror."""
        await self._ledger.enter()

    async def cut(self) -> Cut | None:
        """Return how the load is cut; None if no attempt has begun it."""
        found = await self._ledger.header()
        return None if found is None else self._cut_of(found)

    async def begin(self, batch_rows: int) -> Cut:
        """Return how the load is cut: into batches of `batch_rows`, unless it was begun before."""
        proposed = Cut(batch_rows, columns=self._columns)
        return self._cut_of(await self._ledger.begin(proposed.to_json()))

    def _cut_of(self, header: Record) -> Cut:
        cut = Cut.from_json(header.body, header.created_ms)
        self._ledger.check_version(cut.digest_version, DIGEST_OF_COLUMNS, "digest version")
        return cut

    def check_age(self, cut: Cut) -> None:
        """Raise `PinExpiredError` if the load was begun too long ago."""
        self._ledger.check_age(cut.created_ms)

    async def block(
        self,
        number: int,
        marks: Sequence[UnitMark],
        ends: Callable[[], Coroutine[Any, Any, Position]],
    ) -> Block:
        """Return block `number` as it was pinned, and pin it first if it was not.

        Args:
            number: The number of the block within the load.
            marks: What identifies the rows of each unit.
            ends: Returns the end offsets that are recorded as the block's `before`.

        Raises:
            RowsDifferError: If the block was pinned for other rows.
        """
        record = (await self._ledger.parts([number]))[0]
        if record is None:
            ids = await self._ledger.writer_ids(len(marks))
            own = Block(tuple(ids), tuple(marks), await ends())
            await self._ledger.pin_parts({number: own.to_json()})
            # Another attempt may have pinned it first; what the ledger has now is what counts.
            record = (await self._ledger.parts([number]))[0]
        found = Block.from_json(self._ledger.must(record, f"block {number}").body)
        if not found.is_of(marks):
            raise RowsDifferError(
                self._ledger.table,
                self._ledger.load_id,
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
        """Return whether some attempt has pinned block `number`."""
        return (await self._ledger.parts([number]))[0] is not None

    async def done(self) -> dict[str, Any] | None:
        """Return what was recorded when the load was done; None if it is not."""
        return await self._ledger.done()

    async def finish(self, result: dict[str, Any]) -> None:
        """Record that every unit is in the target."""
        await self._ledger.finish(result)
