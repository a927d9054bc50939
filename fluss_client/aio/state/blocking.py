"""The key state of a bucket for blocking code."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from types import TracebackType

import pyarrow as pa

from fluss_client.aio.connection import FlussConnection
from fluss_client.aio.state.reader import BATCH_ROWS, StateReader, StateSource
from fluss_client.model.table import TableBucket, TableInfo
from fluss_client.runtime import runtime


class BlockingState:
    """The rows of one bucket at one offset, as an iterator of Arrow batches.

    The constructor opens the state. Use the object as a context manager, or call `close`. See
    `StateReader` for the errors.

    Args:
        connection: A connection on the client's I/O thread, such as that of a blocking
            `FlussConnection`.
        table: The key table to read.
        bucket: The bucket to read.
        stop: The offset at which the rows are read; None reads them as they are now.
        columns: The names of the columns to read; None reads all.
        batch_rows: The largest number of rows of a batch.
    """

    def __init__(
        self,
        connection: FlussConnection,
        table: TableInfo,
        bucket: TableBucket,
        *,
        stop: int | None = None,
        columns: Sequence[str] | None = None,
        batch_rows: int = BATCH_ROWS,
    ) -> None:
        """Open the state of a bucket; see `StateReader` for the arguments and errors."""

        async def opened() -> StateReader:
            reader = StateReader(
                connection.backend,
                table,
                bucket,
                connection.config,
                stop=stop,
                columns=columns,
                batch_rows=batch_rows,
            )
            return await reader.open()

        self._reader = runtime().call(opened())
        names = table.get_column_names() if columns is None else columns
        self._schema = pa.schema([table.schema.arrow.field(name) for name in names])

    @property
    def stop(self) -> int:
        """The offset of the changelog at which the rows are exact."""
        return self._reader.stop

    @property
    def source(self) -> StateSource:
        """Where the rows come from."""
        return self._reader.source

    def no_rows(self) -> pa.RecordBatch:
        """Return a batch without rows, in the schema of the others."""
        return pa.RecordBatch.from_pylist([], self._schema)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        batches: AsyncIterator[pa.RecordBatch] = self._reader.batches()

        async def next_batch() -> pa.RecordBatch | None:
            return await anext(batches, None)

        while (batch := runtime().call(next_batch())) is not None:
            yield batch

    def __enter__(self) -> BlockingState:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the snapshot and delete temporary files."""
        runtime().call(self._reader.close())
