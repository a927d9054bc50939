"""Replacing rows of an Iceberg table by their key, in one snapshot.

`RowDeltaWriter` and `commit_row_delta` write a row delta: data files with the new rows, and
equality-delete files with the keys whose earlier rows are deleted. It is cheap to write. Readers
must apply the deletes: Spark, Flink, Trino and `read_with_deletes` do, PyIceberg does not.

`sinks/copy_on_write.py` writes every data file again that has a row with one of the keys. It costs
more, and every reader can read the result.

A delete applies to data files of earlier snapshots only. So one delta has at most one row per key:
the last one.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fluss_client.errors import MissingExtraError, RowError
from fluss_orchestrate.core.key_sets import is_whole_number, whole_numbers
from fluss_orchestrate.core.lake.commits import commit_once, without_retries
from fluss_orchestrate.core.lake.data_files import (
    DataFileWriter,
    PartitionedWriter,
)
from fluss_orchestrate.core.lake.equality_deletes import has_exact_equality
from fluss_orchestrate.core.lake.errors import RowDeltaError

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.partitioning import PartitionKey
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.update.snapshot import _FastAppendFiles

log = logging.getLogger(__name__)
FORMAT_VERSION = 2
_EQUALITY_IDS, _EQUALITY_ID = 135, 136
_DATA_FILE = 2


@dataclass(frozen=True)
class RowDelta:
    """The files of a row delta, not committed yet.

    Attributes:
        data: Data files with the new rows.
        deletes: Equality-delete files.
        rows: How many new rows there are.
        deleted_keys: How many keys are deleted.
    """

    data: Sequence[DataFile]
    deletes: Sequence[DataFile]
    rows: int = 0
    deleted_keys: int = 0

    @property
    def paths(self) -> list[str]:
        """The paths of all files."""
        return [str(file.file_path) for file in (*self.data, *self.deletes)]


def key_field_ids(table: Table, keys: Sequence[str]) -> list[int]:
    """Return the field ids of a key by which rows of the table can be replaced.

    Args:
        table: The Iceberg table.
        keys: The names of the key's columns.

    Raises:
        RowDeltaError: The table's format version is not 2; a key column does not exist or has a
            type without exact equality; or the partitioning does not derive from the key, or was
            changed, so that deletes would not find the rows.
    """
    name = ".".join(table.name())
    if table.metadata.format_version != FORMAT_VERSION:
        raise RowDeltaError(
            name,
            f"its format version is {table.metadata.format_version}; rows are deleted by key in "
            f"version {FORMAT_VERSION} only: create it with format-version={FORMAT_VERSION}",
        )
    if not keys:
        raise RowDeltaError(name, "a key needs at least one column")
    fields = {f.name: f for f in table.schema().fields}
    for key in keys:
        if key not in fields:
            raise RowDeltaError(name, f"it has no column '{key}', which belongs to the key")
        if not has_exact_equality(fields[key].field_type):
            raise RowDeltaError(
                name,
                f"column '{key}' of the key has type {fields[key].field_type}, which has no exact "
                "equality: take a key without it",
            )
    ids = [fields[key].field_id for key in keys]
    spec = table.spec()
    outside = [f.name for f in spec.fields if f.source_id not in ids]
    if outside:
        raise RowDeltaError(
            name,
            f"it is partitioned by {outside}, which does not derive from the key {list(keys)}: a "
            "row that changes its partition would stay in the old one. Partition it by columns of "
            "the key, or use copy-on-write",
        )
    if len(table.specs()) > 1 and not spec.is_unpartitioned():
        raise RowDeltaError(
            name,
            "its partitioning was changed, and a delete finds rows of its own partitioning only: "
            "rewrite it into a new table, or use copy-on-write",
        )
    return sorted(ids)


class EqualityDeleteWriter(DataFileWriter):
    """One equality-delete file with the columns of a key."""

    def __init__(
        self, table: Table, partition: PartitionKey | None, label: str, schema: Schema
    ) -> None:
        super().__init__(table, partition, f"{label}-deletes", schema)
        self._ids = [f.field_id for f in schema.fields]

    def _flush(self) -> None:
        if self._held and len(self._stored.names) == 1:
            self._held = [_sorted(self._held)]
        super()._flush()

    def close(self) -> DataFile:
        """Finish the file."""
        from pyiceberg.manifest import DataFile, DataFileContent

        made = super().close()
        return DataFile.from_args(
            content=DataFileContent.EQUALITY_DELETES,
            file_path=made.file_path,
            file_format=made.file_format,
            partition=made.partition,
            record_count=made.record_count,
            file_size_in_bytes=made.file_size_in_bytes,
            column_sizes=made.column_sizes,
            value_counts=made.value_counts,
            null_value_counts=made.null_value_counts,
            nan_value_counts=made.nan_value_counts,
            lower_bounds=made.lower_bounds,
            upper_bounds=made.upper_bounds,
            split_offsets=made.split_offsets,
            key_metadata=None,
            sort_order_id=None,
            spec_id=self._table.metadata.default_spec_id,
            equality_ids=self._ids,
        )


def _sorted(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the keys of one column in their order, if they are numbers, dates or times.

    Sorted numbers take a third of the space and half of the time to write. Keys have no nulls.
    """
    schema = batches[0].schema
    kind = schema.field(0).type
    if not is_whole_number(kind):
        return pa.concat_batches(batches)
    numbers = np.concatenate([whole_numbers(batch.column(0)) for batch in batches])
    numbers.sort()
    stored = numbers.astype(f"i{kind.bit_width // 8}")
    column = pa.Array.from_buffers(kind, len(stored), [None, pa.py_buffer(stored)])
    return pa.RecordBatch.from_arrays([column], schema=schema)


class _PartitionedDeletes(PartitionedWriter):
    """Writes keys into one equality-delete file per partition of a table."""

    def __init__(self, table: Table, label: str, ids: Sequence[int]) -> None:
        from pyiceberg.schema import Schema

        super().__init__(table, label)
        self._schema = Schema(*(table.schema().find_field(i) for i in ids))

    def _new_file(self, partition: PartitionKey | None) -> DataFileWriter:
        return EqualityDeleteWriter(self._table, partition, self._label, self._schema)


class RowDeltaWriter:
    """Writes the files of a row delta. Memory is bounded by the row groups of the open files."""

    def __init__(self, table: Table, keys: Sequence[str], label: str) -> None:
        """Begin a delta; no file is made before the first row.

        Args:
            table: The Iceberg table, as it is when the delta is committed.
            keys: The names of the key's columns.
            label: The beginning of the names of the files.

        Raises:
            RowDeltaError: Rows of the table cannot be replaced by this key.
        """
        self._table = table
        self._keys = list(keys)
        self._data = PartitionedWriter(table, label)
        self._deletes = _PartitionedDeletes(table, label, key_field_ids(table, keys))

    def insert(self, rows: pa.RecordBatch) -> None:
        """Add rows whose keys are certainly not in the table."""
        self._checked(rows)
        self._data.write(rows)

    def upsert(self, rows: pa.RecordBatch) -> None:
        """Add rows that replace those of the same keys; a key occurs once in a delta."""
        self._deletes.write(self._checked(rows))
        self._data.write(rows)

    def delete(self, rows: pa.RecordBatch) -> None:
        """Delete the rows of these keys; columns outside the key are ignored."""
        self._deletes.write(self._checked(rows))

    def _checked(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        keys = rows.select(self._keys)
        for name, column in zip(self._keys, keys.columns, strict=True):
            if column.null_count:
                raise RowError(f"column '{name}' of the key has null values")
        return keys

    def close(self) -> RowDelta:
        """Finish all files."""
        return RowDelta(
            self._data.close(), self._deletes.close(), self._data.rows, self._deletes.rows
        )

    def abort(self) -> None:
        """Delete all files."""
        self._data.abort()
        self._deletes.abort()


def row_delta_classes() -> tuple[type[Any], type[Any]]:
    """PyIceberg's classes with what they lack: manifests of delete files."""
    try:
        from pyiceberg.manifest import (
            ManifestContent,
            ManifestEntry,
            ManifestEntryStatus,
            ManifestWriterV2,
        )
        from pyiceberg.schema import Schema
        from pyiceberg.table.update.snapshot import _FastAppendFiles
        from pyiceberg.types import IntegerType, ListType, NestedField, StructType
    except ImportError:
        raise MissingExtraError("pyiceberg", "lake") from None

    def mended(field: NestedField) -> NestedField:
        # PyIceberg 0.12 declares equality ids as longs. The specification says ints, and Iceberg's
        # Java library fails on longs ("Long cannot be cast to Integer") at every read.
        kind: Any = field.field_type
        if field.field_id == _EQUALITY_IDS:
            kind = ListType(_EQUALITY_ID, IntegerType(), element_required=True)
        elif field.field_id == _DATA_FILE and isinstance(kind, StructType):
            kind = StructType(*map(mended, kind.fields))
        return NestedField(field.field_id, field.name, kind, required=field.required, doc=field.doc)

    class DeletesManifestWriter(ManifestWriterV2):
        def content(self) -> ManifestContent:
            return ManifestContent.DELETES

        @property
        def _meta(self) -> dict[str, str]:
            return {**super()._meta, "content": "deletes"}

        def _with_partition(self, format_version: Any) -> Schema:
            return Schema(*map(mended, super()._with_partition(format_version).fields))

    class RowDeltaFiles(_FastAppendFiles):
        delta_deletes: Sequence[DataFile] = ()

        def _manifests(self) -> list[Any]:
            found = super()._manifests()
            if not self.delta_deletes:
                return found
            metadata = self._transaction.table_metadata
            writer = DeletesManifestWriter(
                metadata.spec(),
                metadata.schema(),
                self.new_manifest_output(),
                self._snapshot_id,
                self._compression,
            )
            with writer:
                for file in self.delta_deletes:
                    writer.add(
                        ManifestEntry.from_args(
                            status=ManifestEntryStatus.ADDED,
                            snapshot_id=self._snapshot_id,
                            sequence_number=None,
                            file_sequence_number=None,
                            data_file=file,
                        )
                    )
            return [writer.to_manifest_file(), *found]

        def _summary(self, snapshot_properties: Any = None) -> Any:
            # The counts of added deletes come from the same list as those of added rows.
            data = self._added_data_files
            self._added_data_files = [*data, *self.delta_deletes]
            try:
                return super()._summary(dict(snapshot_properties or {}))
            finally:
                self._added_data_files = data

    return RowDeltaFiles, DeletesManifestWriter


def commit_row_delta(
    table: Table,
    delta: RowDelta,
    snapshot_properties: Mapping[str, str],
    table_properties: Mapping[str, str] | None = None,
) -> int:
    """Commit a row delta against the snapshot that `table` was loaded with, once.

    Args:
        table: The table.
        delta: The files. They stay where they are if the commit fails.
        snapshot_properties: Properties of the new snapshot.
        table_properties: Properties of the table that change in the same commit.

    Returns:
        The id of the new snapshot.

    Raises:
        CommitConflictError: Another commit came first; nothing of this one is in the table.
    """
    from pyiceberg.table.snapshots import Operation

    base = without_retries(table)
    transaction = base.transaction()
    if table_properties:
        transaction.set_properties(dict(table_properties))
    operation = Operation.APPEND
    if delta.deletes:
        operation = Operation.OVERWRITE if delta.data else Operation.DELETE
    made: _FastAppendFiles = row_delta_classes()[0](
        operation=operation,
        transaction=transaction,
        io=base.io,
        snapshot_properties=dict(snapshot_properties),
    )
    made.delta_deletes = list(delta.deletes)  # type: ignore[attr-defined]
    for file in delta.data:
        made.append_data_file(file)
    made.commit()
    commit_once(table, transaction)
    return made.snapshot_id
