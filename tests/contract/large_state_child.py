"""Processes of `test_large_state`: one that writes until it is ended, and one per way of reading.

    python -m tests.contract.large_state_child write   ADDRESS TABLE ROWS
    python -m tests.contract.large_state_child WAY     ADDRESS TABLE ROWS

A reader prints JSON: the number of rows, a digest of them, the offsets of the changelog before and
after, the seconds, and how far its memory rose above what it was before. Ways: `read_table`,
`state` (a plan of `start="state"`), `spark`.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset

import fluss_client as fluss
from tests.waiting import let_pass

SCHEMA = pa.schema([("id", pa.int64()), ("version", pa.int32()), ("text", pa.string())])
PADDING = "a text that makes the row about one hundred bytes long, with its numbers before"
WRITE_ROWS = 500
WRITE_PAUSE_S = 0.05
MB = 1 << 20


def text_of(ids: pa.Array, versions: pa.Array) -> pa.Array:
    """The text that every row must have."""
    parts = [ids.cast(pa.string()), versions.cast(pa.string()), pa.scalar(PADDING)]
    return pc.binary_join_element_wise(*parts, " ")


def rows_of(ids: npt.NDArray[np.int64], versions: npt.NDArray[np.int32]) -> pa.Table:
    """Rows of these ids and versions."""
    columns = [pa.array(ids), pa.array(versions)]
    return pa.table([*columns, text_of(*columns)], schema=SCHEMA)


def hashes(ids: pa.Array, versions: pa.Array) -> npt.NDArray[np.uint64]:
    """A hash of each row; their sum is a digest of a set of rows."""
    value = ids.to_numpy().astype(np.uint64) << np.uint64(32)
    value ^= versions.to_numpy().astype(np.uint32).astype(np.uint64)
    # splitmix64
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def connect(address: str) -> fluss.FlussConnection:
    """A connection."""
    return fluss.FlussConnection.create(fluss.Config({"bootstrap.servers": address})).result()


def write(address: str, table: str, rows: int) -> None:
    """Upsert and delete random keys until the process is ended."""
    numbers = np.random.default_rng(os.getpid())
    with connect(address) as connection:
        opened = connection.get_table(fluss.TablePath.parse(table)).result()
        with opened.new_upsert().create_writer() as writer:
            while True:
                ids = numbers.integers(0, rows + rows // 100 + 1, WRITE_ROWS)
                versions = numbers.integers(1, 1 << 30, WRITE_ROWS).astype(np.int32)
                writer.write_arrow(rows_of(ids, versions))
                for gone in ids[: WRITE_ROWS // 5].tolist():
                    writer.delete({"id": gone})
                writer.flush().result()
                let_pass(WRITE_PAUSE_S, "a writer that leaves room for others")


def memory_mb(pid: int | str = "self", field: str = "VmRSS") -> float:
    """The memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    return 0.0


class Digest:
    """What was read, in constant memory."""

    def __init__(self) -> None:
        self.rows, self.sum = 0, 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows, and check the text of each."""
        ids, versions = batch.column("id"), batch.column("version")
        wrong = pc.sum(pc.not_equal(batch.column("text"), text_of(ids, versions))).as_py()
        assert not wrong, f"{wrong} rows have the text of others"
        self.rows += batch.num_rows
        self.sum = (self.sum + int(hashes(ids, versions).sum(dtype=np.uint64))) % (1 << 64)


def latest(connection: fluss.FlussConnection, table: str) -> int:
    """The end of the bucket's changelog."""
    admin = connection.get_admin().result()
    path = fluss.TablePath.parse(table)
    return int(admin.list_offsets(path, [0], fluss.OffsetSpec.latest()).result()[0])


def by_read_table(connection: fluss.FlussConnection, table: str) -> Iterator[pa.RecordBatch]:
    """All rows of `read_table`."""
    from fluss_orchestrate import read_table

    yield from read_table(connection, table)


def by_state(connection: fluss.FlussConnection, table: str) -> Iterator[pa.RecordBatch]:
    """The first plan of `start="state"`."""
    from fluss_orchestrate import IncrementalScan

    scan = IncrementalScan(connection, table, f"large-{os.getpid()}", start="state")
    plan = scan.plan("run")
    yield from scan.read(plan)
    receipt = scan.commit(plan)
    print(json.dumps(receipt.details["state"]), file=sys.stderr)


WAYS = {"read_table": by_read_table, "state": by_state}


def read(way: str, address: str, table: str) -> dict[str, object]:
    """Read all rows in this process."""
    digest = Digest()
    with connect(address) as connection:
        # What is imported and allocated for any read at all does not count.
        latest(connection, table)
        digest.add(rows_of(np.arange(1), np.zeros(1, np.int32)).to_batches()[0])
        digest.__init__()  # type: ignore[misc]

        before = latest(connection, table)
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
        start_mb, started = memory_mb(), time.monotonic()
        for batch in WAYS[way](connection, table):
            digest.add(batch)
        seconds = time.monotonic() - started
        peak_mb = memory_mb(field="VmHWM")
        after = latest(connection, table)
    return told(digest, before, after, seconds, peak_mb - start_mb)


def told(
    digest: Digest, before: int, after: int, seconds: float, memory: float
) -> dict[str, object]:
    """What a reader prints."""
    return {
        "rows": digest.rows,
        "digest": digest.sum,
        "before": before,
        "after": after,
        "seconds": round(seconds, 2),
        "memory_mb": round(memory, 1),
    }


class WorkerMemory(threading.Thread):
    """How much the Python workers of Spark grow while a job runs."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.first: dict[int, float] = {}
        self.most_mb = 0.0
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.1):
            for pid in _descendants(os.getpid()):
                try:
                    # The JVM, whose command line has "pyspark-shell", is not a worker.
                    if b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes():
                        now = memory_mb(pid)
                        self.most_mb = max(self.most_mb, now - self.first.setdefault(pid, now))
                except OSError:
                    continue

    def end(self) -> float:
        """Stop, and return the growth of the worker that grew most."""
        self._over.set()
        self.join()
        return self.most_mb


def _descendants(root: int) -> list[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int(
                    (entry / "stat").read_text().rpartition(")")[2].split()[1]
                )
            except OSError:
                continue
    found, waiting = [], [root]
    while waiting:
        one = waiting.pop()
        children = [pid for pid, parent in parents.items() if parent == one]
        found += children
        waiting += children
    return found


def read_by_spark(address: str, table: str) -> dict[str, object]:
    """Read all rows with Spark into Parquet files, and look at these."""
    from fluss_orchestrate.spark import register
    from fluss_orchestrate.spark.setup import make_session

    session = make_session("large", "local[1]", {"spark.driver.memory": "512m"})
    register(session)
    try:
        with connect(address) as connection, tempfile.TemporaryDirectory() as folder:
            options = {"bootstrap.servers": address, "table": table, "read": "current"}
            # What a worker imports for any read at all does not count, as in the other ways.
            session.read.format("fluss").options(**options).option("limit", 10).load().collect()
            before = latest(connection, table)
            memory, started = WorkerMemory(), time.monotonic()
            memory.start()
            frame = session.read.format("fluss").options(**options).load()
            frame.write.parquet(f"{folder}/rows")
            seconds, grown = time.monotonic() - started, memory.end()
            after = latest(connection, table)
            digest = Digest()
            for batch in pa.dataset.dataset(f"{folder}/rows").to_batches():
                if batch.num_rows:
                    digest.add(batch)
            return told(digest, before, after, seconds, grown)
    finally:
        session.stop()


def main() -> None:
    """Run one process."""
    way, address, table, rows = sys.argv[1:]
    if way == "write":
        write(address, table, int(rows))
    elif way == "spark":
        print(json.dumps(read_by_spark(address, table)))
    else:
        print(json.dumps(read(way, address, table)))


if __name__ == "__main__":
    main()
