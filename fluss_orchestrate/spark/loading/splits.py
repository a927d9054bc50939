"""Splits: how Parquet files are cut for Spark tasks, and their records in the ledger.

The same files are always cut at the same rows. A split is some row groups of one file, which one
task loads; it is cut into units, and each unit has a writer id of its own. `SplitLedger` records
how the input was cut, the writer ids of every split, and which splits are done, so that a later
attempt sends the same batches under the same numbers and continues where an earlier one stopped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from fluss_client import FlussConnection, TableInfo
from fluss_client.engine import PINNED_BATCHES_MAX, backend_of, rows_max_of, run_blocking
from fluss_orchestrate.core.loading.errors import RowsDifferError, differ_text
from fluss_orchestrate.core.loading.ledger import BULK_KIND, LoadLedger, Record, open_ledger
from fluss_orchestrate.core.loading.sources import SourceError
from fluss_orchestrate.core.plan import Position
from fluss_orchestrate.core.receipts import Receipt
from fluss_orchestrate.spark.loading.places import InputFile, filesystem_of

HEADER_VERSION = 2
RECORDS_AT_ONCE_MAX = 200
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Split:
    """Some row groups of one Parquet file, and after how many rows each unit ends."""

    number: int
    """Its place in the load."""
    first_unit: int
    """The place of its first unit in the load."""
    path: str
    row_groups: tuple[int, ...]
    first_row: int
    """The number of its first row in the file."""
    unit_rows: tuple[int, ...]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(self.unit_rows)

    def to_json(self) -> dict[str, Any]:
        """Return the split as plain values."""
        return {
            "number": self.number,
            "first_unit": self.first_unit,
            "path": self.path,
            "row_groups": list(self.row_groups),
            "first_row": self.first_row,
            "unit_rows": list(self.unit_rows),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Split:
        """Return the split from what `to_json` returned."""
        return cls(
            int(value["number"]),
            int(value["first_unit"]),
            str(value["path"]),
            tuple(value["row_groups"]),
            int(value["first_row"]),
            tuple(value["unit_rows"]),
        )


@dataclass(frozen=True, slots=True)
class PinnedSplit:
    """A split with the writer ids of its units."""

    split: Split
    writer_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SplitResult:
    """What the table has of a split."""

    rows: int
    bytes: int
    rejected: int = 0

    def to_json(self) -> dict[str, int]:
        """Return the result as plain values."""
        return {"rows": self.rows, "bytes": self.bytes, "rejected": self.rejected}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> SplitResult:
        """Return the result from what `to_json` returned."""
        return cls(int(value["rows"]), int(value["bytes"]), int(value["rejected"]))


@dataclass(frozen=True, slots=True)
class Header:
    """What the first attempt decided: how the input is cut, what it is, and where it was then."""

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
        """Return the header as plain values."""
        return {
            "version": HEADER_VERSION,
            "batch_rows": self.batch_rows,
            "unit_rows": self.unit_rows,
            "digest": self.digest,
            "staged": self.staged,
            "before": [[*place, offset] for place, offset in self.before.items()],
            "columns": self.columns,
        }


class SplitLedger:
    """The records of one load by Spark into one table. Calls block."""

    def __init__(self, connection: FlussConnection, info: TableInfo, load_id: str) -> None:
        self._ledger = LoadLedger(
            backend_of(connection), open_ledger(connection), info, BULK_KIND, load_id
        )

    def enter(self) -> None:
        """Record that the load is about to write.

        Raises:
            MirroredTableError: The table is a mirror.
        """
        run_blocking(self._ledger.enter())

    def header(self) -> Header | None:
        """Return what the first attempt decided; None if the load was not begun.

        Raises:
            PinExpiredError: If the load was begun too long ago.
            LoadError: If a newer release has begun it.
        """
        found = run_blocking(self._ledger.header())
        return None if found is None else self._header_of(found)

    def _header_of(self, record: Record) -> Header:
        value = record.body
        self._ledger.check_age(record.created_ms)
        self._ledger.check_version(int(value.get("version", 1)), HEADER_VERSION)
        before = {(partition, bucket): offset for partition, bucket, offset in value["before"]}
        return Header(
            int(value["batch_rows"]),
            int(value["unit_rows"]),
            value["digest"],
            value["staged"],
            before,
            value.get("columns"),
            record.created_ms,
        )

    def begin(self, proposed: Header) -> Header:
        """Begin the load as proposed, unless it was begun before; return the header that stays."""
        return self._header_of(run_blocking(self._ledger.begin(proposed.to_json())))

    def pin(self, splits: Iterable[Split]) -> Iterator[PinnedSplit]:
        """Yield the splits with their writer ids; splits that have none get them now.

        Raises:
            RowsDifferError: If a split was pinned for other rows.
        """
        for some in _chunks(splits, RECORDS_AT_ONCE_MAX):
            records = run_blocking(self._records(some))
            for split, record in zip(some, records, strict=True):
                yield self._pinned(split, record)

    async def _records(self, splits: list[Split]) -> list[Record | None]:
        numbers = [split.number for split in splits]
        records = await self._ledger.parts(numbers)
        new = [split for split, record in zip(splits, records, strict=True) if record is None]
        if not new:
            return records
        ids = iter(await self._ledger.writer_ids(sum(len(split.unit_rows) for split in new)))
        await self._ledger.pin_parts(
            {
                split.number: {
                    "split": split.to_json(),
                    "writer_ids": list(islice(ids, len(split.unit_rows))),
                }
                for split in new
            }
        )
        # Another attempt may have pinned some of them first; what the ledger has now counts.
        return await self._ledger.parts(numbers)

    def _pinned(self, split: Split, record: Record | None) -> PinnedSplit:
        value = self._ledger.must(record, f"split {split.number}").body
        if Split.from_json(value["split"]) != split:
            raise RowsDifferError(
                self._ledger.table,
                self._ledger.load_id,
                differ_text(f"{value['split']['path']} was read otherwise"),
            )
        return PinnedSplit(split, tuple(value["writer_ids"]))

    def done_splits(self, count: int) -> dict[int, SplitResult]:
        """Return the results of those of the first `count` splits that are in the table."""
        found: dict[int, SplitResult] = {}
        for numbers in _chunks(range(count), RECORDS_AT_ONCE_MAX):
            records = run_blocking(self._ledger.done_parts(numbers))
            for number, record in zip(numbers, records, strict=True):
                if record is not None:
                    found[number] = SplitResult.from_json(record.body)
        return found

    def finish_split(self, number: int, result: SplitResult) -> None:
        """Record that a split is in the table."""
        run_blocking(self._ledger.finish_part(number, result.to_json()))

    def receipt(self) -> Receipt | None:
        """Return the receipt of the load; None if it is not done."""
        found = run_blocking(self._ledger.done())
        return None if found is None else Receipt.from_json(found)

    def finish(self, receipt: Receipt) -> Receipt:
        """Record that the load is done, and return the receipt that stays."""
        run_blocking(self._ledger.finish(receipt.to_json()))
        return self.receipt() or receipt


def _chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    left = iter(items)
    while some := list(islice(left, size)):
        yield some


SPLIT_BYTES = 64 << 20
SPLIT_UNITS_MAX = 64
SAMPLE_ROWS = 4_096
BATCH_ROWS_MAX = 200_000
SPREAD_MAX = 4
"""Units of a table with keys spread over its buckets, so they may have this many times the rows."""
FOOTERS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Footer:
    """The footer of a Parquet file."""

    file: InputFile
    groups: tuple[tuple[int, int], ...]
    """Rows and uncompressed bytes of each row group."""
    schema: pa.Schema

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(rows for rows, _ in self.groups)


def read_footers(files: Sequence[InputFile]) -> list[Footer]:
    """Return the footers of all files.

    Raises:
        SourceError: A file is not Parquet, or has another schema.
    """
    with ThreadPoolExecutor(FOOTERS_AT_ONCE) as pool:
        footers = list(pool.map(_footer, files))
    first = footers[0].schema
    for footer in footers:
        if not footer.schema.equals(first):
            what = _difference(footer.schema, first)
            where = footers[0].file.path
            raise SourceError(footer.file.path, f"has other columns than {where}: {what}")
    return footers


def _footer(file: InputFile) -> Footer:
    system, path = filesystem_of(file.path)
    try:
        with pq.ParquetFile(path, filesystem=system) as opened:
            meta = opened.metadata
            groups = [meta.row_group(i) for i in range(meta.num_row_groups)]
            schema = opened.schema_arrow.remove_metadata()
            return Footer(file, tuple((g.num_rows, g.total_byte_size) for g in groups), schema)
    except (pa.ArrowException, OSError) as error:
        raise SourceError(file.path, f"cannot be read as Parquet: {error}") from error


def _difference(one: pa.Schema, other: pa.Schema) -> str:
    fields = {str(f) for f in one} ^ {str(f) for f in other}
    return ", ".join(sorted(fields)) or "their order"


def digest_of_input(files: Iterable[InputFile]) -> str:
    """Return a digest of the files of the input, with their sizes and times."""
    hasher = hashlib.blake2b(digest_size=16)
    for file in files:
        hasher.update(f"{file.path}\0{file.size}\0{file.modified_ns}\n".encode())
    return hasher.hexdigest()


def batch_rows_of(info: TableInfo, footers: Sequence[Footer], batch_bytes: int) -> int:
    """Return how many rows make a batch of `batch_bytes`, by a sample and by the widest rows."""
    widths = [size / rows for footer in footers for rows, size in footer.groups if rows]
    width = max([1.0, _sampled_width(footers), *widths])
    return max(1, min(BATCH_ROWS_MAX, rows_max_of(info), int(batch_bytes / width)))


def _sampled_width(footers: Sequence[Footer]) -> float:
    for footer in footers:
        if footer.rows:
            system, path = filesystem_of(footer.file.path)
            try:
                with pq.ParquetFile(path, filesystem=system) as opened:
                    batch = next(opened.iter_batches(SAMPLE_ROWS))
            except (pa.ArrowException, OSError) as error:
                raise SourceError(footer.file.path, f"cannot be read: {error}") from error
            return float(batch.nbytes) / int(batch.num_rows)
    return 1.0


def unit_rows_of(info: TableInfo, batch_rows: int) -> int:
    """Return the rows of a unit: five batches per bucket, more if rows go to many buckets.

    Partitions of a table that was rescaled may have fewer buckets; batches are larger then.
    """
    spread = min(info.num_buckets, SPREAD_MAX) if info.bucket_keys else 1
    # All of them may turn out to go to one bucket.
    return min(batch_rows * spread, rows_max_of(info)) * PINNED_BATCHES_MAX


def cut(footers: Sequence[Footer], unit_rows: int) -> list[Split]:
    """Return all splits of the input, in order."""
    splits: list[Split] = []
    first_unit = 0
    for footer in footers:
        first_row = 0
        for groups, rows in _grouped(footer, unit_rows):
            units = [unit_rows] * (rows // unit_rows) + [rows % unit_rows] * (rows % unit_rows > 0)
            path = footer.file.path
            splits.append(Split(len(splits), first_unit, path, groups, first_row, tuple(units)))
            first_unit += len(units)
            first_row += rows
    return splits


def _grouped(footer: Footer, unit_rows: int) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield row groups that make a split together, with their rows; empty ones are left out."""
    held: list[int] = []
    rows = size = 0
    for number, (group_rows, group_bytes) in enumerate(footer.groups):
        if not group_rows:
            continue
        full = size + group_bytes > SPLIT_BYTES or rows + group_rows > unit_rows * SPLIT_UNITS_MAX
        if held and full:
            yield tuple(held), rows
            held, rows, size = [], 0, 0
        held.append(number)
        rows += group_rows
        size += group_bytes
    if held:
        yield tuple(held), rows
