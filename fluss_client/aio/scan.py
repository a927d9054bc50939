"""Building scans: columns, limits, and which kind of scanner reads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from fluss_client.aio.log_scanner import LogScanner
from fluss_client.aio.projection import Projection, indexes_of
from fluss_client.aio.ranges import check_bucket
from fluss_client.aio.scan_frames import to_frame
from fluss_client.backend.contract import Backend
from fluss_client.config import Config
from fluss_client.errors import PredicateError, SchemaError, UnsupportedError
from fluss_client.model.predicate import Predicate
from fluss_client.model.records import RecordBatch
from fluss_client.model.table import TableBucket, TableInfo
from fluss_client.runtime import ProcessBound

if TYPE_CHECKING:
    import pandas as pd

LIMIT_MAX = (1 << 31) - 1
NO_OFFSET = -1
"""The offsets of a limit scan's batch: the server does not tell them."""

__all__ = ["BatchScanner", "LogScanner", "TableScan"]


class TableScan:
    """Says what to read of a table. Each call changes the builder and returns it.

    `background` gives a backend on the process's I/O thread, for readers that block.
    """

    def __init__(
        self,
        backend: Backend,
        table: TableInfo,
        config: Config,
        background: Callable[[], Backend] | None = None,
    ) -> None:
        self._backend = backend
        self._table = table
        self._config = config
        self._background = background
        self._wanted: list[int] | None = None
        self._limit: int | None = None
        self._predicate: Predicate | None = None

    def project(self, indices: Sequence[int]) -> TableScan:
        """Read these columns only, by index, in this order."""
        wanted = list(indices)
        Projection.of(self._table.schema, wanted)
        self._wanted = wanted
        return self

    def project_by_name(self, names: Sequence[str]) -> TableScan:
        """Read these columns only, by name, in this order."""
        return self.project(indexes_of(self._table.schema, names))

    def with_fixed_schema(self, fixed_schema: bool) -> TableScan:
        """True (the default): every batch has the schema of the table as it was opened."""
        if not fixed_schema:
            raise UnsupportedError(
                "batches in the schema that they were written with are not offered: every batch "
                "is given in the table's schema, columns that it lacks as nulls"
            )
        return self

    def limit(self, n: int) -> TableScan:
        """Read at most `n` rows of one bucket, with `create_bucket_batch_scanner`."""
        if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= LIMIT_MAX:
            raise SchemaError(f"a limit lies between 1 and {LIMIT_MAX}, not {n!r}")
        self._limit = n
        return self

    def filter(self, predicate: Predicate) -> TableScan:
        """Say which rows are wanted, so that batches without any of them may be left out.

        It saves work and is no sieve: rows that do not match may come, so apply the condition to
        what comes. Servers before 1.0 and the embedded engine leave out nothing, and this client
        does not ask newer ones to. Conditions of several calls must all hold.

        Args:
            predicate: A condition made of `col()`. Whether it fits the columns is checked when
                the scanner is made.
        """
        if not isinstance(predicate, Predicate):
            raise PredicateError(f"a filter is made of col(), not {predicate!r}")
        self._predicate = predicate if self._predicate is None else self._predicate & predicate
        return self

    def create_bucket_batch_scanner(self, bucket: TableBucket) -> BatchScanner:
        """A scanner for some rows of one bucket: key state, or the end of a log."""
        if self._predicate is not None:
            raise UnsupportedError(
                "a scan with a limit takes no filter: which rows it gives is not known before"
            )
        if self._limit is None:
            raise UnsupportedError(
                "a bucket's batch scanner needs limit(n); to read a whole log use "
                "create_record_batch_log_scanner()"
            )
        check_bucket(self._table, bucket)
        return BatchScanner(self._backend, self._table, bucket, self._limit, self._projection())

    async def create_log_scanner(self) -> LogScanner:
        """A scanner for records, one by one: `poll()`."""
        return self._log_scanner(batches=False)

    async def create_record_batch_log_scanner(self) -> LogScanner:
        """A scanner for Arrow batches: `poll_arrow()`, `to_arrow()` and the like."""
        return self._log_scanner(batches=True)

    def _projection(self) -> Projection:
        return Projection.of(self._table.schema, self._wanted)

    def _log_scanner(self, *, batches: bool) -> LogScanner:
        if self._limit is not None:
            raise UnsupportedError(
                "a log scanner takes no limit: use create_bucket_batch_scanner(), or stop polling"
            )
        if self._predicate is not None:
            self._predicate.check(self._table.schema)
        return LogScanner(
            self._backend,
            self._table,
            self._projection(),
            self._config,
            batches=batches,
            background=self._background,
        )


class BatchScanner(ProcessBound):
    """At most `limit` rows of one bucket, read once; after an error make a new one."""

    def __init__(
        self,
        backend: Backend,
        table: TableInfo,
        bucket: TableBucket,
        limit: int,
        projection: Projection,
    ) -> None:
        self._bind_process()
        self._backend = backend
        self._table = table
        self._bucket = bucket
        self._limit = limit
        self._projection = projection
        self._spent = False

    @property
    def bucket(self) -> TableBucket:
        """The bucket that is read."""
        return self._bucket

    async def next_batch(self) -> RecordBatch | None:
        """The rows, the first time; None from then on."""
        self._check_process()
        if self._spent:
            return None
        self._spent = True
        batch = await self._backend.limit_scan(
            self._table, self._bucket, self._limit, self._projection.columns
        )
        restored = self._projection.restore(batch)
        return RecordBatch(restored, self._bucket, NO_OFFSET, NO_OFFSET)

    async def collect_all_batches(self) -> list[RecordBatch]:
        """Every batch that is left: one or none."""
        batch = await self.next_batch()
        return [] if batch is None else [batch]

    async def to_arrow(self) -> pa.Table:
        """The rows that are left as a table; an empty one when there are none."""
        batches = await self.collect_all_batches()
        return pa.Table.from_batches([b.batch for b in batches], self._projection.schema)

    async def to_pandas(self) -> pd.DataFrame:
        """The rows that are left as a DataFrame; needs pandas."""
        return to_frame(await self.to_arrow())

    def __repr__(self) -> str:
        return f"BatchScanner({self._table.table_path}, {self._bucket}, limit={self._limit})"
