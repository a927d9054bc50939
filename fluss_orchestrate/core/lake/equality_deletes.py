"""Reading an Iceberg table whose rows were deleted by key.

An equality-delete file lists keys. It deletes the rows with these keys from the data files that
have a lower sequence number and the same partition; one without a partition deletes from all
partitions. PyIceberg does not read tables that have such files.

The keys that apply to one partition are kept in memory, at most `KEYS_MAX` at a time. If there are
more, the data files are read once for each group of keys, and one bit per row says what is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_orchestrate.core.key_sets import KeySet
from fluss_orchestrate.core.lake.data_files import conform
from fluss_orchestrate.core.lake.errors import EqualityDeleteError
from fluss_orchestrate.core.lake.file_scan import file_parts, read_file
from fluss_orchestrate.core.read_ahead import Part, read_parts_ahead

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.manifest import DataFile, ManifestEntry
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.types import IcebergType

KEYS_MAX = 4_000_000
"""How many deleted keys are kept in memory."""
GATHER_BYTES = 32 << 20
"""Rows are compared with keys that are not numbers in batches of about this size."""
AHEAD_BYTES = 64 << 20
"""Rows that were read from data files and wait to be compared."""
_PATH_FIELD_ID = 2147483546
"""The field id of `file_path` in position-delete files, fixed by Iceberg's specification."""

Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A delete file and its sequence number."""

    file: DataFile
    sequence_number: int


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A data file of a snapshot and the delete files that apply to it.

    Attributes:
        file: The data file.
        sequence_number: Its data sequence number.
        positions: Files that list deleted rows by their position.
        equalities: Files that list deleted keys.
    """

    file: DataFile
    sequence_number: int
    positions: tuple[DataFile, ...]
    equalities: tuple[DeleteFile, ...]


@dataclass(frozen=True, slots=True)
class ReplacedKeys:
    """Keys whose rows come from elsewhere, in a form that can be read more than once.

    Attributes:
        ids: The field ids of the key's columns, ascending.
        count: Returns how many keys there are. It may take its time: data files are read meanwhile.
        batches: Begins to read the keys, in the columns of `ids` and the types that Iceberg has.
    """

    ids: Ids
    count: Callable[[], int]
    batches: Callable[[], Iterator[pa.RecordBatch]]


def live_files(table: Table, snapshot_id: int | None = None) -> list[LiveFile]:
    """Return the data files of a snapshot with the delete files that apply to each.

    Args:
        table: The Iceberg table.
        snapshot_id: The snapshot; by default, the current one.
    """
    from pyiceberg.manifest import DataFileContent

    snapshot = (
        table.current_snapshot() if snapshot_id is None else table.snapshot_by_id(snapshot_id)
    )
    if snapshot is None:
        if snapshot_id is None:
            return []
        raise ValueError(f"{'.'.join(table.name())} has no snapshot {snapshot_id}")
    data: list[ManifestEntry] = []
    positions: dict[Any, list[DeleteFile]] = {}
    equalities: dict[Any, list[DeleteFile]] = {}
    for manifest in snapshot.manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            content = entry.data_file.content
            if content == DataFileContent.DATA:
                data.append(entry)
                continue
            found = positions if content == DataFileContent.POSITION_DELETES else equalities
            deletes = DeleteFile(entry.data_file, _sequence_of(entry))
            found.setdefault(scope_of(table, entry.data_file), []).append(deletes)
    files = []
    for entry in data:
        scope, at = scope_of(table, entry.data_file), _sequence_of(entry)
        by_key = equalities.get(scope, [])
        if scope is not None:
            by_key = [*by_key, *equalities.get(None, [])]
        path = entry.data_file.file_path
        files.append(
            LiveFile(
                entry.data_file,
                at,
                tuple(
                    d.file
                    for d in positions.get(scope, [])
                    if d.sequence_number >= at and _may_name(d.file, path)
                ),
                tuple(d for d in by_key if d.sequence_number > at),
            )
        )
    return files


def _sequence_of(entry: ManifestEntry) -> int:
    number = entry.sequence_number
    return 0 if number is None else int(number)


def scope_of(table: Table, file: DataFile) -> Any:
    """The partition of a file; None for a file of a spec without partitions."""
    if table.specs()[file.spec_id].is_unpartitioned():
        return None
    values = file.partition
    return (file.spec_id, *(values[at] for at in range(len(values))))


def _may_name(file: DataFile, path: str) -> bool:
    """Return whether a position-delete file may name a data file, by the bounds of its paths."""
    lower = (file.lower_bounds or {}).get(_PATH_FIELD_ID)
    upper = (file.upper_bounds or {}).get(_PATH_FIELD_ID)
    # Equal bounds name one file. An upper bound that was cut to a prefix is not equal to the lower.
    return lower is None or lower != upper or path.encode() == lower


def read_with_deletes(
    table: Table,
    columns: Sequence[str] | None = None,
    row_filter: BooleanExpression | None = None,
    *,
    snapshot_id: int | None = None,
    keys_max: int = KEYS_MAX,
) -> pa.RecordBatchReader:
    """Read the rows of an Iceberg table with all deletes applied.

    Args:
        table: The Iceberg table.
        columns: The columns to read; by default, all.
        row_filter: A filter of the rows.
        snapshot_id: The snapshot to read; by default, the current one.
        keys_max: How many deleted keys are kept in memory at the same time.

    Returns:
        The rows, one data file after the other.

    Raises:
        EqualityDeleteError: A delete file cannot be applied. It is raised before any row of the
            partition is returned.
    """
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    schema = table.schema()
    names = [f.name for f in schema.fields] if columns is None else list(columns)
    shown = [schema.find_field(name).field_id for name in names]
    target = schema_to_pyarrow(_schema_of(schema, shown), include_field_ids=False)
    files = live_files(table, snapshot_id)
    batches = read_live(table, files, names, row_filter, keys_max=keys_max)
    return pa.RecordBatchReader.from_batches(target, (conform(b, target) for b in batches))


def read_live(
    table: Table,
    files: Sequence[LiveFile],
    columns: Sequence[str],
    row_filter: BooleanExpression | None = None,
    *,
    replaced: ReplacedKeys | None = None,
    keys_max: int = KEYS_MAX,
) -> Iterator[pa.RecordBatch]:
    """Read the rows of some data files with the deletes of each applied.

    Texts may come as references into a dictionary; `conform` gives them another type.

    Args:
        table: The Iceberg table.
        files: The data files.
        columns: The columns to read.
        row_filter: A filter of the rows.
        replaced: Keys whose rows are left out, whatever file has them.
        keys_max: How many deleted and replaced keys are kept in memory at the same time.

    Raises:
        EqualityDeleteError: A file cannot be read, or its deletes cannot be applied. It is raised
            before any row is returned.
    """
    from pyiceberg.expressions import AlwaysTrue

    schema = table.schema()
    names = list(columns)
    shown = [schema.find_field(name).field_id for name in names]
    check_readable(table, files)
    wanted = AlwaysTrue() if row_filter is None else row_filter
    read = _Read(table, shown, wanted, keys_max, replaced)
    groups = _groups(table, files)
    return (batch.select(names) for group in groups for batch in read.rows(group))


def _schema_of(schema: Schema, ids: Iterable[int]) -> Schema:
    from pyiceberg.schema import Schema as IcebergSchema

    return IcebergSchema(*(schema.find_field(i) for i in ids))


def _groups(table: Table, files: Iterable[LiveFile]) -> list[list[LiveFile]]:
    """Return groups of data files that share delete files."""
    groups: dict[Any, list[LiveFile]] = {}
    for file in files:
        groups.setdefault(scope_of(table, file.file), []).append(file)
    return list(groups.values())


def check_readable(table: Table, files: Iterable[LiveFile]) -> None:
    """Raise `EqualityDeleteError` if a file cannot be read, or its deletes cannot be applied."""
    from pyiceberg.manifest import FileFormat

    top = {f.field_id: f.field_type for f in table.schema().fields}
    for live in files:
        used = [live.file, *live.positions, *(d.file for d in live.equalities)]
        for file in used:
            if file.file_format != FileFormat.PARQUET:
                raise EqualityDeleteError(
                    file.file_path, f"{file.file_format} files are not read here, only Parquet"
                )
        for deletes in live.equalities:
            ids = deletes.file.equality_ids
            if not ids:
                raise EqualityDeleteError(deletes.file.file_path, "it names no columns to compare")
            for number in ids:
                if number not in top:
                    raise EqualityDeleteError(
                        deletes.file.file_path,
                        f"it compares the column with field id {number}, which was dropped",
                    )
                if not has_exact_equality(top[number]):
                    raise EqualityDeleteError(
                        deletes.file.file_path,
                        f"it compares a column of type {top[number]}, which has no exact equality",
                    )


def has_exact_equality(kind: IcebergType) -> bool:
    """Return whether values of a type can be compared as keys: not floating-point, not nested."""
    from pyiceberg.types import DoubleType, FloatType, PrimitiveType

    return isinstance(kind, PrimitiveType) and not isinstance(kind, (FloatType, DoubleType))


_EVERYWHERE = np.iinfo(np.int64).max
"""The sequence number of replaced keys: above that of every file."""


class _Read:
    """A read of some columns of a table."""

    def __init__(
        self,
        table: Table,
        shown: Sequence[int],
        row_filter: BooleanExpression,
        keys_max: int,
        replaced: ReplacedKeys | None,
    ) -> None:
        self._table = table
        self._shown = list(shown)
        self._filter = row_filter
        self._keys_max = keys_max
        self._replaced = replaced

    def rows(self, group: Sequence[LiveFile]) -> Iterator[pa.RecordBatch]:
        """Return the rows of data files that share delete files."""
        by_ids: dict[Ids, dict[str, DeleteFile]] = {}
        for live in group:
            for deletes in live.equalities:
                ids = tuple(sorted(deletes.file.equality_ids or ()))
                by_ids.setdefault(ids, {})[deletes.file.file_path] = deletes
        keys = {i for ids in by_ids for i in ids}
        replaced = self._replaced
        keys.update(() if replaced is None else replaced.ids)
        # The columns of all keys, although some may be of deletes that do not apply to a file.
        wanted = tuple(dict.fromkeys([*self._shown, *sorted(keys)]))
        with self._ahead(group, wanted, set(self._shown) - keys) as stored:
            count = sum(d.file.record_count for found in by_ids.values() for d in found.values())
            if replaced is not None and (more := replaced.count()):
                count += more
                by_ids.setdefault(replaced.ids, {})
            chunks = self._chunks(by_ids)
            if count <= self._keys_max:
                yield from self._filtered(stored, list(chunks))
                return
        yield from self._marked(group, chunks)

    def _chunks(self, by_ids: dict[Ids, dict[str, DeleteFile]]) -> Iterator[tuple[Ids, KeySet]]:
        """Yield the deleted keys, at most `keys_max` (and the rest of one batch) at a time."""
        for ids, found in by_ids.items():
            held: list[pa.RecordBatch] = []
            sequences: list[npt.NDArray[np.int64]] = []
            rows = 0
            for batch, sequence_number in self._keys(ids, found.values()):
                held.append(batch)
                sequences.append(np.full(batch.num_rows, sequence_number, np.int64))
                rows += batch.num_rows
                if rows >= self._keys_max:
                    yield ids, _key_set(held, sequences)
                    held, sequences, rows = [], [], 0
            if held:
                yield ids, _key_set(held, sequences)

    def _keys(self, ids: Ids, found: Iterable[DeleteFile]) -> Iterator[tuple[pa.RecordBatch, int]]:
        """The keys of these columns that are deleted or replaced, with their sequence numbers."""
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.table import FileScanTask

        projected = _schema_of(self._table.schema(), ids)
        for deletes in found:
            task: FileScanTask = FileScanTask(deletes.file)
            for batch in _large(read_file(self._table, projected, AlwaysTrue(), task)):
                yield batch, deletes.sequence_number
        if self._replaced is not None and self._replaced.ids == ids:
            for batch in self._replaced.batches():
                if batch.num_rows:
                    yield batch, _EVERYWHERE

    def _filtered(
        self, stored: Iterable[_Stored], sets: Sequence[tuple[Ids, KeySet]]
    ) -> Iterator[pa.RecordBatch]:
        for live, found in groupby(stored, lambda one: one.live):
            used = [s for s in sets if self._applies(live, s[0])]
            batches = (one.batch for one in found)
            for batch in batches if all(keys.is_quick for _, keys in used) else _large(batches):
                keep = np.ones(batch.num_rows, np.bool_)
                for ids, keys in used:
                    keep &= ~keys.holds(self._columns(batch, ids), live.sequence_number)
                yield batch if keep.all() else batch.filter(pa.array(keep))

    def _marked(
        self, group: Sequence[LiveFile], chunks: Iterable[tuple[Ids, KeySet]]
    ) -> Iterator[pa.RecordBatch]:
        """Return the rows when the keys are too many: first, one bit per row says what is gone."""
        gone: dict[str, npt.NDArray[np.uint8]] = {}
        for ids, keys in chunks:
            files = [live for live in group if self._applies(live, ids)]
            with self._ahead(files, ids) as stored:
                for live, found in groupby(stored, lambda one: one.live):
                    batches = (one.batch for one in found)
                    held = [
                        keys.holds(self._columns(batch, ids), live.sequence_number)
                        for batch in (batches if keys.is_quick else _large(batches))
                    ]
                    bits = np.packbits(np.concatenate(held))
                    path = live.file.file_path
                    gone[path] = bits if path not in gone else gone[path] | bits
        # The same files are read with the same filter, so the rows come in the same order.
        shown = tuple(self._shown)
        with self._ahead(group, shown, shown) as stored:
            for live, found in groupby(stored, lambda one: one.live):
                marks = gone.get(live.file.file_path)
                deleted = None if marks is None else np.unpackbits(marks).astype(np.bool_)
                at = 0
                for batch in (one.batch for one in found):
                    count = batch.num_rows
                    if deleted is None:
                        yield batch
                    else:
                        yield batch.filter(pa.array(~deleted[at : at + count]))
                    at += count

    def _ahead(
        self, files: Sequence[LiveFile], ids: Ids, encoded: Collection[int] = ()
    ) -> AbstractContextManager[Iterator[_Stored]]:
        """Read these columns of data files, several parts of them at the same time."""
        from pyiceberg.table import FileScanTask

        projected = _schema_of(self._table.schema(), ids)

        def rows(live: LiveFile, part: Part[pa.RecordBatch]) -> Generator[_Stored, None, None]:
            with closing(part()) as batches:
                for batch in batches:
                    yield _Stored(live, batch)

        def parts() -> Iterator[Part[_Stored]]:
            for live in files:
                task: FileScanTask = FileScanTask(live.file, set(live.positions))
                for part in file_parts(self._table, projected, self._filter, task, encoded):
                    yield partial(rows, live, part)

        return read_parts_ahead(parts(), lambda one: one.batch.nbytes, AHEAD_BYTES)

    def _applies(self, live: LiveFile, ids: Ids) -> bool:
        if self._replaced is not None and self._replaced.ids == ids:
            return True
        return any(tuple(sorted(d.file.equality_ids or ())) == ids for d in live.equalities)

    def _columns(self, batch: pa.RecordBatch, ids: Ids) -> list[pa.Array]:
        schema = self._table.schema()
        return [batch.column(schema.find_field(i).name) for i in ids]


@dataclass(frozen=True, slots=True)
class _Stored:
    """Rows of a data file."""

    live: LiveFile
    batch: pa.RecordBatch


def _large(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Put batches together up to `GATHER_BYTES`."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= GATHER_BYTES:
            yield pa.concat_batches(held)
            held, size = [], 0
    if held:
        yield pa.concat_batches(held)


def _key_set(held: Sequence[pa.RecordBatch], sequences: Sequence[npt.NDArray[np.int64]]) -> KeySet:
    return KeySet(pa.Table.from_batches(held).columns, np.concatenate(list(sequences)))
