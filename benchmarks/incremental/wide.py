"""Tables of many places: what a plan, a read and a commit cost as they grow."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from benchmarks.harness import Measured
from fluss_client import FlussConnection, Schema, TableDescriptor, TablePath
from fluss_orchestrate import CheckpointStore, IncrementalScan, ParquetSink

COLUMNS = pa.schema([("id", pa.int64()), ("day", pa.string())])
PARTITION_WAIT_S = 120.0
PARTITIONS_AT_ONCE = 32
MS = 1000


@dataclass
class WideTable:
    """A table of buckets times partitions, and a scan of it that has read everything.

    `rows` are those that each bucket gets at first, about; the table is made unless `exists`.
    """

    connection: FlussConnection
    store: CheckpointStore
    path: TablePath
    buckets: int
    partitions: int
    rows: int = 8
    exists: bool = False
    runs: int = 0

    def __post_init__(self) -> None:
        self.scan = IncrementalScan(self.connection, self.path, self.path.table_name, self.store)
        if not self.exists:
            self._make()

    def _make(self) -> None:
        admin = self.connection.get_admin().result()
        descriptor = TableDescriptor(
            Schema(COLUMNS),
            bucket_count=self.buckets,
            bucket_keys=["id"],
            partition_keys=["day"] if self.partitions else [],
        )
        admin.create_table(self.path, descriptor).result()
        for first in range(0, self.partitions, PARTITIONS_AT_ONCE):
            numbers = range(first, min(self.partitions, first + PARTITIONS_AT_ONCE))
            making = [admin.create_partition(self.path, {"day": day(n)}) for n in numbers]
            for made in making:
                made.result(PARTITION_WAIT_S)
        # Other offsets everywhere: a record of equal ones would compress to nothing.
        self._append(lambda n: self.buckets * (self.rows + n % (11 * self.rows)), self.partitions)
        self.scan.skip(self.scan.plan("first"), "what is there is not measured")

    @property
    def places(self) -> int:
        """How many positions a checkpoint of it holds."""
        return self.buckets * max(1, self.partitions)

    def change(self, partitions: int) -> None:
        """Rows for all buckets of some partitions; enough of them to hit every bucket."""
        self._append(lambda number: self.buckets * 16, partitions)

    def _append(self, rows: Callable[[int], int], partitions: int) -> None:
        table = self.connection.get_table(self.path).result()
        with table.new_append().create_writer() as writer:
            for number in range(max(1, partitions)):
                ids = range(number, number + rows(number))
                days = [day(number)] * len(ids)
                writer.write_arrow_batch(pa.record_batch([ids, days], schema=COLUMNS))

    def increment(self, folder: Path, changed_partitions: int) -> dict[str, float]:
        """Milliseconds of each step, the changed places, and the bytes of the plan's record."""
        self.change(changed_partitions)
        self.runs += 1
        started = time.perf_counter()
        plan = self.scan.plan(f"run/{os.getpid()}/{self.runs}")
        planned = time.perf_counter()
        done = ParquetSink(folder).write(plan, self.scan.read)
        written = time.perf_counter()
        self.scan.commit(plan, rows=done.rows)
        committed = time.perf_counter()
        head = self.scan.store.require(self.scan.name)
        return {
            "plan_ms": (planned - started) * MS,
            "sink_ms": (written - planned) * MS,
            "commit_ms": (committed - written) * MS,
            "changed": len(plan.ranges),
            "record_bytes": len(head.body(head.layers[-1].to_json())),
        }


def planning(found: dict[str, float]) -> Measured:
    """The figure is the plan's time; the rest is beside it."""
    return Measured(
        found["plan_ms"],
        also={"commit ms": found["commit_ms"], "record bytes": found["record_bytes"]},
    )


def sinking(found: dict[str, float]) -> Measured:
    """The figure is the time of read and sink per changed bucket."""
    return Measured(
        found["sink_ms"] / found["changed"],
        also={"changed buckets": found["changed"], "read and sink ms": found["sink_ms"]},
    )


def day(number: int) -> str:
    """The name of a partition."""
    return f"d{number:05}"
