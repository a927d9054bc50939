"""Writing a DataFrame or a stream by `format("fluss")`.

Of a stream, each micro-batch that was written whole is recorded in Fluss under the query's id, so
that a query that died between its write and its checkpoint does not repeat it. A batch that was
written in part is repeated whole: a key table takes that as the same rows, a log table has some of
them twice. For a log table that must have each row once there is `exactly_once_batches`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from fluss_client import AppendWriter, ChangeType, FlussConnection, TableInfo, UpsertWriter
from fluss_client.engine import (
    ArrowInput,
    backend_of,
    parse_partition_name,
    run_blocking,
    table_info,
)
from fluss_client.errors import ConfigError, RowError
from fluss_orchestrate.core.checkpoints.events import now_ms
from fluss_orchestrate.core.loading.ledger import open_ledger
from fluss_orchestrate.core.loading.sending import partition_id_of
from fluss_orchestrate.core.loading.units import Placer, TargetColumns
from fluss_orchestrate.core.provisioning.dropping import drop_partitions
from fluss_orchestrate.spark.compat import HAS_STREAM_WRITER, StreamArrowWriter, needs_version
from fluss_orchestrate.spark.source.options import SourceOptions
from fluss_orchestrate.spark.source.types import arrow_schema, written


@dataclass
class Written(WriterCommitMessage):
    """What a task has written."""

    rows: int
    skipped: bool = False


@dataclass(frozen=True)
class WriteJob:
    """A checked write. It is pickled to executors."""

    options: SourceOptions
    columns: tuple[str, ...]
    """The columns of the table that the frame has."""
    operation: str | None
    partial: bool
    create_partitions: bool

    def run(self, batches: Iterator[pa.RecordBatch]) -> int:
        """Write all batches, wait until they are acknowledged, and return the number of rows."""
        connection = self.options.cluster.connection()
        table = connection.get_table(self.options.table).result()
        info = table.get_table_info()
        maker = _PartitionMaker(connection, info) if self.create_partitions else None
        columns = TargetColumns.of(info, self.columns)
        rows = 0
        writer: AppendWriter | UpsertWriter
        if info.has_primary_key():
            writer = table.new_upsert(self.columns if self.partial else None).create_writer()
        else:
            writer = table.new_append().create_writer()
        with writer:
            for batch in batches:
                if not batch.num_rows:
                    continue
                fitted = written(batch.select(list(self.columns)), info.schema.wire)
                if maker is not None:
                    maker.prepare(fitted)
                if self.operation is None:
                    writer.write_arrow_batch(fitted)
                else:
                    assert isinstance(writer, UpsertWriter)
                    codes = ChangeType.codes_of(
                        batch.column(self.operation), self.operation, first_row=rows
                    )
                    columns.check(codes, rows)
                    _write_changes(writer, fitted, codes, info)
                rows += batch.num_rows
            writer.flush().result()
        return rows


class FlussWriter(DataSourceArrowWriter):
    """Writes a batch; there is nothing to commit, because rows are visible at once."""

    def __init__(self, job: WriteJob) -> None:
        self._job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of one task."""
        return Written(self._job.run(iterator))


def batch_writer(options: SourceOptions, schema: StructType, overwrite: bool) -> FlussWriter:
    """Return a checked writer for frames of this schema; `overwrite` empties partitions."""
    job = write_job(options, schema)
    if overwrite:
        _empty_partitions(options)
    return FlussWriter(job)


def write_job(options: SourceOptions, schema: StructType) -> WriteJob:
    """Check that the frame fits the table, as far as its columns tell."""
    connection = options.cluster.connection()
    info = table_info(connection, options.table)
    operation = options.text("operation.column")
    partial = options.flag("partial.update")
    names = [field.name for field in schema]
    if operation is not None and (operation not in names or not info.has_primary_key()):
        raise ConfigError(
            f"operation.column '{operation}' must be a column of the frame, and {options.table} "
            "must have a primary key"
        )
    if partial and not info.has_primary_key():
        raise ConfigError(f"a partial update needs a primary key, and {options.table} has none")
    known = info.get_column_names()
    columns = [name for name in names if name != operation]
    unknown = [name for name in columns if name not in known]
    missing = [name for name in known if name not in columns]
    if unknown or (missing and not partial):
        what = f"has {unknown}, which the table has not" if unknown else f"lacks {missing}"
        raise RowError(
            f"the frame {what}: {options.table} has the columns {known}"
            + ("" if unknown or not info.has_primary_key() else "; set partial.update for a part")
        )
    given = [info.schema.index[name] for name in columns]
    arrow = arrow_schema(schema)
    empty = pa.RecordBatch.from_pylist([], pa.schema([arrow.field(name) for name in columns]))
    ArrowInput(info.schema, given).conform(written(empty, info.schema.wire))
    return WriteJob(options, tuple(columns), operation, partial, options.flag("create.partitions"))


def _empty_partitions(options: SourceOptions) -> None:
    """Drop and create the partitions that are overwritten.

    This is not atomic: for a moment they do not exist, and a write that fails afterwards leaves
    them empty or in part.
    """
    connection = options.cluster.connection()
    info = table_info(connection, options.table)
    wanted = options.partitions
    if not info.is_partitioned() or not wanted:
        raise ConfigError(
            f"mode overwrite drops and creates partitions of a partitioned table: name them by "
            f"option('partition', 'column=value'); {options.table} has the partition columns "
            f"{list(info.partition_keys)}"
        )
    admin = connection.get_admin().result()
    keys = info.partition_keys
    there = [
        parse_partition_name(p.partition_name, keys)
        for p in admin.list_partition_infos(options.table).result()
    ]
    chosen = [spec for spec in there if any(one.items() <= spec.items() for one in wanted)]
    drop_partitions(connection, options.table, chosen, force=options.flag("overwrite.force"))
    whole = [one for one in wanted if set(one) == set(keys)]
    for spec in [*chosen, *(one for one in whole if one not in chosen)]:
        admin.create_partition(options.table, spec, ignore_if_exists=True).result()


def _write_changes(
    writer: UpsertWriter, batch: pa.RecordBatch, codes: npt.NDArray[np.uint8], info: TableInfo
) -> None:
    """Write rows in order, each run of upserts or deletes at once; -U rows are left out."""
    kept = codes != ChangeType.UpdateBefore
    batch, codes = batch.filter(pa.array(kept)), codes[kept]
    deletes = codes == ChangeType.Delete
    edges = [0, *(np.flatnonzero(np.diff(deletes)) + 1).tolist(), len(deletes)]
    for start, stop in itertools.pairwise(edges):
        rows = batch.slice(start, stop - start)
        if stop == start:
            continue
        if deletes[start]:
            writer.delete_arrow(rows.select(list(info.primary_keys)))
        else:
            writer.write_arrow_batch(rows)


class _PartitionMaker:
    """Creates the partitions that rows need and that do not exist."""

    def __init__(self, connection: FlussConnection, info: TableInfo) -> None:
        self._backend = backend_of(connection)
        self._info = info
        self._placer = Placer(info)
        self._input = ArrowInput(info.schema, range(len(info.schema.columns)))
        self._known: set[str] = set()

    def prepare(self, batch: pa.RecordBatch) -> None:
        """Create the partitions of all rows of the batch."""
        placed = self._placer.place(self._input.conform(batch), None, 0)
        names = {p.partition for p in placed if p.partition is not None}
        for name in sorted(names - self._known):
            run_blocking(partition_id_of(self._backend, self._info, name, True))
            self._known.add(name)


QUERY_PROPERTY = "sql.streaming.queryId"
BATCH_PROPERTY = "streaming.sql.batchId"


@dataclass
class BatchWritten(WriterCommitMessage):
    """What a task has written of a micro-batch."""

    query: str
    rows: int


class BatchLedger:
    """Which micro-batches of a query are in a table."""

    def __init__(self, connection: FlussConnection, table_id: int, query: str) -> None:
        self._table = open_ledger(connection)
        self._name = f"stream/{table_id}/{query}"

    def is_done(self, batch_id: int) -> bool:
        """Return whether the batch was written completely."""
        return run_blocking(self._table.lookup([(self._name, batch_id)]))[0] is not None

    def finish(self, batch_id: int) -> None:
        """Record that the batch was written completely."""
        row = {"name": self._name, "seq": batch_id, "kind": "batch", "created_ms": now_ms()}
        run_blocking(self._table.put([row]))


class FlussStreamWriter(StreamArrowWriter):  # type: ignore[misc]
    """Writes micro-batches."""

    def __init__(self, job: WriteJob, table_id: int) -> None:
        self._job = job
        self._table_id = table_id

    def _ledger(self, query: str) -> BatchLedger:
        connection = self._job.options.cluster.connection()
        return BatchLedger(connection, self._table_id, query)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> BatchWritten:
        """Write the rows of one task, unless their batch is in the table already."""
        context = TaskContext.get()
        assert context is not None
        batch_id = int(context.getLocalProperty(BATCH_PROPERTY) or -1)
        query = self._job.options.text("query.name") or context.getLocalProperty(QUERY_PROPERTY)
        if query is None or batch_id < 0:
            raise ConfigError("this write is not part of a streaming query")
        if self._ledger(query).is_done(batch_id):
            return BatchWritten(query, 0)
        return BatchWritten(query, self._job.run(iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Record that the batch is in the table."""
        for message in messages:
            if isinstance(message, BatchWritten):
                self._ledger(message.query).finish(batchId)
                return

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: the batch will be written again."""


def stream_writer(options: SourceOptions, schema: StructType, overwrite: bool) -> FlussStreamWriter:
    """Return a checked writer for a stream of this schema."""
    if not HAS_STREAM_WRITER:
        raise needs_version(
            "4.1",
            'writeStream.format("fluss")',
            "use foreachBatch with exactly_once_batches(...) or write(...)",
        )
    if overwrite:
        raise ConfigError("a stream cannot overwrite: use outputMode append or update")
    job = write_job(options, schema)
    connection = options.cluster.connection()
    info = table_info(connection, options.table)
    return FlussStreamWriter(job, info.table_id)
