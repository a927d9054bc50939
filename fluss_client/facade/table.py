"""Tables, scans, writers and look-ups, for code with or without an event loop.

Generated from `fluss_client.aio` by `fluss_client.facade.generate`; do not edit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fluss_client import aio
from fluss_client.aio.lookup.keys import KeyLike
from fluss_client.aio.writing.writer import RowLike
from fluss_client.facade.base import (
    Facade,
    LogScannerBase,
    LookupBuilderBase,
    UpsertBuilderBase,
    WriterBase,
    WriteResultHandle,
    wrapped,
)
from fluss_client.facade.handle import Handle
from fluss_client.model.predicate import Predicate
from fluss_client.model.records import RecordBatch
from fluss_client.model.table import TableBucket, TableInfo, TablePath
from fluss_client.runtime import runtime

if TYPE_CHECKING:
    import pandas as pd


class FlussTable(Facade[aio.FlussTable]):
    """A table, with the schema that it had when it was opened.

    Obtain it with `FlussConnection.get_table()`; do not call the constructor.
    """

    def new_scan(self) -> TableScan:
        """Return a builder of scans of the log, the changelog or the key state."""
        return TableScan(self._core.new_scan())

    def new_append(self) -> TableAppend:
        """Return a builder of writers for a log table."""
        return TableAppend(self._core.new_append())

    def new_append_writer(self) -> Handle[AppendWriter]:
        """Create a writer for a log table. The older guide's form of `new_append()`.

        Raises:
            UnsupportedError: The table has a primary key.
        """
        return Handle.start(
            wrapped(self._core.new_append_writer(), AppendWriter), "FlussTable.new_append_writer"
        )

    def new_upsert(self, columns: Sequence[str] | None = None) -> TableUpsert:
        """Return a builder of writers for a primary-key table.

        Args:
            columns: Write these columns only, as `partial_update_by_name` does. None for all.
        """
        return TableUpsert(self._core.new_upsert(columns))

    def new_lookup(self) -> TableLookup:
        """Return a builder of look-ups in a primary-key table.

        Raises:
            NonPrimaryKeyTableError: The table has no primary key.
        """
        return TableLookup(self._core.new_lookup())

    @property
    def arrow_schema(self) -> pa.Schema:
        """Return the columns of the table as an Arrow schema."""
        return self._core.arrow_schema

    def get_table_info(self) -> TableInfo:
        """Return the description of the table, as it was when the table was opened."""
        return self._core.get_table_info()

    def get_table_path(self) -> TablePath:
        """Return the path of the table."""
        return self._core.get_table_path()

    def has_primary_key(self) -> bool:
        """Return whether the table has a primary key."""
        return self._core.has_primary_key()

    def __repr__(self) -> str:
        return repr(self._core)


class TableScan(Facade[aio.TableScan]):
    """Builds scanners. Each call changes the builder and returns it.

    Obtain it with `FlussTable.new_scan()`; do not call the constructor.
    """

    def project(self, indices: Sequence[int]) -> TableScan:
        """Read some columns only.

        Args:
            indices: The positions of the columns, in the order in which the scan returns them.

        Raises:
            SchemaError: There is no such column, or a column is named twice.
        """
        return TableScan(self._core.project(indices))

    def project_by_name(self, names: Sequence[str]) -> TableScan:
        """Read some columns only.

        Args:
            names: The names of the columns, in the order in which the scan returns them.

        Raises:
            SchemaError: There is no such column, or a column is named twice.
        """
        return TableScan(self._core.project_by_name(names))

    def with_fixed_schema(self, fixed_schema: bool) -> TableScan:
        """Set whether every batch has the schema that the table had when it was opened.

        Args:
            fixed_schema: True, which is the default.

        Raises:
            UnsupportedError: `fixed_schema` is false.
        """
        return TableScan(self._core.with_fixed_schema(fixed_schema))

    def limit(self, n: int) -> TableScan:
        """Read at most `n` rows of one bucket, with `create_bucket_batch_scanner`.

        Args:
            n: The number of rows, at least 1.

        Raises:
            SchemaError: `n` is not a valid number of rows.
        """
        return TableScan(self._core.limit(n))

    def filter(self, predicate: Predicate) -> TableScan:
        """Return only the rows that meet a condition.

        Servers from 1.0 on leave out batches of log tables that have no such row; the rows of all
        other batches are tested by the client. Rows keep their offsets, and those of a
        `RecordBatch` are in its `offsets`. A row whose condition is neither true nor false, because
        of a null, is left out. In a changelog each image is tested by itself: of an update, the
        row before may be returned without the row after, and the other way round. If this is
        called several times, all conditions must hold.

        Args:
            predicate: A condition made with `col()`. It is checked against the columns when the
                scanner is created.

        Raises:
            PredicateError: `predicate` was not made with `col()`.
        """
        return TableScan(self._core.filter(predicate))

    def create_bucket_batch_scanner(self, bucket: TableBucket) -> BatchScanner:
        """Create a scanner of some rows of one bucket. It needs a `limit`.

        It reads the key state of a primary-key table, and the end of the log of a log table.

        Args:
            bucket: The bucket.

        Raises:
            UnsupportedError: The scan has no limit, or has a filter.
            SubscriptionError: The table has no such bucket.
        """
        return BatchScanner(self._core.create_bucket_batch_scanner(bucket))

    def create_log_scanner(self) -> Handle[LogScanner]:
        """Create a scanner of single records, for `poll()`.

        Raises:
            UnsupportedError: The scan has a limit.
        """
        return Handle.start(
            wrapped(self._core.create_log_scanner(), LogScanner), "TableScan.create_log_scanner"
        )

    def create_record_batch_log_scanner(self) -> Handle[LogScanner]:
        """Create a scanner of Arrow batches, for `poll_arrow()`, `to_arrow()` and others.

        Raises:
            UnsupportedError: The scan has a limit.
        """
        return Handle.start(
            wrapped(self._core.create_record_batch_log_scanner(), LogScanner),
            "TableScan.create_record_batch_log_scanner",
        )

    create_batch_scanner = create_record_batch_log_scanner
    """The name of `create_record_batch_log_scanner` in the older guide."""


class LogScanner(LogScannerBase):
    """Reads the logs of the subscribed buckets as they grow.

    Obtain it with `TableScan.create_log_scanner()` or `create_record_batch_log_scanner()`; do not
    call the constructor.

    Rows of a bucket come in the order of their offsets; rows of several buckets are interleaved. A
    poll returns as soon as there are rows, or with no rows after its timeout. A cancelled poll
    loses no row. `async for` gives records, or `RecordBatch` objects, until the scanner is closed.

    If a bucket fails, the rows before the failure are returned first, and the next poll raises the
    error. If the error is retriable (`is_retriable`), the scanner has retried for `retry-timeout`
    before; the bucket stays subscribed, and the next poll retries at the same offset. After any
    other error, such as an offset that the log does not have, the bucket is unsubscribed. Other
    buckets are read on in both cases.

    While a reader of `to_arrow_batch_reader` is active, all calls except `close` and `metrics`
    raise `ReaderActiveError`.
    """

    def subscribe(self, bucket_id: int, start_offset: int) -> None:
        """Subscribe to a bucket of a table without partitions.

        Args:
            bucket_id: The bucket.
            start_offset: The first offset to read, or `EARLIEST_OFFSET` or `LATEST_OFFSET`.

        Raises:
            SubscriptionError: The table has partitions, or has no such bucket or offset.
        """
        self._core.subscribe(bucket_id, start_offset)

    def subscribe_buckets(self, bucket_offsets: Mapping[int, int]) -> None:
        """Subscribe to several buckets of a table without partitions.

        Args:
            bucket_offsets: The first offset to read of each bucket: `{bucket_id: offset}`.

        Raises:
            SubscriptionError: The table has partitions, or has no such bucket or offset.
        """
        self._core.subscribe_buckets(bucket_offsets)

    def subscribe_partition(self, partition_id: int, bucket_id: int, start_offset: int) -> None:
        """Subscribe to a bucket of a partition.

        Args:
            partition_id: The partition.
            bucket_id: The bucket.
            start_offset: The first offset to read, or `EARLIEST_OFFSET` or `LATEST_OFFSET`.

        Raises:
            TableNotPartitionedError: The table has no partitions.
            SubscriptionError: The table has no such bucket or offset.
        """
        self._core.subscribe_partition(partition_id, bucket_id, start_offset)

    def subscribe_partition_buckets(
        self, partition_bucket_offsets: Mapping[tuple[int, int], int]
    ) -> None:
        """Subscribe to several buckets of partitions.

        Args:
            partition_bucket_offsets: The first offset to read of each bucket:
                `{(partition_id, bucket_id): offset}`.

        Raises:
            TableNotPartitionedError: The table has no partitions.
            SubscriptionError: The table has no such bucket or offset.
        """
        self._core.subscribe_partition_buckets(partition_bucket_offsets)

    def unsubscribe(self, bucket_id: int) -> None:
        """Unsubscribe from a bucket. Rows that were fetched and not returned are dropped.

        Polls of a scanner that is unsubscribed from all buckets return nothing.

        Args:
            bucket_id: The bucket.

        Raises:
            SubscriptionError: The table has partitions, or has no such bucket.
        """
        self._core.unsubscribe(bucket_id)

    def unsubscribe_partition(self, partition_id: int, bucket_id: int) -> None:
        """Unsubscribe from a bucket of a partition, as `unsubscribe` does.

        Args:
            partition_id: The partition.
            bucket_id: The bucket.

        Raises:
            TableNotPartitionedError: The table has no partitions.
            SubscriptionError: The table has no such bucket.
        """
        self._core.unsubscribe_partition(partition_id, bucket_id)

    def poll_record_batch(self, timeout_ms: int) -> list[RecordBatch]:
        """Return the next Arrow batches, with their bucket and offsets.

        Args:
            timeout_ms: How long to wait for rows.

        Returns:
            The batches, as soon as there are some. It is empty if the timeout passes first.

        Raises:
            SubscriptionError: No bucket is subscribed.
            UnsupportedError: This is a scanner of records.
        """
        return runtime().call(self._core.poll_record_batch(timeout_ms))

    poll_batches = poll_record_batch
    """The name of `poll_record_batch` in the older guide."""

    def poll_arrow(self, timeout_ms: int) -> pa.Table:
        """Return the next rows as one Arrow table.

        The table of a primary-key table has a last column `_change_type`.

        Args:
            timeout_ms: How long to wait for rows.

        Returns:
            The rows, as soon as there are some. It is empty if the timeout passes first.

        Raises:
            SubscriptionError: No bucket is subscribed.
            UnsupportedError: This is a scanner of records.
        """
        return runtime().call(self._core.poll_arrow(timeout_ms))

    def to_arrow(self) -> pa.Table:
        """Return all rows from the subscribed offsets up to the latest offsets of now.

        After a poll it begins where the poll ended. A later poll begins where this ends. A second
        `to_arrow` without a poll in between returns the same rows again, and the new ones.

        Returns:
            The rows, sorted by partition, bucket and offset. The table of a primary-key table has
            a last column `_change_type`.

        Raises:
            SubscriptionError: No bucket is subscribed.
            UnsupportedError: This is a scanner of records.
        """
        return runtime().call(self._core.to_arrow())

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows that `to_arrow` returns as a DataFrame.

        Raises:
            SubscriptionError: No bucket is subscribed.
            UnsupportedError: This is a scanner of records.
            MissingExtraError: pandas is not installed.
        """
        return runtime().call(self._core.to_pandas())

    def to_arrow_batch_reader(self) -> pa.RecordBatchReader:
        """Return a blocking reader of the rows that `to_arrow` would return.

        It is meant for blocking code, such as DuckDB or Polars. Any thread may use it, and it
        holds no more rows than the prefetch of a scan. The other calls of the scanner raise
        `ReaderActiveError` until the reader is read to its end or dropped.

        After a reader that was read to its end, polls continue behind its rows. After a reader
        that was dropped early or failed, no bucket is subscribed: calls raise `SubscriptionError`
        until `subscribe` is called again, so that no row is skipped silently.

        Raises:
            SubscriptionError: No bucket is subscribed.
            UnsupportedError: This is a scanner of records.
        """
        return self._core.to_arrow_batch_reader()

    def metrics(self) -> dict[str, float]:
        """Return counters of fetches, bytes, batches, rows and retries, and the buffered bytes."""
        return self._core.metrics()

    def close(self) -> None:
        """Stop reading. A poll that is waiting raises `ClosedError`."""
        return runtime().call(self._core.close())

    def __repr__(self) -> str:
        return repr(self._core)


class BatchScanner(Facade[aio.BatchScanner]):
    """Reads at most `limit` rows of one bucket, once. After an error, create a new one.

    Obtain it with `TableScan.create_bucket_batch_scanner()`; do not call the constructor.
    """

    @property
    def bucket(self) -> TableBucket:
        """Return the bucket that is read."""
        return self._core.bucket

    def next_batch(self) -> Handle[RecordBatch | None]:
        """Return the next batch, or None when all rows were returned."""
        return Handle.start(self._core.next_batch(), "BatchScanner.next_batch")

    def collect_all_batches(self) -> Handle[list[RecordBatch]]:
        """Return all batches that were not returned yet."""
        return Handle.start(self._core.collect_all_batches(), "BatchScanner.collect_all_batches")

    def to_arrow(self) -> pa.Table:
        """Return the rows that were not returned yet as an Arrow table, which may be empty."""
        return runtime().call(self._core.to_arrow())

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows that were not returned yet as a DataFrame.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        return runtime().call(self._core.to_pandas())

    def __repr__(self) -> str:
        return repr(self._core)


class TableAppend(Facade[aio.TableAppend]):
    """Builds an `AppendWriter`.

    Obtain it with `FlussTable.new_append()`; do not call the constructor.
    """

    def create_writer(self) -> AppendWriter:
        """Return a new writer.

        Raises:
            UnsupportedError: The table has a primary key.
        """
        return AppendWriter(self._core.create_writer())


class AppendWriter(WriterBase[aio.AppendWriter]):
    """Writes to a log table. Obtain it with `TableAppend.create_writer()`.

    Args:
        backend: Where the table is. It must belong to the loop of `fluss_client.runtime.runtime()`.
        table: A table without a primary key.
        config: Settings of the writer.

    Raises:
        UnsupportedError: The table has a primary key.
    """

    def append(self, row: RowLike) -> WriteResultHandle:
        """Append one row.

        Args:
            row: A dict by column name, or a list or tuple in column order. A dict may leave out
                nullable columns. A datetime without a zone is UTC in a TIMESTAMP_LTZ column.

        Returns:
            A handle for the acknowledgement. Rows that are sent together share it.

        Raises:
            RowError: A value does not fit its column. Nothing of the row is written.
            BufferFullError: There was no room in the buffer within
                `writer.buffer.wait-timeout-ms`. The row was not accepted.
            ClosedError: The writer was closed.
        """
        return self._core.append(row)  # type: ignore[return-value]

    def write_arrow(self, table: Any) -> None:
        """Append a table of Arrow data.

        A table is checked as a whole before its first row is accepted, a stream batch by batch.

        Args:
            table: A `pyarrow.Table`, or any object that exports an Arrow stream (polars, DuckDB).

        Raises:
            RowError: A column does not fit the table. The message says how many rows were accepted
                before.
            BufferFullError: There was no room in the buffer for the next rows.
        """
        self._core.write_arrow(table)

    def write_arrow_batch(self, batch: pa.RecordBatch) -> WriteResultHandle:
        """Append a `pyarrow.RecordBatch` as a whole.

        Args:
            batch: The rows; a column that the batch lacks is null.

        Returns:
            A handle for the acknowledgement of all rows of the batch.

        Raises:
            RowError: A column does not fit the table. No row was accepted.
            BufferFullError: There was no room in the buffer. No row was accepted.
        """
        return self._core.write_arrow_batch(batch)  # type: ignore[return-value]

    def write_pandas(self, df: Any) -> None:
        """Append a `pandas.DataFrame` without its index; NaN and NaT become null.

        Args:
            df: The rows, with the columns of the table.

        Raises:
            RowError: A column does not fit the table.
            MissingExtraError: pandas is not installed.
        """
        self._core.write_pandas(df)


class UpsertWriter(WriterBase[aio.UpsertWriter]):
    """Writes to a primary-key table. Obtain it with `TableUpsert.create_writer()`.

    Writes of the same key take effect in the order of the calls.

    Args:
        backend: Where the table is. It must belong to the loop of `fluss_client.runtime.runtime()`.
        table: A table with a primary key.
        config: Settings of the writer.
        target_columns: The positions of the columns to write, in the order in which lists and
            tuples give them; None for all columns.

    Raises:
        UnsupportedError: The table has no primary key.
        InvalidTargetColumnError: The target columns cannot be written without the others.
    """

    def upsert(self, row: RowLike) -> WriteResultHandle:
        """Insert a row, or replace the row with its key.

        Args:
            row: A dict by column name, or a list or tuple in column order.

        Returns:
            A handle for the acknowledgement. Rows that are sent together share it.

        Raises:
            RowError: A value does not fit its column. Nothing of the row is written.
            BufferFullError: There was no room in the buffer. The row was not accepted.
            ClosedError: The writer was closed.
        """
        return self._core.upsert(row)  # type: ignore[return-value]

    def delete(self, pk: RowLike) -> WriteResultHandle:
        """Delete the row with this key.

        A writer with target columns sets these columns to null instead; the row is deleted when no
        other column has a value.

        Args:
            pk: A dict of the primary-key columns, or a list or tuple of their values.

        Returns:
            A handle for the acknowledgement.

        Raises:
            RowError: A value does not fit its column.
            BufferFullError: There was no room in the buffer. The delete was not accepted.
        """
        return self._core.delete(pk)  # type: ignore[return-value]

    def write_arrow(self, table: Any) -> None:
        """Upsert a table of Arrow data; see `AppendWriter.write_arrow`.

        Args:
            table: A `pyarrow.Table`, or any object that exports an Arrow stream.

        Raises:
            RowError: A column does not fit the table.
            BufferFullError: There was no room in the buffer for the next rows.
        """
        self._core.write_arrow(table)

    def write_arrow_batch(self, batch: pa.RecordBatch) -> WriteResultHandle:
        """Upsert a `pyarrow.RecordBatch` as a whole.

        Args:
            batch: The rows to insert or update.

        Returns:
            A handle for the acknowledgement of all rows of the batch.

        Raises:
            RowError: A column does not fit the table. No row was accepted.
            BufferFullError: There was no room in the buffer. No row was accepted.
        """
        return self._core.write_arrow_batch(batch)  # type: ignore[return-value]

    def write_pandas(self, df: Any) -> None:
        """Upsert a `pandas.DataFrame` without its index; NaN and NaT become null.

        Args:
            df: The rows to insert or update.

        Raises:
            RowError: A column does not fit the table.
            MissingExtraError: pandas is not installed.
        """
        self._core.write_pandas(df)

    def delete_arrow(self, keys: Any) -> WriteResultHandle:
        """Delete the rows with these keys.

        Args:
            keys: A `pyarrow.Table` or `RecordBatch` of the primary-key columns.

        Returns:
            A handle for the acknowledgement of all deletes.

        Raises:
            RowError: A column does not fit the primary key.
        """
        return self._core.delete_arrow(keys)  # type: ignore[return-value]


class TableUpsert(UpsertBuilderBase, UpsertWriter):  # type: ignore[override]
    """Builds an `UpsertWriter`.

    Obtain it with `FlussTable.new_upsert()`; do not call the constructor.
    """

    def partial_update_by_name(self, columns: Sequence[str]) -> TableUpsert:
        """Return a builder of writers that write only some columns.

        Args:
            columns: Their names; all columns of the primary key must be among them.

        Raises:
            InvalidTargetColumnError: A column does not exist.
        """
        return TableUpsert(self._builder.partial_update_by_name(columns))

    def partial_update_by_index(self, column_indices: Sequence[int]) -> TableUpsert:
        """Return a builder of writers that write only some columns.

        Args:
            column_indices: Their positions; all columns of the primary key must be among them.

        Raises:
            InvalidTargetColumnError: A column does not exist.
        """
        return TableUpsert(self._builder.partial_update_by_index(column_indices))

    def create_writer(self) -> UpsertWriter:
        """Return a new writer.

        Raises:
            UnsupportedError: The table has no primary key.
            InvalidTargetColumnError: The columns cannot be written without the others.
        """
        return UpsertWriter(self._builder.create_writer())


class Lookuper(Facade[aio.Lookuper]):
    """Looks up rows by primary key.

    Obtain it with `TableLookup.create_lookuper()`; do not call the constructor.
    """

    def lookup(self, pk: KeyLike) -> Handle[dict[str, Any] | None]:
        """Return the row of a key.

        Args:
            pk: The primary key: a dict of its columns, or their values in order.

        Returns:
            The row, or None if there is none.

        Raises:
            RowError: The key does not fit the columns.
        """
        return Handle.start(self._core.lookup(pk), "Lookuper.lookup")

    def lookup_many(
        self, keys: pa.Table | pa.RecordBatch | Sequence[KeyLike]
    ) -> Handle[pa.Table | list[dict[str, Any] | None]]:
        """Return the rows of several keys.

        Args:
            keys: A list of keys, or an Arrow table or batch with the primary-key columns.

        Returns:
            One row per key, in the order of the keys. For a list of keys it is a list, with None
            for a key without a row. For Arrow keys it is an Arrow table, with a row of nulls.

        Raises:
            RowError: A key does not fit the columns.
        """
        return Handle.start(self._core.lookup_many(keys), "Lookuper.lookup_many")


class TableLookup(LookupBuilderBase, Lookuper):
    """Builds look-ups.

    Obtain it with `FlussTable.new_lookup()`; do not call the constructor.
    """

    def create_lookuper(self) -> Lookuper:
        """Create a look-up by the whole primary key."""
        return Lookuper(self._builder.create_lookuper())

    def lookup_by(self, column_names: Sequence[str]) -> TablePrefixLookup:
        """Return a builder of look-ups by a prefix of the primary key.

        Args:
            column_names: The partition columns and the bucket key columns.

        Raises:
            UnsupportedError: The columns are not such a prefix.
        """
        return TablePrefixLookup(self._builder.lookup_by(column_names))


class PrefixLookuper(Facade[aio.PrefixLookuper]):
    """Looks up all rows whose primary key begins with a prefix.

    Obtain it with `TablePrefixLookup.create_lookuper()`; do not call the constructor.
    """

    def lookup(self, prefix: KeyLike) -> Handle[list[dict[str, Any]]]:
        """Return all rows whose key begins with a prefix.

        Args:
            prefix: A dict of the columns given to `lookup_by`, or their values in order.

        Returns:
            The rows, which may be none.

        Raises:
            RowError: The prefix does not fit the columns.
        """
        return Handle.start(self._core.lookup(prefix), "PrefixLookuper.lookup")


class TablePrefixLookup(Facade[aio.TablePrefixLookup]):
    """Builds a `PrefixLookuper`.

    Obtain it with `TableLookup.lookup_by()`; do not call the constructor.
    """

    def create_lookuper(self) -> PrefixLookuper:
        """Create a look-up by the prefix."""
        return PrefixLookuper(self._core.create_lookuper())
