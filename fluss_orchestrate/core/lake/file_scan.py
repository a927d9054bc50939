"""Reading the data files of an Iceberg table with every null in its place.

pyiceberg's reader returns an empty list for a null list of rows, and an empty map for a null map
whose values are rows. So tables with such columns are read here: each data file by itself, columns
found by their field ids, without the rows that a delete file names. Other tables are read by
pyiceberg.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fluss_client.errors import UnsupportedError
from fluss_orchestrate.core.lake.data_files import conform
from fluss_orchestrate.core.read_ahead import Part

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.io import FileIO
    from pyiceberg.schema import Schema
    from pyiceberg.table import DataScan, FileScanTask, Table
    from pyiceberg.types import IcebergType, NestedField

_FIELD_ID = b"PARQUET:field_id"
PART_BYTES = 16 << 20
"""Row groups are read together up to about so many encoded bytes."""
SMALL_FILE_BYTES = 4 << 20
"""A file of this size is one part; its footer is not read before its turn comes."""
PLAIN_BYTES_MIN = 4
"""A text that is stored as it is takes its length and its bytes."""


def read_tasks(
    table: Table, projected: Schema, row_filter: BooleanExpression, tasks: Sequence[FileScanTask]
) -> Iterator[pa.RecordBatch]:
    """Return the rows of some data files of a table, in the columns of `projected`.

    Raises:
        UnsupportedError: A column holds lists or maps of rows, and a file is not Parquet, or its
            deleted rows are listed in a way that cannot be read here.
    """
    from pyiceberg.io.pyarrow import ArrowScan

    if not any(_loses_nulls(field.field_type) for field in projected.fields):
        arrow = ArrowScan(table.metadata, table.io, projected, row_filter)
        yield from arrow.to_record_batches(tasks)
        return
    for task in tasks:
        yield from _FileRead(table, projected, row_filter, task).batches()


def read_scan(scan: DataScan, table: Table, limit: int | None = None) -> pa.RecordBatchReader:
    """Return the rows of a scan of a table; at most `limit` of them."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    projected = scan.projection()
    schema = schema_to_pyarrow(projected, include_field_ids=False)

    def batches() -> Iterator[pa.RecordBatch]:
        left = limit
        for task in scan.plan_files():
            for batch in read_tasks(table, projected, scan.row_filter, [task]):
                part = batch if left is None else batch.slice(0, left)
                yield conform(part, schema)
                if left is not None:
                    left -= part.num_rows
                    if left <= 0:
                        return

    return pa.RecordBatchReader.from_batches(schema, batches())


def read_file(
    table: Table, projected: Schema, row_filter: BooleanExpression, task: FileScanTask
) -> Iterator[pa.RecordBatch]:
    """Stream the rows of one Parquet file of a table, always in the same order.

    Raises:
        UnsupportedError: The file has no Iceberg field ids, or its deleted rows are listed in a
            way that cannot be read here.
    """
    yield from _FileRead(table, projected, row_filter, task).batches()


def file_parts(
    table: Table,
    projected: Schema,
    row_filter: BooleanExpression,
    task: FileScanTask,
    encoded: Collection[int] = (),
) -> Iterator[Part[pa.RecordBatch]]:
    """Return parts of one Parquet file of a table; several may be read at the same time.

    The rows of all parts, one after the other, are those of `read_file` in the same order. Of the
    fields in `encoded`, those that the file stores as references into a dictionary may come so,
    because rows are chosen faster then. `conform` makes them what they are elsewhere.

    Raises:
        UnsupportedError: As `read_file` does.
    """
    return _FileRead(table, projected, row_filter, task).parts(encoded)


def _loses_nulls(kind: IcebergType) -> bool:
    """Return whether pyiceberg's reader would make a null in such a column an empty value."""
    from pyiceberg.types import ListType, MapType, StructType

    if isinstance(kind, StructType):
        return any(_loses_nulls(field.field_type) for field in kind.fields)
    if isinstance(kind, ListType):
        return isinstance(kind.element_type, StructType) or _loses_nulls(kind.element_type)
    if isinstance(kind, MapType):
        return isinstance(kind.value_type, StructType) or _loses_nulls(kind.value_type)
    return False


class _FileRead:
    """One data file of a scan."""

    def __init__(
        self, table: Table, projected: Schema, row_filter: BooleanExpression, task: FileScanTask
    ) -> None:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.expressions.visitors import bind, extract_field_ids
        from pyiceberg.io.pyarrow import expression_to_pyarrow, schema_to_pyarrow

        self._table = table
        self._task = task
        bound = bind(table.schema(), row_filter, case_sensitive=True)
        extra = extract_field_ids(bound) - {f.field_id for f in projected.fields}
        self._fields = [*projected.fields, *(table.schema().find_field(i) for i in sorted(extra))]
        takes_all = isinstance(bound, AlwaysTrue)
        self._filter = None if takes_all else expression_to_pyarrow(bound, table.schema())
        self._target = schema_to_pyarrow(projected, include_field_ids=False)

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Read the whole file."""
        self._check()
        gone = _deleted_rows(self._table.io, self._task)
        with self._table.io.new_input(self._task.file.file_path).open() as file:
            opened = pq.ParquetFile(file, pre_buffer=True)
            yield from self._rows(opened, range(opened.num_row_groups), 0, gone)

    def parts(self, encoded: Collection[int] = ()) -> Iterator[Part[pa.RecordBatch]]:
        """Return what reads the row groups of the file."""
        if self._task.file.file_size_in_bytes <= SMALL_FILE_BYTES:
            yield self.batches
            return
        self._check()
        gone = _deleted_rows(self._table.io, self._task)
        with self._table.io.new_input(self._task.file.file_path).open() as file:
            footer = pq.ParquetFile(file).metadata
        names = [] if self._filter is not None else self._with_dictionary(footer, encoded)
        first = size = at = rows = 0
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            size += group.total_byte_size
            rows += group.num_rows
            if size >= PART_BYTES or number + 1 == footer.num_row_groups:
                yield partial(self._part, footer, names, range(first, number + 1), at, gone)
                first, size, at = number + 1, 0, rows

    def _with_dictionary(self, footer: pq.FileMetaData, encoded: Collection[int]) -> list[str]:
        """Return the columns whose texts are references into a dictionary, in all row groups."""
        from pyiceberg.types import StringType

        found = _by_id(footer.schema.to_arrow_schema())
        texts = {
            found[f.field_id].name
            for f in self._fields
            if f.field_id in encoded
            and f.field_id in found
            and isinstance(f.field_type, StringType)
        }
        places = [p for p in range(footer.num_columns) if footer.schema.column(p).path in texts]
        return [
            footer.schema.column(place).path
            for place in places
            if all(
                _is_dictionary(footer.row_group(number).column(place))
                for number in range(footer.num_row_groups)
            )
        ]

    def _part(
        self,
        footer: pq.FileMetaData,
        with_dictionary: list[str],
        groups: range,
        at: int,
        gone: np.ndarray,
    ) -> Generator[pa.RecordBatch, None, None]:
        with self._table.io.new_input(self._task.file.file_path).open() as file:
            opened = pq.ParquetFile(
                file, metadata=footer, pre_buffer=True, read_dictionary=with_dictionary
            )
            yield from self._rows(opened, groups, at, gone)

    def _rows(
        self, opened: pq.ParquetFile, groups: range, at: int, gone: np.ndarray
    ) -> Iterator[pa.RecordBatch]:
        """Return the rows of some row groups, the first of which is number `at` of the file."""
        found = _by_id(opened.schema_arrow)
        names = [found[f.field_id].name for f in self._fields if f.field_id in found]
        dictionaries = {
            f.name: found[f.field_id].type
            for f in self._fields
            if f.field_id in found and pa.types.is_dictionary(found[f.field_id].type)
        }
        target = pa.schema([f.with_type(dictionaries.get(f.name, f.type)) for f in self._target])
        for group in groups:
            # What is buffered stays in memory until the iteration ends: one group at a time.
            # More threads than that of the caller would only take turns with it.
            stored = opened.iter_batches(row_groups=[group], columns=names, use_threads=False)
            for batch in stored:
                rows = batch
                if len(gone):
                    places = np.arange(at, at + batch.num_rows)
                    rows = batch.filter(pa.array(~np.isin(places, gone)))
                at += batch.num_rows
                for part in self._chosen(self._projected(rows, found)):
                    yield conform(part, target)

    def _chosen(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Return the rows that the filter lets through."""
        shown = [rows]
        if self._filter is not None:
            shown = pa.Table.from_batches([rows]).filter(self._filter).to_batches()
        return (part for part in shown if part.num_rows)

    def _check(self) -> None:
        from pyiceberg.manifest import FileFormat

        if self._task.file.file_format != FileFormat.PARQUET:
            raise UnsupportedError(
                f"{self._task.file.file_path} is not Parquet, and a column of "
                f"{'.'.join(self._table.name())} holds lists or maps of rows, whose nulls can be "
                "read from Parquet only; read without such columns"
            )

    def _projected(self, batch: pa.RecordBatch, found: Mapping[int, pa.Field]) -> pa.RecordBatch:
        columns = []
        for field in self._fields:
            if field.field_id in found:
                present = found[field.field_id]
                column = _project(batch.column(present.name), present.type, field.field_type)
            else:
                column = self._constant(field, batch.num_rows)
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, names=[f.name for f in self._fields])

    def _constant(self, field: NestedField, count: int) -> pa.Array:
        """Return a column that the file lacks: a value of its partition, a default, or null."""
        from pyiceberg.io.pyarrow import schema_to_pyarrow
        from pyiceberg.transforms import IdentityTransform

        file = self._task.file
        value = field.initial_default
        spec = self._table.specs()[file.spec_id]
        for at, part in enumerate(spec.fields):
            if part.source_id == field.field_id and isinstance(part.transform, IdentityTransform):
                value = file.partition[at]
        kind = schema_to_pyarrow(field.field_type, include_field_ids=False)
        return pa.nulls(count, kind) if value is None else pa.repeat(pa.scalar(value, kind), count)


def _is_dictionary(chunk: pq.ColumnChunkMetaData) -> bool:
    """Return whether a column of texts is stored as references into a dictionary.

    Where the dictionary has become too large, the rest is stored as it is, which the size tells.
    """
    bytes_max = PLAIN_BYTES_MIN * chunk.num_values
    return bool(chunk.has_dictionary_page and chunk.total_uncompressed_size < bytes_max)


def _deleted_rows(io: FileIO, task: FileScanTask) -> np.ndarray:
    """Return the positions within the file that its delete files name."""
    from pyiceberg.manifest import DataFileContent, FileFormat

    found = [np.zeros(0, np.int64)]
    for file in task.delete_files:
        is_list = file.content == DataFileContent.POSITION_DELETES
        if not is_list or file.file_format != FileFormat.PARQUET:
            raise UnsupportedError(
                f"rows of {task.file.file_path} were deleted by {file.file_path}, which cannot be "
                "read here: rewrite the table's data files (compaction), or read without columns "
                "that hold lists or maps of rows"
            )
        with io.new_input(file.file_path).open() as opened:
            rows = pq.ParquetFile(opened).read(["file_path", "pos"])
        mine = pc.equal(rows.column("file_path"), task.file.file_path)
        found.append(rows.column("pos").filter(mine).to_numpy())
    return np.concatenate(found)


def _by_id(fields: Any) -> dict[int, pa.Field]:
    """Return the fields of an Arrow schema or struct by their Iceberg ids."""
    found = {}
    for field in fields:
        if field.metadata is None or _FIELD_ID not in field.metadata:
            raise UnsupportedError(
                f"a data file's column '{field.name}' has no Iceberg field id; such files, which "
                "were added from elsewhere, cannot be read together with lists or maps of rows"
            )
        found[int(field.metadata[_FIELD_ID])] = field
    return found


def _project(array: pa.Array, present: pa.DataType, wanted: IcebergType) -> pa.Array:
    """Return an array of a data file with the fields of the table; nulls stay at every level."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow
    from pyiceberg.types import ListType, MapType, StructType

    if isinstance(wanted, StructType):
        found = _by_id(present)
        parts, names = [], []
        for field in wanted.fields:
            inner = found.get(field.field_id)
            if inner is None:
                kind = schema_to_pyarrow(field.field_type, include_field_ids=False)
                parts.append(pa.nulls(len(array), kind))
            else:
                # Not `flatten`: what lies under a null row is null anyway by the mask.
                part = array.field(present.get_field_index(inner.name))
                parts.append(_project(part, inner.type, field.field_type))
            names.append(field.name)
        return pa.StructArray.from_arrays(parts, names, mask=array.is_null())
    if isinstance(wanted, ListType):
        values = _project(array.values, present.value_type, wanted.element_type)
        return pa.ListArray.from_arrays(_offsets(array), values)
    if isinstance(wanted, MapType):
        keys = _project(array.keys, present.key_type, wanted.key_type)
        items = _project(array.items, present.item_type, wanted.value_type)
        return pa.MapArray.from_arrays(_offsets(array), keys, items)
    return array


def _offsets(array: pa.Array) -> pa.Array:
    """Return the offsets of a list or map, null for a null list, so that Arrow keeps the null."""
    offsets = array.offsets
    nulls = pa.concat_arrays([array.is_null(), pa.array([False])])
    return pc.if_else(nulls, pa.scalar(None, offsets.type), offsets)
