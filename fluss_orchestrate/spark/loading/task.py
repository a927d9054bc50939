"""What a Spark task does: read a split, send its units under their pinned numbers, record it.

A split that is sent again, by a retry, a speculative copy or a later job, is known by the servers
and leaves no row twice.

Which row of which file the user knows, for a row of a Parquet file that a task reads.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import json
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from fluss_client import FlussConnection, TableInfo
from fluss_client.engine import (
    PINNED_BATCHES_MAX,
    async_connection,
    backend_of,
    runtime,
    table_info,
)
from fluss_orchestrate.core.clusters import ClusterRef
from fluss_orchestrate.core.loading.errors import LoadError
from fluss_orchestrate.core.loading.sending import partition_id_of, send_pinned
from fluss_orchestrate.core.loading.sources import SourceError
from fluss_orchestrate.core.loading.units import Placed, counts_of
from fluss_orchestrate.spark.loading.fitting import (
    SOURCE_BLOCK,
    SOURCE_FILE,
    BadRowError,
    Fitted,
    Fitter,
)
from fluss_orchestrate.spark.loading.places import filesystem_of
from fluss_orchestrate.spark.loading.splits import PinnedSplit, Split, SplitLedger, SplitResult


@dataclass(frozen=True, slots=True)
class Origin:
    """A file and a row in it, counted from 1; only the file if the row is not known."""

    file: str
    row: int | None
    after_byte: int = 0

    def __str__(self) -> str:
        if self.row is None:
            return f"a row of {self.file}"
        block = f" after byte {self.after_byte}" if self.after_byte else ""
        return f"{self.file}, row {self.row}{block}"


def origin_of(path: str, row: int) -> Origin:
    """Return where a row comes from; `row` counts from 0. Staged rows have their own file."""
    system, inner = filesystem_of(path)
    with pq.ParquetFile(inner, filesystem=system) as opened:
        names = set(opened.schema_arrow.names)
        if SOURCE_FILE not in names:
            return Origin(path, row + 1)
        known = [name for name in (SOURCE_FILE, SOURCE_BLOCK) if name in names]
        origins = opened.read(columns=known).slice(0, row + 1)
    file = origins.column(SOURCE_FILE)[row].as_py()
    if SOURCE_BLOCK not in known:
        return Origin(file, None)
    block = origins.column(SOURCE_BLOCK)[row].as_py()
    same = pc.and_(
        pc.equal(origins.column(SOURCE_FILE), file), pc.equal(origins.column(SOURCE_BLOCK), block)
    )
    return Origin(file, pc.sum(same).as_py(), block)


UNITS_AT_ONCE = 3
READ_BATCH_ROWS = 1 << 16


@dataclass(frozen=True)
class LoadTask:
    """What every task of a load must know. It is pickled, and contains no secret."""

    cluster: ClusterRef
    table: str
    table_id: int
    load_id: str
    batch_rows: int
    columns: dict[str, str] = field(default_factory=dict)
    parse_text: bool = False
    create_partitions: bool = False
    dead_letter: str | None = None
    own_columns: tuple[str, ...] | None = None
    """The columns of the table that the load has. None: all that the input has by name."""

    def run(self, pinned: PinnedSplit) -> SplitResult:
        """Write a split into the table."""
        connection = self.cluster.connection()
        info = _table_info(connection, self.table, self.table_id, self.load_id)
        result = _Sending(self, connection, info, pinned).run()
        ledger = SplitLedger(connection, info, self.load_id)
        ledger.finish_split(pinned.split.number, result)
        return result


def _table_info(connection: FlussConnection, table: str, table_id: int, load_id: str) -> TableInfo:
    info = table_info(connection, table)
    if info.table_id != table_id:
        raise LoadError(table, load_id, "the table was dropped and created again during the load")
    return info


class _Sending:
    """The sending of one split."""

    def __init__(
        self, task: LoadTask, connection: FlussConnection, info: TableInfo, pinned: PinnedSplit
    ) -> None:
        self._task = task
        self._core = async_connection(connection)
        self._info = info
        self._split = pinned.split
        self._writer_ids = pinned.writer_ids
        self._partition_ids: dict[str, int] = {}
        self._under_way: deque[concurrent.futures.Future[None]] = deque()

    def run(self) -> SplitResult:
        rows = size = rejected = 0
        fitter: Fitter | None = None
        letters: list[dict[str, object]] = []
        # The order of a key table's rows counts, so its units go one after the other.
        at_once = 1 if self._info.has_primary_key() else UNITS_AT_ONCE
        first_row = self._split.first_row
        for number, unit in enumerate(read_units(self._split)):
            if fitter is None:
                task = self._task
                fitter = Fitter(
                    self._info,
                    unit.schema,
                    task.columns,
                    task.parse_text,
                    task.own_columns,
                    counts_of(backend_of(self._core), self._info),
                )
            fitted = self._fitted(fitter, unit, number, first_row)
            letters += self._letters(unit, fitted, first_row)
            while len(self._under_way) >= at_once:
                self._under_way.popleft().result()
            writer_id = self._writer_ids[number]
            sending = self._send(fitted.placed, writer_id, fitter.target_columns)
            self._under_way.append(runtime().start(sending))
            rows += fitted.rows
            size += fitted.bytes
            rejected += len(fitted.rejected)
            first_row += unit.num_rows
        while self._under_way:
            self._under_way.popleft().result()
        if letters:
            self._write_letters(letters)
        return SplitResult(rows, size, rejected)

    def _fitted(self, fitter: Fitter, unit: pa.RecordBatch, number: int, first_row: int) -> Fitted:
        bucket = self._split.first_unit + number
        try:
            return fitter.fit(unit, bucket, reject=self._task.dead_letter is not None)
        except BadRowError as error:
            where = origin_of(self._split.path, first_row + error.at)
            raise LoadError(self._task.table, self._task.load_id, f"{where}: {error}") from error

    async def _send(
        self, placed: list[Placed], writer_id: int, target_columns: Sequence[int] | None
    ) -> None:
        names = {p.partition for p in placed if p.partition is not None}
        for name in sorted(names - self._partition_ids.keys()):
            self._partition_ids[name] = await partition_id_of(
                backend_of(self._core), self._info, name, self._task.create_partitions
            )
        outcomes = await asyncio.gather(
            *(self._send_placed(p, writer_id, target_columns) for p in placed),
            return_exceptions=True,
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _send_placed(
        self, placed: Placed, writer_id: int, target_columns: Sequence[int] | None
    ) -> None:
        info = self._info
        bucket = placed.table_bucket(info.table_id, self._partition_ids)
        least = -(-placed.rows.num_rows // PINNED_BATCHES_MAX)
        batches = placed.cut(max(self._task.batch_rows, least))
        numbers = (writer_id, placed.bucket_count)
        await send_pinned(self._core, info, bucket, batches, numbers, target_columns)

    def _letters(
        self, unit: pa.RecordBatch, fitted: Fitted, first_row: int
    ) -> list[dict[str, object]]:
        letters: list[dict[str, object]] = []
        for at, why in fitted.rejected:
            origin = origin_of(self._split.path, first_row + at)
            values = unit.slice(at, 1).drop_columns(_technical(unit)).to_pylist()[0]
            text = json.dumps(values, default=str)
            letters.append({"file": origin.file, "row": origin.row, "reason": why, "values": text})
        return letters

    def _write_letters(self, letters: list[dict[str, object]]) -> None:
        """Write one file per split, named by it: a repeated task writes the same file again."""
        assert self._task.dead_letter is not None
        system, folder = filesystem_of(self._task.dead_letter)
        try:
            # Encoded before anything is sent: a store shows what was sent until an error.
            encoded = pa.BufferOutputStream()
            pq.write_table(pa.Table.from_pylist(letters), encoded)
            if isinstance(system, fs.LocalFileSystem):
                system.create_dir(folder, recursive=True)
            path = f"{folder}/split-{self._split.number:06}.parquet"
            with system.open_output_stream(path) as out:
                out.write(encoded.getvalue())
        except (pa.ArrowException, OSError) as error:
            why = f"dead letters cannot be written to {self._task.dead_letter}: {error}"
            raise LoadError(self._task.table, self._task.load_id, why) from error


def _technical(unit: pa.RecordBatch) -> list[str]:
    return [name for name in (SOURCE_FILE, SOURCE_BLOCK) if name in unit.schema.names]


def read_units(split: Split) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a split, one batch per unit."""
    system, path = filesystem_of(split.path)
    held: list[pa.RecordBatch] = []
    held_rows = 0
    sizes = iter(split.unit_rows)
    wanted = next(sizes)
    try:
        # Checksums are looked at where the writer left some, as Spark does: damage within a page
        # need not show otherwise.
        with pq.ParquetFile(
            path, filesystem=system, pre_buffer=True, page_checksum_verification=True
        ) as opened:
            for batch in opened.iter_batches(READ_BATCH_ROWS, row_groups=list(split.row_groups)):
                held.append(batch)
                held_rows += batch.num_rows
                while held_rows >= wanted:
                    whole = pa.concat_batches(held)
                    yield whole.slice(0, wanted)
                    held, held_rows = [whole.slice(wanted)], held_rows - wanted
                    wanted = next(sizes, 1 << 62)
    except (pa.ArrowException, OSError) as error:
        raise SourceError(split.path, f"cannot be read: {error}") from error
    if held_rows or wanted != 1 << 62:
        raise SourceError(split.path, "has other rows than when the load was begun")


@functools.lru_cache(maxsize=1)
def result_schema() -> pa.Schema:
    """Return the schema of what tasks return to the driver."""
    return pa.schema(
        [
            ("split", pa.int64()),
            ("rows", pa.int64()),
            ("bytes", pa.int64()),
            ("rejected", pa.int64()),
            ("attempt", pa.int64()),
            ("error", pa.string()),
        ]
    )
