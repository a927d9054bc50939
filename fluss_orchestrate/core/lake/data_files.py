"""Writing Iceberg data files: Parquet, row group by row group, so that memory stays bounded.

pyiceberg writes whole tables, or streams into tables without partitions. Here a file has an
explicit partition, takes batches one by one, and returns its statistics when it is closed. A file
is not part of a table until it is committed; `delete_files` deletes those that never were.
"""

from __future__ import annotations

import logging
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fluss_client.errors import RowError
from fluss_orchestrate.core.sinks.parquet import ROW_GROUP_BYTES, columns_with_dictionary

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.partitioning import PartitionKey
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

log = logging.getLogger(__name__)
FILE_BYTES_MAX = 256 << 20
"""A file that has grown to this is closed, and the next one begun."""
OPEN_FILES_MAX = 16
"""The largest number of partitions with an open file; the least recently used one is closed."""


def conform(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """Return the batch with exactly the columns and types of `target`; a missing column is null.

    Timestamps are cut to microseconds, because Iceberg has no smaller unit. Any other value that
    does not fit the type is an error.
    """
    columns = []
    for field in target:
        at = batch.schema.get_field_index(field.name)
        if at < 0:
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        column = batch.column(at)
        try:
            columns.append(_fitted(column, field.type))
        except pa.ArrowException as error:
            raise RowError(
                f"column '{field.name}' of type {column.type} does not fit {field.type}: {error}"
            ) from error
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _fitted(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    if pa.types.is_dictionary(column.type):
        # The few values get the type before each row gets its own.
        return _fitted(column.dictionary, kind).take(column.indices)
    return column.cast(kind, safe=not has_nanoseconds(column.type))


def has_nanoseconds(kind: pa.DataType) -> bool:
    """Whether values of a type have digits below a microsecond."""
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        return bool(kind.unit == "ns")
    return any(has_nanoseconds(kind.field(i).type) for i in range(kind.num_fields))


class DataFileWriter:
    """Writes one data file. `close` returns what a commit needs; `abort` deletes the file."""

    def __init__(
        self,
        table: Table,
        partition: PartitionKey | None,
        label: str,
        schema: Schema | None = None,
    ) -> None:
        """Begin a file; `schema` is for a file that has only some columns of the table."""
        from pyiceberg.io.pyarrow import schema_to_pyarrow
        from pyiceberg.schema import sanitize_column_names

        columns = table.schema() if schema is None else schema
        self._table = table
        self._partition = partition
        self._file_schema = sanitize_column_names(columns)
        self._target: pa.Schema = schema_to_pyarrow(columns)
        self._stored: pa.Schema = schema_to_pyarrow(self._file_schema)
        name = f"{label}-{uuid.uuid4()}.parquet"
        self.path: str = table.location_provider().new_data_location(name, partition)
        self._output = table.io.new_output(self.path)
        self._stream: Any = self._output.create(overwrite=True)
        codec = table.properties.get("write.parquet.compression-codec", "zstd")
        self._writer = pq.ParquetWriter(
            self._stream,
            self._stored,
            compression="none" if codec == "uncompressed" else codec,
            use_dictionary=columns_with_dictionary(self._stored),
            store_decimal_as_integer=True,
        )
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self.rows = 0
        self.bytes_written = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows; columns are found by name."""
        fitted = conform(batch, self._target)
        self._held.append(pa.RecordBatch.from_arrays(fitted.columns, schema=self._stored))
        self._held_bytes += fitted.nbytes
        self.rows += fitted.num_rows
        if self._held_bytes >= ROW_GROUP_BYTES:
            self._flush()

    @property
    def is_full(self) -> bool:
        """Whether the next rows belong into another file."""
        return self.bytes_written >= FILE_BYTES_MAX

    def _flush(self) -> None:
        if self._held:
            rows = pa.Table.from_batches(self._held, self._stored)
            self._writer.write_table(rows, row_group_size=max(1, rows.num_rows))
            self._held, self._held_bytes = [], 0
            self.bytes_written = self._stream.tell()

    def close(self) -> DataFile:
        """Finish the file."""
        from pyiceberg.io.pyarrow import (
            compute_statistics_plan,
            data_file_statistics_from_parquet_metadata,
            parquet_path_to_id_mapping,
        )
        from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
        from pyiceberg.typedef import Record

        self._flush()
        self._writer.close()
        self._stream.close()
        metadata = self._table.metadata
        statistics = data_file_statistics_from_parquet_metadata(
            parquet_metadata=self._writer.writer.metadata,
            stats_columns=compute_statistics_plan(self._file_schema, metadata.properties),
            parquet_column_mapping=parquet_path_to_id_mapping(self._file_schema),
        )
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=self.path,
            file_format=FileFormat.PARQUET,
            partition=self._partition.partition if self._partition else Record(),
            file_size_in_bytes=len(self._output),
            sort_order_id=None,
            spec_id=metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )

    def abort(self) -> None:
        """Delete the file."""
        try:
            self._writer.close()
            self._stream.close()
        except (OSError, ValueError, pa.ArrowException) as error:
            log.debug("closing a file that is given up: %s", error)
        delete_files(self._table, [self.path])


class PartitionedWriter:
    """Writes rows into one file per partition, as the partition spec of the Iceberg table says."""

    def __init__(self, table: Table, label: str) -> None:
        self._table = table
        self._label = label
        self._spec = table.spec()
        self._schema = table.schema()
        self._open: OrderedDict[tuple[Any, ...], DataFileWriter] = OrderedDict()
        self._done: list[DataFile] = []
        self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows of any partitions."""
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        if batch.num_rows == 0:
            return
        self.rows += batch.num_rows
        if self._spec.is_unpartitioned():
            self._writer_of(()).write(batch)
            return
        # Partition values come from the values as the table will hold them.
        batch = conform(batch, schema_to_pyarrow(self._schema, include_field_ids=False))
        for values, rows in self._split(batch):
            self._writer_of(values).write(rows)

    def _split(self, batch: pa.RecordBatch) -> Iterable[tuple[tuple[Any, ...], pa.RecordBatch]]:
        names, columns = [], []
        for at, field in enumerate(self._spec.fields):
            source = self._schema.find_field(field.source_id)
            top = self._schema.find_column_name(field.source_id) or source.name
            values = _nested(batch, top)
            columns.append(field.transform.pyarrow_transform(source.field_type)(values))
            names.append(f"k{at}")
        keys = pa.table(columns, names=names)
        numbered = keys.append_column("row", pa.array(range(batch.num_rows), pa.int64()))
        groups = numbered.group_by(names, use_threads=False).aggregate([("row", "list")])
        listed = groups.column("row_list").combine_chunks()
        for at in range(groups.num_rows):
            values = tuple(groups.column(name)[at].as_py() for name in names)
            yield values, batch.take(listed[at].values)

    def _writer_of(self, values: tuple[Any, ...]) -> DataFileWriter:
        writer = self._open.get(values)
        if writer is not None and writer.is_full:
            self._done.append(self._open.pop(values).close())
            writer = None
        if writer is None:
            while len(self._open) >= OPEN_FILES_MAX:
                self._done.append(self._open.popitem(last=False)[1].close())
            writer = self._new_file(self._key(values))
            self._open[values] = writer
        self._open.move_to_end(values)
        return writer

    def _new_file(self, partition: PartitionKey | None) -> DataFileWriter:
        return DataFileWriter(self._table, partition, self._label)

    def _key(self, values: tuple[Any, ...]) -> PartitionKey | None:
        return None if self._spec.is_unpartitioned() else partition_key(self._table, values)

    def close(self) -> list[DataFile]:
        """Finish all files."""
        while self._open:
            self._done.append(self._open.popitem(last=False)[1].close())
        return self._done

    def abort(self) -> None:
        """Delete all files."""
        while self._open:
            self._open.popitem()[1].abort()
        delete_files(self._table, [file.file_path for file in self._done])


def partition_key(table: Table, values: Sequence[Any]) -> PartitionKey:
    """Return the partition of these values, which are results of the transforms of the spec."""
    from pyiceberg.partitioning import PartitionFieldValue, PartitionKey

    spec = table.spec()
    return PartitionKey(
        field_values=[
            PartitionFieldValue(field=field, value=value)
            for field, value in zip(spec.fields, values, strict=True)
        ],
        partition_spec=spec,
        schema=table.schema(),
    )


def delete_files(table: Table, paths: Iterable[str]) -> None:
    """Delete files that no snapshot refers to; one that cannot be deleted is only logged."""
    for path in paths:
        try:
            table.io.delete(path)
        except (OSError, pa.ArrowException) as error:
            log.warning("%s is not needed any more and could not be deleted: %s", path, error)


def _nested(batch: pa.RecordBatch, name: str) -> pa.Array:
    first, *rest = name.split(".")
    column = batch.column(first)
    return pc.struct_field(column, rest) if rest else column
