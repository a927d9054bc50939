"""Writing a stream: a micro-batch that was written whole is never written again.

Each finished batch is recorded in Fluss under the query's id, so that a query that died between
its writing and its checkpoint does not repeat it. A batch that was written in part is repeated
whole: a key table takes that as the same rows, a log table has some of them twice. For a log table
that must have each row once there is `exactly_once_batches`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from fluss_client.errors import ConfigError
from fluss_client.facade.connection import FlussConnection
from fluss_client.runtime import runtime
from fluss_orchestrate.core.checkpoints.events import now_ms
from fluss_orchestrate.core.loading.sending import open_ledger
from fluss_orchestrate.spark.compat import HAS_STREAM_WRITER, StreamArrowWriter, needs_version
from fluss_orchestrate.spark.source.options import SourceOptions
from fluss_orchestrate.spark.source.writing import WriteJob, write_job

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
        """Whether the batch was written whole."""
        return runtime().call(self._table.lookup([(self._name, batch_id)]))[0] is not None

    def finish(self, batch_id: int) -> None:
        """Record that it is."""
        row = {"name": self._name, "seq": batch_id, "kind": "batch", "created_ms": now_ms()}
        runtime().call(self._table.put([row]))


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
        """Nothing: the batch will come again."""


def stream_writer(options: SourceOptions, schema: StructType, overwrite: bool) -> FlussStreamWriter:
    """A writer for a stream of this schema, checked."""
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
    info = runtime().call(connection.core.backend.get_table_info(options.table))
    return FlussStreamWriter(job, info.table_id)
