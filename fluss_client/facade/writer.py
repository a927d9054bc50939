"""Writers as the guides use them: writes return at once, `flush` and `wait` give handles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

import pyarrow as pa

from fluss_client.aio import writer as core
from fluss_client.facade.handle import Handle
from fluss_client.leaving import leaving

RowLike = Mapping[str, Any] | Sequence[Any]
SelfT = TypeVar("SelfT", bound="_Writer")


class WriteResultHandle(core.WriteResultHandle):
    """The acknowledgement of one write; ignore it, or wait for it."""

    __slots__ = ()

    def wait(self) -> Handle[None]:  # type: ignore[override]
        """Send what is pending now; await the acknowledgement or call `.result()`."""
        return Handle(self.future(), "write")


class _Writer:
    """What both writers share."""

    _core: core.AppendWriter | core.UpsertWriter

    def flush(self) -> Handle[None]:
        """Send everything; the handle fails with the first error that nobody was told of yet."""
        return Handle(self._core.flush_future(), "flush")

    def close(self) -> None:
        """Flush and let go of the writer."""
        self._core.close_future().result()

    def metrics(self) -> dict[str, float]:
        """Rows, batches, bytes and retries so far."""
        return self._core.metrics()

    def __enter__(self: SelfT) -> SelfT:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with leaving(exc):
            self.close()

    async def __aenter__(self: SelfT) -> SelfT:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with leaving(exc):
            await Handle(self._core.close_future(), "close")


class AppendWriter(_Writer):
    """Appends rows to a log table."""

    def __init__(self, writer: core.AppendWriter) -> None:
        writer.hand_out(WriteResultHandle)
        self._core: core.AppendWriter = writer

    def append(self, row: RowLike) -> WriteResultHandle:
        """Append a row: a dict, or a list or tuple in column order."""
        return self._core.append(row)  # type: ignore[return-value]

    def write_arrow(self, table: pa.Table) -> None:
        """Append every row of an Arrow table."""
        self._core.write_arrow(table)

    def write_arrow_batch(self, batch: pa.RecordBatch) -> WriteResultHandle:
        """Append every row of an Arrow batch."""
        return self._core.write_arrow_batch(batch)  # type: ignore[return-value]

    def write_pandas(self, df: Any) -> None:
        """Append every row of a DataFrame."""
        self._core.write_pandas(df)


class UpsertWriter(_Writer):
    """Upserts and deletes rows of a primary-key table."""

    def __init__(self, writer: core.UpsertWriter) -> None:
        writer.hand_out(WriteResultHandle)
        self._core: core.UpsertWriter = writer

    def upsert(self, row: RowLike) -> WriteResultHandle:
        """Insert a row, or replace the one with its key."""
        return self._core.upsert(row)  # type: ignore[return-value]

    def delete(self, pk: RowLike) -> WriteResultHandle:
        """Delete the row of a key."""
        return self._core.delete(pk)  # type: ignore[return-value]

    def write_arrow(self, table: pa.Table) -> None:
        """Upsert every row of an Arrow table, in order."""
        self._core.write_arrow(table)

    def write_arrow_batch(self, batch: pa.RecordBatch) -> WriteResultHandle:
        """Upsert every row of an Arrow batch, in order."""
        return self._core.write_arrow_batch(batch)  # type: ignore[return-value]

    def write_pandas(self, df: Any) -> None:
        """Upsert every row of a DataFrame, in order."""
        self._core.write_pandas(df)

    def delete_arrow(self, keys: pa.Table | pa.RecordBatch) -> WriteResultHandle:
        """Delete the rows of every key of an Arrow table with the primary-key columns."""
        return self._core.delete_arrow(keys)  # type: ignore[return-value]


class TableAppend:
    """Builds an `AppendWriter`."""

    def __init__(self, builder: core.TableAppend) -> None:
        self._core = builder

    def create_writer(self) -> AppendWriter:
        """The writer."""
        return AppendWriter(self._core.create_writer())


class TableUpsert(UpsertWriter):
    """Builds an `UpsertWriter`, and is one itself for code after the older guide."""

    def __init__(self, builder: core.TableUpsert) -> None:
        self._builder = builder
        self._made: core.UpsertWriter | None = None

    @property
    def _core(self) -> core.UpsertWriter:  # type: ignore[override]
        if self._made is None:
            self._made = self._builder.create_writer()
            self._made.hand_out(WriteResultHandle)
        return self._made

    def partial_update_by_name(self, columns: Sequence[str]) -> TableUpsert:
        """Write only these columns; they must include the primary key."""
        return TableUpsert(self._builder.partial_update_by_name(columns))

    def partial_update_by_index(self, column_indices: Sequence[int]) -> TableUpsert:
        """Write only these columns; they must include the primary key."""
        return TableUpsert(self._builder.partial_update_by_index(column_indices))

    def create_writer(self) -> UpsertWriter:
        """The writer."""
        return UpsertWriter(self._builder.create_writer())
