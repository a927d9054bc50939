"""Writes under numbers that were fixed beforehand, so that any process may send them again.

The server knows the last five batches of a writer id and bucket. If who sends, and how often, does
not change the writer id, the sequences and the rows, the rows are in the log once, whatever dies in
between. Bulk loads stand on this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pyarrow as pa

from fluss_client.aio.arrow_input import ArrowInput
from fluss_client.aio.batching import Batch
from fluss_client.aio.bucket_line import BucketLine, LineRules
from fluss_client.aio.channels import AppendChannel, Channel, UpsertChannel
from fluss_client.aio.pieces import Deletes, Piece
from fluss_client.aio.preparing import Preparer
from fluss_client.aio.sender import Sender
from fluss_client.aio.write_handle import WriteResultHandle
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
    config: Config | None = None,
) -> list[int]:
    """Append up to five batches under a given writer id; their first rows' offsets.

    Batch i has the sequence `first_sequence` + i. Rows are not routed: they go to `bucket` as they
    are. A batch that is in the log already counts as written and keeps its offset. Runs on the
    backend's own loop. WriteError says why the batches cannot all be in the log;
    `OutOfOrderSequenceError` as its cause means that an earlier batch of this writer is missing, or
    that five newer ones have been written since.
    """
    if table.has_primary_key():
        raise RowError(f"{table.table_path} has a primary key; use upsert_pinned")
    settings = _settings(config)
    channel = AppendChannel(backend, table, settings)
    whole = [(batch, None) for batch in batches]
    sent = await _send(backend, table, bucket, channel, whole, writer_id, first_sequence, settings)
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
    config: Config | None = None,
) -> None:
    """Upsert up to five batches under a given writer id; marked rows are deletes by their key.

    As `append_pinned`. A batch that comes again is not applied again, so that a sender who wakes
    up late does not put old values over newer ones. With `target_columns` (positions) only those
    columns are written; the batches have all columns nevertheless, null where they are not given.
    """
    if not table.has_primary_key():
        raise RowError(f"{table.table_path} has no primary key; use append_pinned")
    settings = _settings(config)
    channel = UpsertChannel(backend, table, settings, target_columns)
    await _send(backend, table, bucket, channel, batches, writer_id, first_sequence, settings)


def _settings(config: Config | None) -> Config:
    settings = Config() if config is None else config.copy()
    settings.writer_acks = "all"  # else the server keeps no sequences worth the name
    return settings


async def _send(
    backend: Backend,
    table: TableInfo,
    bucket: TableBucket,
    channel: Channel,
    batches: Sequence[tuple[pa.RecordBatch, Deletes]],
    writer_id: int,
    first_sequence: int,
    config: Config,
) -> list[Batch]:
    if not 0 < len(batches) <= PINNED_BATCHES_MAX:
        raise RowError(f"1 to {PINNED_BATCHES_MAX} batches can be pinned, not {len(batches)}")
    fit = ArrowInput(table.schema, range(len(table.schema.columns)))
    fitted = [(fit.conform(rows), deletes) for rows, deletes in batches]
    rules = LineRules(
        inflight_max=PINNED_BATCHES_MAX,
        retries_max=config.writer_retries,
        retry_timeout_s=config.retry_timeout_ms / 1000,
        pinned=True,
    )
    line = BucketLine(bucket, rules)
    line.adopt_writer(writer_id, first_sequence)
    sent = [_batch(bucket, rows, deletes) for rows, deletes in fitted]
    left = len(sent)
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle(batch: Batch, error: BaseException | None) -> None:
        nonlocal left
        left -= 1
        if error is not None and not done.done():
            text = f"{batch.row_count} rows for {bucket} of {table.table_path} were not written"
            failure = WriteError(f"{text}: {error}", bucket, batch.row_count)
            failure.__cause__ = error
            done.set_exception(failure)
        elif left == 0 and not done.done():
            done.set_result(None)

    sender = Sender(
        channel,
        Preparer(backend, table, config),
        config.writer_request_max_size,
        settle,
        on_room=lambda line: None,
        on_encoded=lambda batch: None,
    )
    for batch in sent:
        sender.push(line, batch)
    # Giving up the waiting leaves the batches on their way; nothing is half taken back.
    await asyncio.shield(done)
    return sent


def _batch(bucket: TableBucket, rows: pa.RecordBatch, deletes: Deletes) -> Batch:
    batch = Batch(bucket, 0.0)
    batch.add(Piece(bucket, rows, deletes, rows.nbytes), WriteResultHandle(lambda: None))
    return batch
