"""A key table that is much larger than what a server could collect, read while others write.

Long form: 8 million rows of about 100 bytes in one bucket of a tablet server with a heap of 1 GB.
Readers run in processes of their own, so that their memory can be measured. What they read is
compared with the changelog: the sum of the rows' hashes must be that of the state at one offset.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client.engine import read_ranges, run_blocking
from fluss_client.testing import LocalCluster
from tests.contract.large_state_child import SCHEMA, connect, hashes, memory_mb, rows_of
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
ROWS_SHORT, ROWS_LONG = 20_000, 8_000_000
LOAD_ROWS = 100_000
CLIENT_MB_MAX = 300.0
SERVER_MB_MAX = 300.0
"""A server with a heap of 1 GB uses more of it while others write; a collected table is 1.6 GB."""
SNAPSHOT_WAIT_S = 300.0
SIGNS = {"+I": 1, "+U": 1, "-U": -1, "-D": -1}


@dataclass
class Large:
    """The table and where it is."""

    cluster: LocalCluster
    connection: fluss.FlussConnection
    path: fluss.TablePath
    rows: int
    long: bool

    @property
    def address(self) -> str:
        """The address of the cluster."""
        return str(self.cluster.info.bootstrap_servers)

    def child(self, way: str) -> list[str]:
        """The command of a process."""
        module = "tests.contract.large_state_child"
        return [sys.executable, "-m", module, way, self.address, str(self.path), str(self.rows)]


@pytest.fixture(scope="module")
def large(request: pytest.FixtureRequest, long_form: bool, tmp_path_factory: Any) -> Iterator[Any]:
    """A table with a snapshot of all its rows, and a process that changes it."""
    own: LocalCluster | None = None
    if long_form:
        request.getfixturevalue("server_jars")
        own = LocalCluster(
            tmp_path_factory.mktemp("large") / "cluster",
            tablet_heap="1g",
            config={"kv.snapshot.interval": "15s"},
        )
        own.up()
    cluster = own or request.getfixturevalue("lake_cluster")
    try:
        with connect(cluster.info.bootstrap_servers) as connection:
            path = fluss.TablePath("fluss", f"large_{time.monotonic_ns()}")
            made = Large(
                cluster, connection, path, ROWS_LONG if own else ROWS_SHORT, own is not None
            )
            load(made)
            writer = subprocess.Popen(made.child("write"), cwd=ROOT)
            try:
                yield made
            finally:
                writer.kill()
                writer.wait()
                connection.get_admin().result().drop_table(path).result()
    finally:
        if own is not None:
            own.down()


def load(large: Large) -> None:
    """Write the rows and wait for a snapshot of them."""
    admin = large.connection.get_admin().result()
    schema = fluss.Schema(SCHEMA, primary_keys=["id"])
    admin.create_table(large.path, fluss.TableDescriptor(schema, bucket_count=1)).result()
    order = np.random.default_rng(1).permutation(large.rows)
    with large.connection.get_table(large.path).result().new_upsert().create_writer() as writer:
        for start in range(0, large.rows, LOAD_ROWS):
            ids = order[start : start + LOAD_ROWS]
            writer.write_arrow(rows_of(ids, np.zeros(len(ids), np.int32)))
    wait_until(
        "a snapshot",
        lambda: (admin.list_kv_snapshots(large.path).result()[0].log_offset or 0) >= large.rows,
        SNAPSHOT_WAIT_S,
        pause_s=0.2,
    )


def grown_mb(pid: int, work: Callable[[], Any]) -> tuple[float, Any]:
    """How far a process grows while something else is done."""
    over, most, first = threading.Event(), [0.0], memory_mb(pid)

    def watch() -> None:
        while not over.wait(0.1):
            most[0] = max(most[0], memory_mb(pid) - first)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        done = work()
    finally:
        over.set()
        thread.join()
    return most[0], done


def states(large: Large, before: int, after: int) -> dict[int, int]:
    """The digest of the state at every offset from `before` to `after`, by the changelog alone."""
    core = large.connection.core

    async def replay() -> dict[int, int]:
        info = await core.backend.get_table_info(large.path)
        bucket = fluss.TableBucket(info.table_id, 0)
        signs = np.zeros(256, np.int64)
        for kind in fluss.ChangeType:
            signs[int(kind)] = SIGNS.get(kind.short_string(), 0)
        total, found = 0, {}
        ranges = {bucket: (0, after)}
        async for part in read_ranges(core.backend, info, ranges, (0, 1), config=core.config):
            signed = signs[part.change_types.to_numpy()].astype(np.uint64)
            steps = signed * hashes(part.batch.column(0), part.batch.column(1))
            sums = np.cumsum(steps, dtype=np.uint64)
            for at in np.flatnonzero(part.base_offset + 1 + np.arange(len(sums)) >= before):
                found[(total + int(sums[at])) % (1 << 64)] = part.base_offset + 1 + int(at)
            total = (total + int(sums[-1])) % (1 << 64)
        return found

    return run_blocking(replay())


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "way", ["read_table", "state", pytest.param("spark", marks=pytest.mark.long)]
)
def test_a_large_table_is_read_exactly_in_bounded_memory(large: Large, way: str) -> None:
    tablet = large.cluster.info.pids["tablet-1"]

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            large.child(way), cwd=ROOT, capture_output=True, text=True, check=False
        )

    server_mb, done = grown_mb(tablet, run)
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    print(f"\n{way}: {told}, server +{server_mb:.0f} MB", done.stderr[-300:])
    assert told["digest"] in states(large, told["before"], told["after"])
    assert told["memory_mb"] <= CLIENT_MB_MAX
    if large.long:
        assert server_mb <= SERVER_MB_MAX


def test_rows_are_of_the_size_that_is_meant() -> None:
    batch = rows_of(np.arange(1000), np.zeros(1000, np.int32))
    assert 90 <= batch.nbytes / 1000 <= 120
    assert pa.types.is_string(batch.schema.field("text").type)
