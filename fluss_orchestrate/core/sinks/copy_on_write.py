"""Copy-on-write of an Iceberg table: data files are written again without some of their rows.

It costs more than equality deletes, and every reader can read the result.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING

import numpy as np
import pyarrow as pa

from fluss_client.errors import StorageError
from fluss_orchestrate.core.key_sets import Bools, KeySet
from fluss_orchestrate.core.lake.data_files import PartitionedWriter, conform
from fluss_orchestrate.core.lake.equality_deletes import KEYS_MAX, live_files
from fluss_orchestrate.core.lake.errors import RowDeltaError
from fluss_orchestrate.core.lake.file_scan import read_file
from fluss_orchestrate.core.lake.row_delta import RowDelta

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

Matcher = tuple[list[str], KeySet]
"""The names of columns, and the values of them whose rows are left out."""


class TouchedKeys:
    """Keys whose rows are left out, in a temporary file that is deleted when it is closed.

    At most `keys_max` keys are in memory. If there are more, data files are read once for each
    group of that many keys.
    """

    def __init__(self, columns: pa.Schema, keys_max: int = KEYS_MAX) -> None:
        self._columns = columns
        self._keys_max = keys_max
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="fluss-keys-")  # noqa: SIM115
        self._writer = pa.ipc.new_stream(self._file, columns)
        self._sets: list[KeySet] | None = None
        self.names: list[str] = columns.names
        """The names of the key's columns."""
        self.count = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Add the keys of some rows.

        Raises:
            StorageError: The keys do not fit on the disk.
        """
        if not rows.num_rows:
            return
        self.count += rows.num_rows
        try:
            self._writer.write_batch(conform(rows, self._columns))
        except OSError as error:
            raise StorageError(
                f"cannot write {rows.num_rows} keys: {error}. Set TMPDIR to a folder with more "
                "room, or take fewer changes at once"
            ) from error

    def end(self) -> None:
        """Say that all keys were added."""
        self._writer.close()

    def sets(self) -> Iterator[KeySet]:
        """Return the keys in groups; can be called again and again."""
        if self._sets is not None:
            yield from self._sets
            return
        if self.count <= self._keys_max:
            self._sets = list(self._groups())
            yield from self._sets
            return
        yield from self._groups()

    def _groups(self) -> Iterator[KeySet]:
        self._file.seek(0)
        held: list[pa.RecordBatch] = []
        rows = 0
        for batch in pa.ipc.open_stream(self._file):
            held.append(batch)
            rows += batch.num_rows
            if rows >= self._keys_max:
                yield key_set(pa.Table.from_batches(held))
                held, rows = [], 0
        if held:
            yield key_set(pa.Table.from_batches(held))

    def close(self) -> None:
        """Delete the file."""
        self._file.close()


def key_set(keys: pa.Table) -> KeySet:
    """Return the set of some keys."""
    return KeySet(keys.columns, np.zeros(keys.num_rows, np.int64))


class CopyWriter:
    """Writes the rows of a plan as data files, and remembers the keys that it touches."""

    def __init__(self, table: Table, keys: Sequence[str], label: str) -> None:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        kinds = schema_to_pyarrow(table.schema(), include_field_ids=False)
        self._data = PartitionedWriter(table, label)
        self.touched = TouchedKeys(pa.schema([kinds.field(key) for key in keys]))

    def insert(self, rows: pa.RecordBatch) -> None:
        """Add rows whose keys are certainly not in the table."""
        self._data.write(rows)

    def upsert(self, rows: pa.RecordBatch) -> None:
        """Add rows that replace those of the same keys."""
        self.touched.add(rows)
        self._data.write(rows)

    def delete(self, rows: pa.RecordBatch) -> None:
        """Delete the rows of these keys."""
        self.touched.add(rows)

    def close(self) -> RowDelta:
        """Finish all files; there are no delete files."""
        self.touched.end()
        return RowDelta(self._data.close(), (), self._data.rows, self.touched.count)

    def abort(self) -> None:
        """Delete all files."""
        self.touched.close()
        self._data.abort()


def rewrite_without(
    table: Table,
    touched: TouchedKeys,
    dropped: pa.Table | None,
    label: str,
) -> tuple[list[DataFile], list[str]]:
    """Write the data files again that have a row with one of the keys or of a dropped partition.

    Args:
        table: The table.
        touched: The keys whose rows are left out.
        dropped: Values of some columns whose rows are left out.
        label: The beginning of the names of the files.

    Returns:
        The new data files, and the paths of the files that they replace.

    Raises:
        RowDeltaError: The table has delete files.
    """
    partitions = None if dropped is None else (dropped.column_names, key_set(dropped))

    def matchers() -> Iterator[Matcher]:
        for keys in touched.sets():
            yield touched.names, keys
        if partitions is not None:
            yield partitions

    removed: list[str] = []
    writer = PartitionedWriter(table, label)
    try:
        for live in live_files(table):
            if live.positions or live.equalities:
                raise RowDeltaError(
                    ".".join(table.name()),
                    "it has delete files, which copy-on-write would have to keep: compact it "
                    "first, use write_mode='equality', or `reset` the checkpoint to start",
                )
            gone = _matching(table, live.file, matchers())
            if gone is None or not gone.any():
                continue
            removed.append(live.file.file_path)
            at = 0
            for batch in _stream(table, live.file, table.schema()):
                keep = ~gone[at : at + batch.num_rows]
                at += batch.num_rows
                if keep.any():
                    writer.write(batch.filter(pa.array(keep)))
        return writer.close(), removed
    except BaseException:
        writer.abort()
        raise


def _matching(table: Table, file: DataFile, matchers: Iterator[Matcher]) -> Bools | None:
    """Which rows of a file have one of the values; None if there are no values."""
    gone: Bools | None = None
    for names, keys in matchers:
        only = table.schema().select(*names)
        parts = [
            keys.holds([batch.column(name) for name in names])
            for batch in _stream(table, file, only)
        ]
        found = np.concatenate([np.zeros(0, np.bool_), *parts])
        gone = found if gone is None else gone | found
    return gone


def _stream(table: Table, file: DataFile, columns: Schema) -> Iterator[pa.RecordBatch]:
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.table import FileScanTask

    # One file after the other and always in the same order: the two passes must agree.
    task: FileScanTask = FileScanTask(file)
    return read_file(table, columns, AlwaysTrue(), task)
