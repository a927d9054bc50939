"""Writes with a writer id and sequences that the caller fixes, so that any process may repeat them.

The server knows the last five batches of a writer id and bucket and drops one that comes again. As
long as the writer id, the sequences and the rows are the same, the rows are in the log once,
whichever process sends them and however often. Bulk loads are built on this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pyarrow as pa

from fluss_client.aio.writing.accumulator import Batch, Deletes, RecordSlice
from fluss_client.aio.writing.arrow_input import ArrowInput
from fluss_client.aio.writing.bucket_line import LineRules
from fluss_client.aio.writing.channels import AppendChannel, Channel, UpsertChannel
from fluss_client.aio.writing.results import WriteResultHandle
from fluss_client.aio.writing.sender import Sender
from fluss_client.backend.contract import Backend
from fluss_client.config import Config
from fluss_client.errors import RowError, WriteError
from fluss_client.model.table import TableBucket, TableInfo

PINNED_BATCHES_MAX = 5


async def append_pinned(
    backend: Backend,
    table: TableInfo,
    bucket: TableBucket,
    batches: Sequence[pa.RecordBatch],
    writer_id: int,
    first_sequence: int = 0,
    *,
    bucket_count: int | None = None,
    config: Config | None = None,
) -> list[int]:
    """Append up to five batches under a given writer id.

    Batch i has the sequence `first_sequence` + i. Rows are not routed: all go to `bucket`. A batch
    that is in the log already counts as written and keeps its offset. Runs on the event loop of the
    backend.

    Args:
        backend: Where the table is.
        table: A log table.
        bucket: Where all rows go.
        batches: One to five batches. Those in the table's wire schema must come from
            `ArrowInput.conform` and are not checked again; others are conformed here.
        writer_id: A writer id that nobody else uses for this bucket.
        first_sequence: The sequence of the first batch.
        bucket_count: The bucket count by which the rows were placed; that of the partition if None.
        config: Settings of the writer; `writer.acks` is always `all`.

    Returns:
        The offset of the first row of each batch.

    Raises:
        RowError: The batches do not fit the table, or are too many.
        WriteError: Not all batches are in the log. `OutOfOrderSequenceError` as its cause means
            that an earlier batch of this writer is missing, or that five newer ones were written
            since; `InvalidBucketRoutingError`, that the rows were placed by a wrong bucket count.
    """
    if table.has_primary_key():
        raise RowError(f"{table.table_path} has a primary key; use upsert_pinned")
    settings = _settings(config)
    channel = AppendChannel(backend, table, settings)
    whole = [(batch, None) for batch in batches]
    numbers = (writer_id, first_sequence, bucket_count)
    sent = await _send(backend, table, bucket, channel, whole, numbers, settings)
    return [batch.offset for batch in sent]


async def upsert_pinned(
    backend: Backend,
    table: TableInfo,
    bucket: TableBucket,
    batches: Sequence[tuple[pa.RecordBatch, Deletes]],
    writer_id: int,
    first_sequence: int = 0,
    *,
    target_columns: Sequence[int] | None = None,
    bucket_count: int | None = None,
    config: Config | None = None,
) -> None:
    """Upsert up to five batches under a given writer id; see `append_pinned`.

    A batch that comes again is not applied again, so a process that repeats it late does not
    overwrite newer values.

    Args:
        backend: Where the table is.
        table: A primary-key table.
        bucket: Where all rows go.
        batches: One to five batches, each with the marks of the rows that are deletes by key.
        writer_id: A writer id that nobody else uses for this bucket.
        first_sequence: The sequence of the first batch.
        target_columns: The positions of the columns to write; None for all. The batches have all
            columns nevertheless, null where they are not given.
        bucket_count: The bucket count by which the rows were placed; that of the partition if None.
        config: Settings of the writer; `writer.acks` is always `all`.

    Raises:
        RowError: The batches do not fit the table, or are too many.
        WriteError: Not all batches are in the log.
    """
    if not table.has_primary_key():
        raise RowError(f"{table.table_path} has no primary key; use append_pinned")
    settings = _settings(config)
    channel = UpsertChannel(backend, table, settings, target_columns)
    numbers = (writer_id, first_sequence, bucket_count)
    await _send(backend, table, bucket, channel, batches, numbers, settings)


def _settings(config: Config | None) -> Config:
    settings = Config() if config is None else config.copy()
    settings.writer_acks = "all"  # with fewer replicas a new leader may not know the sequences
    return settings


async def _send(
    backend: Backend,
    table: TableInfo,
    bucket: TableBucket,
    channel: Channel,
    batches: Sequence[tuple[pa.RecordBatch, Deletes]],
    numbers: tuple[int, int, int | None],
    config: Config,
) -> list[Batch]:
    """Send the batches; `numbers` are the writer id, the first sequence and the bucket count."""
    writer_id, first_sequence, bucket_count = numbers
    if not 0 < len(batches) <= PINNED_BATCHES_MAX:
        raise RowError(f"1 to {PINNED_BATCHES_MAX} batches can be pinned, not {len(batches)}")
    conformed = [(_conformed(table, rows), deletes) for rows, deletes in batches]
    rules = LineRules(
        inflight_max=PINNED_BATCHES_MAX,
        retries_max=config.writer_retries,
        retry_timeout_s=config.retry_timeout_ms / 1000,
        pinned=True,
    )
    if bucket_count is None:
        bucket_count = await backend.bucket_count(table, bucket.partition_id)
    left = len(batches)
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_done(batch: Batch, error: BaseException | None) -> None:
        nonlocal left
        left -= 1
        if error is not None and not done.done():
            text = f"{batch.row_count} rows for {bucket} of {table.table_path} were not written"
            failure = WriteError(f"{text}: {error}", bucket, batch.row_count)
            failure.__cause__ = error
            done.set_exception(failure)
        elif left == 0 and not done.done():
            done.set_result(None)

    sent = []
    for rows, deletes in conformed:
        batch = Batch(bucket, 0.0, on_done, bucket_count=bucket_count)
        part = RecordSlice(bucket, rows, deletes, rows.nbytes)
        batch.add(part, WriteResultHandle(lambda: None))
        sent.append(batch)
    sender = Sender(backend, table, config, channel, rules)
    sender.line(bucket).adopt_writer(writer_id, first_sequence)
    for batch in sent:
        sender.push(batch)
    # A caller that stops waiting does not stop the batches: they are all written or all reported.
    await asyncio.shield(done)
    return sent


def _conformed(table: TableInfo, rows: pa.RecordBatch) -> pa.RecordBatch:
    # Loads conform rows before they place them; checking their values again would be a second pass
    # over all data. The wire schema is the mark of rows that have been through it.
    if isinstance(rows, pa.RecordBatch) and rows.schema.equals(table.schema.wire):
        return rows
    return ArrowInput(table.schema, range(len(table.schema.columns))).conform(rows)
