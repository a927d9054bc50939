"""What is recorded of a bulk load in Fluss, so that every attempt sends the same under the same
numbers, and a later one goes on where an earlier one stopped.

    (<name>, 0)         how the input is cut, what it is, which columns it has, where the logs
                        ended before
    (<name>, 1)         the receipt: the load is done
    (<name>, 2 + n)     split n with the writer ids of its units
    (<name>#done, n)    split n is in the table

The first row of every key stays. So whoever is first decides, and all others follow.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from fluss_client.errors import CorruptDataError
from fluss_client.facade.connection import FlussConnection
from fluss_client.model.table import TableInfo, TablePath
from fluss_client.runtime import runtime
from fluss_orchestrate.core.checkpoints.events import now_ms
from fluss_orchestrate.core.checkpoints.fluss_rows import CheckpointTable
from fluss_orchestrate.core.loading.errors import (
    EXPIRED_TEXT,
    LoadError,
    PinExpiredError,
    RowsDifferError,
    differ_text,
)
from fluss_orchestrate.core.loading.sending import PIN_AGE_MAX_MS, open_ledger
from fluss_orchestrate.core.plan import Position
from fluss_orchestrate.core.receipts import Receipt
from fluss_orchestrate.spark.loading.split import PinnedSplit, Split, SplitResult

HEADER, DONE, FIRST_SPLIT = 0, 1, 2
HEADER_VERSION = 2
ROWS_AT_ONCE_MAX = 200
WRITER_IDS_AT_ONCE_MAX = 64
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Header:
    """What the first attempt decided."""

    batch_rows: int
    unit_rows: int
    digest: str
    """Of the input: which files, how large, how cut."""
    staged: str | None
    """The folder of the staged input; None when the source's own files are read."""
    before: Position
    columns: dict[str, str] | None = None
    """The load's own columns: table column → source column. None in headers of version 1."""
    created_ms: int = -1

    def to_json(self) -> dict[str, Any]:
        """The header as plain values."""
        return {
            "version": HEADER_VERSION,
            "batch_rows": self.batch_rows,
            "unit_rows": self.unit_rows,
            "digest": self.digest,
            "staged": self.staged,
            "before": [[*place, offset] for place, offset in self.before.items()],
            "columns": self.columns,
        }


class BulkLedger:
    """The records of one load into one table. Calls block."""

    def __init__(self, connection: FlussConnection, info: TableInfo, load_id: str) -> None:
        self._backend = connection.core.backend
        self._table: CheckpointTable = open_ledger(connection)
        self._info = info
        self._load_id = load_id
        self._name = f"bulk/{info.table_id}/{load_id}"

    def header(self) -> Header | None:
        """What was decided, if the load was begun; `PinExpiredError` if that is too long ago."""
        row = self._rows([(self._name, HEADER)])[0]
        if row is None:
            return None
        value, created_ms = _body(row), int(row["created_ms"])
        if now_ms() - created_ms > PIN_AGE_MAX_MS:
            raise PinExpiredError(str(self._info.table_path), self._load_id, EXPIRED_TEXT)
        version = int(value.get("version", 1))
        if version > HEADER_VERSION:
            raise LoadError(
                str(self._info.table_path),
                self._load_id,
                f"it was begun by a newer release (version {version}; this one knows "
                f"{HEADER_VERSION}); go on with that release",
            )
        before = {(partition, bucket): offset for partition, bucket, offset in value["before"]}
        return Header(
            int(value["batch_rows"]),
            int(value["unit_rows"]),
            value["digest"],
            value["staged"],
            before,
            value.get("columns"),
            created_ms,
        )

    def begin(self, proposed: Header) -> Header:
        """Begin the load so, unless it was begun already: then as it was begun."""
        self._put([(self._name, HEADER, proposed.to_json())])
        found = self.header()
        if found is None:
            raise CorruptDataError(f"the header of {self._name} was written and is not there")
        return found

    def pin(self, splits: Iterable[Split]) -> Iterator[PinnedSplit]:
        """The splits with their writer ids; those that have none get them now."""
        for some in _chunks(splits, ROWS_AT_ONCE_MAX):
            keys = [(self._name, FIRST_SPLIT + split.number) for split in some]
            rows = self._rows(keys)
            new = [split for split, row in zip(some, rows, strict=True) if row is None]
            if new:
                ids = iter(self._writer_ids(sum(len(split.unit_rows) for split in new)))
                self._put(
                    [
                        (
                            self._name,
                            FIRST_SPLIT + split.number,
                            {
                                "split": split.to_json(),
                                "writer_ids": list(islice(ids, len(split.unit_rows))),
                            },
                        )
                        for split in new
                    ]
                )
                rows = self._rows(keys)
            for split, row in zip(some, rows, strict=True):
                yield self._pinned(split, row)

    def _pinned(self, split: Split, row: dict[str, Any] | None) -> PinnedSplit:
        if row is None:
            raise CorruptDataError(f"split {split.number} of {self._name} was pinned and is gone")
        value = _body(row)
        if Split.from_json(value["split"]) != split:
            raise RowsDifferError(
                str(self._info.table_path),
                self._load_id,
                differ_text(f"{value['split']['path']} was read otherwise"),
            )
        return PinnedSplit(split, tuple(value["writer_ids"]))

    def done_splits(self, count: int) -> dict[int, SplitResult]:
        """Which of the first `count` splits are in the table."""
        found: dict[int, SplitResult] = {}
        for numbers in _chunks(range(count), ROWS_AT_ONCE_MAX):
            rows = self._rows([(f"{self._name}#done", number) for number in numbers])
            for number, row in zip(numbers, rows, strict=True):
                if row is not None:
                    found[number] = SplitResult.from_json(_body(row))
        return found

    def finish_split(self, number: int, result: SplitResult) -> None:
        """Record that a split is in the table."""
        self._put([(f"{self._name}#done", number, result.to_json())])

    def receipt(self) -> Receipt | None:
        """The receipt of the load, if it is done."""
        row = self._rows([(self._name, DONE)])[0]
        return None if row is None else Receipt.from_json(_body(row))

    def finish(self, receipt: Receipt) -> Receipt:
        """Record that the load is done; the receipt that stays."""
        self._put([(self._name, DONE, receipt.to_json())])
        return self.receipt() or receipt

    def _rows(self, keys: Sequence[tuple[str, int]]) -> list[dict[str, Any] | None]:
        return runtime().call(self._table.lookup(keys))

    def _put(self, rows: Sequence[tuple[str, int, dict[str, Any]]]) -> None:
        made = [
            {
                "name": name,
                "seq": seq,
                "kind": "bulk",
                "plan_id": self._load_id,
                "created_ms": now_ms(),
                "body": json.dumps(body).encode(),
            }
            for name, seq, body in rows
        ]
        runtime().call(self._table.put(made))

    def _writer_ids(self, count: int) -> list[int]:
        gate = asyncio.Semaphore(WRITER_IDS_AT_ONCE_MAX)

        async def one() -> int:
            async with gate:
                return await self._backend.init_writer([self._info.table_path])

        async def all_of_them() -> list[int]:
            return list(await asyncio.gather(*(one() for _ in range(count))))

        return runtime().call(all_of_them())


def finished_receipt(connection: FlussConnection, table: str, load_id: str) -> Receipt | None:
    """The receipt of a load that is done, as anybody can look it up."""
    backend = connection.core.backend
    info = runtime().call(backend.get_table_info(TablePath.parse(table)))
    return BulkLedger(connection, info, load_id).receipt()


def _chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    left = iter(items)
    while some := list(islice(left, size)):
        yield some


def _body(row: dict[str, Any]) -> dict[str, Any]:
    value = json.loads(row["body"])
    assert isinstance(value, dict)
    return value
