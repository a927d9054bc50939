"""Who takes part, and what they work on; tables are filled when the first case needs them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

import fluss_client as fluss
from benchmarks.client.awaited import Awaited
from benchmarks.client.data import Row, Sizes, batches, day_batches, dict_rows, nbytes, order_lines
from benchmarks.client.limit import Limit
from benchmarks.client.ours import Ours
from benchmarks.client.tables import Tables

BUCKETS = 16
KEY_BUCKETS = 8
IMPATIENT_WAIT_MS = 20


@dataclass
class Subjects:
    """Ours, pyfluss and the bare socket, with the data of a run."""

    bootstrap: str
    sizes: Sizes
    tables: Tables
    ours: Ours
    impatient: Ours
    """Ours with servers that wait less before they answer a fetch that found nothing."""
    awaited: Awaited
    """Ours as pyfluss is called: awaited on the caller's loop."""
    peer: Awaited
    limit: Limit

    @cached_property
    def rows(self) -> list[pa.RecordBatch]:
        """Arrow batches for appends."""
        return batches(self.sizes.arrow_rows)

    @cached_property
    def bytes(self) -> int:
        """How many bytes `rows` are."""
        return nbytes(self.rows)

    @cached_property
    def upserts(self) -> list[pa.RecordBatch]:
        """Arrow batches for upserts."""
        return batches(self.sizes.upsert_rows)

    @cached_property
    def dicts(self) -> list[Row]:
        """Rows as Python dicts."""
        return dict_rows(self.sizes.dict_rows)

    @cached_property
    def days(self) -> list[pa.RecordBatch]:
        """A batch for each partition."""
        return day_batches(self.sizes.arrow_rows, self.sizes.partitions)

    @cached_property
    def log(self) -> fluss.TablePath:
        """`rows` in one bucket."""
        return self.tables.fill(self.tables.new(), self.rows)

    @cached_property
    def wide_log(self) -> fluss.TablePath:
        """`rows` in 16 buckets."""
        return self.tables.fill(self.tables.new(buckets=BUCKETS), self.rows)

    @cached_property
    def log_by_day(self) -> fluss.TablePath:
        """`days` in their partitions."""
        return self.tables.fill(self.tables.new_by_day(self.sizes.partitions), self.days)

    @cached_property
    def days_to_fill(self) -> fluss.TablePath:
        """Partitions that all subjects append to."""
        return self.tables.new_by_day(self.sizes.partitions)

    @cached_property
    def users(self) -> fluss.TablePath:
        """`upserts` by their key."""
        return self.tables.fill(self.tables.new(key=True), self.upserts)

    @cached_property
    def orders(self) -> fluss.TablePath:
        """Lines of orders, found by the order."""
        return self.tables.fill(self.tables.new_orders(), [order_lines(self.sizes.orders)])
