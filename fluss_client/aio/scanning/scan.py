"""The builder of scans, and the scanner of some rows of one bucket."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from fluss_client.aio.projection import Projection, indexes_of
from fluss_client.aio.scanning.log_scanner import LogScanner
from fluss_client.aio.scanning.ranges import check_bucket
from fluss_client.aio.scanning.records import to_frame
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
"""The offsets in a batch of a limit scan. The server does not send them."""


class TableScan:
    """Builds scanners. Each call changes the builder and returns it.

    Obtain it with `FlussTable.new_scan()`; do not call the constructor.
    """

    def __init__(
        self,
        backend: Backend,
        table: TableInfo,
        config: Config,
        background: Callable[[], Backend] | None = None,
    ) -> None:
        # `background` returns a backend on the process's I/O thread, for readers that block.
        self._backend = backend
        self._table = table
        self._config = config
        self._background = background
        self._wanted: list[int] | None = None
        self._limit: int | None = None
        self._predicate: Predicate | None = None

    def project(self, indices: Sequence[int]) -> TableScan:
        """Read some columns only.

        Args:
            indices: The positions of the columns, in the order in which the scan returns them.

        Raises:
            SchemaError: There is no such column, or a column is named twice.
        """
        wanted = list(indices)
        Projection.of(self._table.schema, wanted)
        self._wanted = wanted
        return self

    def project_by_name(self, names: Sequence[str]) -> TableScan:
        """Read some columns only.

        Args:
            names: The names of the columns, in the order in which the scan returns them.

        Raises:
            SchemaError: There is no such column, or a column is named twice.
        """
        return self.project(indexes_of(self._table.schema, names))

    def with_fixed_schema(self, fixed_schema: bool) -> TableScan:
        """Set whether every batch has the schema that the table had when it was opened.

        Args:
            fixed_schema: True, which is the default.

        Raises:
            UnsupportedError: `fixed_schema` is false.
        """
        if not fixed_schema:
            raise UnsupportedError(
                "batches in the schema that they were written with are not offered: every batch "
                "is given in the table's schema, columns that it lacks as nulls"
            )
        return self

    def limit(self, n: int) -> TableScan:
        """Read at most `n` rows of one bucket, with `create_bucket_batch_scanner`.

        Args:
            n: The number of rows, at least 1.

        Raises:
            SchemaError: `n` is not a valid number of rows.
        """
        if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= LIMIT_MAX:
            raise SchemaError(f"a limit lies between 1 and {LIMIT_MAX}, not {n!r}")
        self._limit = n
        return self

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
        if not isinstance(predicate, Predicate):
            raise PredicateError(f"a filter is made of col(), not {predicate!r}")
        self._predicate = predicate if self._predicate is None else self._predicate & predicate
        return self

    def create_bucket_batch_scanner(self, bucket: TableBucket) -> BatchScanner:
        """Create a scanner of some rows of one bucket. It needs a `limit`.

        It reads the key state of a primary-key table, and the end of the log of a log table.

        Args:
            bucket: The bucket.

        Raises:
            UnsupportedError: The scan has no limit, or has a filter.
            SubscriptionError: The table has no such bucket.
        """
        if self._predicate is not None:
            raise UnsupportedError(
                "a scan with a limit takes no filter: which rows it gives is not known before"
            )
        if self._limit is None:
            raise UnsupportedError(
                "a bucket's batch scanner needs limit(n); to read a whole log use "
                "create_record_batch_log_scanner()"
            )
        check_bucket(self._backend, self._table, bucket)
        return BatchScanner(self._backend, self._table, bucket, self._limit, self._projection())

    async def create_log_scanner(self) -> LogScanner:
        """Create a scanner of single records, for `poll()`.

        Raises:
            UnsupportedError: The scan has a limit.
        """
        return self._log_scanner(batches=False)

    async def create_record_batch_log_scanner(self) -> LogScanner:
        """Create a scanner of Arrow batches, for `poll_arrow()`, `to_arrow()` and others.

        Raises:
            UnsupportedError: The scan has a limit.
        """
        return self._log_scanner(batches=True)

    create_batch_scanner = create_record_batch_log_scanner
    """The name of `create_record_batch_log_scanner` in the older guide."""

    def _projection(self) -> Projection:
        if self._predicate is not None:
            return Projection.filtered(self._table.schema, self._wanted, self._predicate)
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
    """Reads at most `limit` rows of one bucket, once. After an error, create a new one.

    Obtain it with `TableScan.create_bucket_batch_scanner()`; do not call the constructor.
    """

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
        """Return the bucket that is read."""
        return self._bucket

    async def next_batch(self) -> RecordBatch | None:
        """Return the next batch, or None when all rows were returned."""
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
        """Return all batches that were not returned yet."""
        batch = await self.next_batch()
        return [] if batch is None else [batch]

    async def to_arrow(self) -> pa.Table:
        """Return the rows that were not returned yet as an Arrow table, which may be empty."""
        batches = await self.collect_all_batches()
        return pa.Table.from_batches([b.batch for b in batches], self._projection.schema)

    async def to_pandas(self) -> pd.DataFrame:
        """Return the rows that were not returned yet as a DataFrame.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        return to_frame(await self.to_arrow())

    def __repr__(self) -> str:
        return f"BatchScanner({self._table.table_path}, {self._bucket}, limit={self._limit})"
