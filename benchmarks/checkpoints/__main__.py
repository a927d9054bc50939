"""`python -m benchmarks.checkpoints [--bootstrap ADDR] [--rounds N] [--history N] ...`.

Without an address it runs on the embedded engine, in a folder of its own. It prints the time of
an empty increment (plan and commit, 16 buckets), the same after a long history, and the time of a
plan over many places of which few have changed. Goals: 10 ms embedded and 50 ms on a loopback
cluster for an empty increment, whatever its history; one second for 10,000 places.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time

import pyarrow as pa

from fluss_client import Config, FlussConnection, FlussTable, Schema, TableDescriptor, TablePath
from fluss_orchestrate.core.checkpoints import FlussCheckpointStore
from fluss_orchestrate.core.incremental import IncrementalScan

DATABASE = f"bench_checkpoints_{time.time_ns()}"
BUCKETS = 16
CHANGED_ROWS = 20
COLUMNS = pa.schema([("id", pa.int64()), ("day", pa.string())])

_numbers = itertools.count()


class Bench:
    """One database with the tables to scan and the store."""

    def __init__(self, connection: FlussConnection) -> None:
        self.connection = connection
        self.admin = connection.get_admin().result(30)
        self.admin.create_database(DATABASE).result(30)

    def scan(self, partitions: int = 0) -> tuple[FlussTable, IncrementalScan]:
        """A table, empty, and a scan of it."""
        path = TablePath(DATABASE, f"t{next(_numbers)}")
        keys = ["day"] if partitions else []
        made = TableDescriptor(Schema(COLUMNS), bucket_count=BUCKETS, partition_keys=keys)
        self.admin.create_table(path, made).result(60)
        for number in range(partitions):
            self.admin.create_partition(path, {"day": f"d{number:05}"}).result(60)
        store = FlussCheckpointStore(self.connection, DATABASE, "store", replicas=1)
        scan = IncrementalScan(self.connection, path, path.table_name, store)
        return self.connection.get_table(path).result(60), scan

    def close(self) -> None:
        self.admin.drop_database(DATABASE, cascade=True).result(120)


def empty_increments(scan: IncrementalScan, count: int) -> list[float]:
    """Milliseconds of each plan and commit of nothing."""
    times = []
    for number in range(count):
        started = time.perf_counter()
        scan.commit(scan.plan(f"{next(_numbers)}/{number}"))
        times.append((time.perf_counter() - started) * 1000)
    return times


def wide_plans(table: FlussTable, scan: IncrementalScan, partitions: int, rounds: int) -> list[str]:
    """One line per plan over all places after a few of them have changed."""
    lines = []
    for turn in range(rounds):
        with table.new_append().create_writer() as writer:
            for number in range(CHANGED_ROWS):
                day = (turn * 37 + number) % partitions
                writer.append({"id": number, "day": f"d{day:05}"})
        started = time.perf_counter()
        plan = scan.plan(f"wide/{turn}")
        planned = time.perf_counter()
        scan.read(plan).read_all()
        read = time.perf_counter()
        scan.commit(plan)
        done = time.perf_counter()
        lines.append(
            f"  plan {planned - started:6.3f} s, read {read - planned:6.3f} s, "
            f"commit {done - read:6.3f} s, {len(plan.ranges)} ranges"
        )
    return lines


def show(what: str, times: list[float]) -> None:
    ordered = sorted(times)
    ninetieth = ordered[int(len(ordered) * 0.9)]
    print(f"{what:<28} {statistics.median(times):7.1f} ms median {ninetieth:7.1f} ms p90")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoints", description=__doc__)
    parser.add_argument("--bootstrap", default="", help="use this cluster, not the embedded engine")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--history", type=int, default=1000, help="increments before the last ones")
    parser.add_argument(
        "--partitions", type=int, default=625, help="of 16 buckets each; 0 for none"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fluss-bench-") as folder:
        address = options.bootstrap or f"embedded:{folder}"
        with FlussConnection.create(Config({"bootstrap.servers": address})).result(60) as connected:
            bench = Bench(connected)
            try:
                _, scan = bench.scan()
                empty_increments(scan, 5)
                show("empty increment", empty_increments(scan, options.rounds))
                empty_increments(scan, options.history)
                what = f"… after {options.history} more"
                show(what, empty_increments(scan, options.rounds))
                if options.partitions:
                    table, scan = bench.scan(options.partitions)
                    print(f"{options.partitions * BUCKETS} places, {CHANGED_ROWS} rows new:")
                    print("\n".join(wide_plans(table, scan, options.partitions, 5)))
            finally:
                bench.close()


if __name__ == "__main__":
    main()
