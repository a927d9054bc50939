"""The state of a bucket, beside RocksDB and decoding alone, Fluss's Java client, a limit scan."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from benchmarks.harness import Case, Measured, stopwatch
from benchmarks.place import CONNECT_S, Place, Scale, connected, own_database
from fluss_client import FlussConnection, Schema, TableBucket, TableDescriptor, TablePath
from fluss_client.backend.cluster.kv_snapshots import SnapshotCursor
from fluss_client.engine import Blobs, BlockingState, async_connection, run_blocking, table_info
from tests.interop.java_peer import JavaPeer

ROWS = {Scale.TINY: 5_000, Scale.QUICK: 1_000_000, Scale.FULL: 4_000_000}
SMALL_ROWS = {Scale.TINY: 1_000, Scale.QUICK: 100_000, Scale.FULL: 100_000}
WRITE_ROWS = 100_000
CHUNK_ROWS = 1 << 15
SNAPSHOT_WAIT_S = 120.0
ARROW = pa.schema(
    [("id", pa.int64()), ("version", pa.int32()), ("amount", pa.float64()), ("text", pa.string())]
)
TEXT = "the text of a row, which is about eighty bytes long with its number in front"


@contextmanager
def cases(place: Place) -> Iterator[Sequence[Case]]:
    """Two tables of one bucket with a snapshot of all their rows."""
    with (
        connected(place.snapshots_bootstrap) as connection,
        own_database(connection, "keys") as database,
        java_client() as peer,
    ):
        large = KeyTable(connection, TablePath(database, "large"), ROWS[place.scale])
        small = KeyTable(connection, TablePath(database, "small"), SMALL_ROWS[place.scale])
        subjects = {"ours": large.state, "rocksdict + decode": large.parts_alone}
        if peer is not None:
            settings = {"bootstrap.servers": place.snapshots_bootstrap}
            subjects["Java client"] = partial(large.java_snapshot, peer, settings)
        yield [
            Case("state of a bucket", "rows/s", subjects, {"rocksdict + decode": 0.8}),
            Case(
                "state of a small bucket",
                "rows/s",
                {"ours": small.state, "limit scan": small.limit_scan},
            ),
        ]


@contextmanager
def java_client() -> Iterator[JavaPeer | None]:
    """Fluss's own client in Java; None where there is no compiler for its program."""
    with tempfile.TemporaryDirectory(prefix="fluss-bench-java-") as folder:
        try:
            peer = JavaPeer("0.9.1-incubating", Path(folder))
        except pytest.skip.Exception:
            yield None
            return
        try:
            yield peer
        finally:
            peer.close()


class KeyTable:
    """A key table of one bucket, whose rows are all in its latest KV snapshot."""

    def __init__(self, connection: FlussConnection, path: TablePath, rows: int) -> None:
        admin = connection.get_admin().result(CONNECT_S)
        descriptor = TableDescriptor(Schema(ARROW, primary_keys=["id"]), bucket_count=1)
        admin.create_table(path, descriptor).result(CONNECT_S)
        with connection.get_table(path).result(CONNECT_S).new_upsert().create_writer() as writer:
            order = np.random.default_rng(1).permutation(rows)
            for start in range(0, rows, WRITE_ROWS):
                ids = order[start : start + WRITE_ROWS]
                text = pc.binary_join_element_wise(pa.array(ids).cast(pa.string()), TEXT, " ")
                columns = [ids, np.zeros(len(ids), np.int32), ids * 0.5, text]
                writer.write_arrow(pa.table(columns, schema=ARROW))
        deadline = time.monotonic() + SNAPSHOT_WAIT_S
        while (admin.list_kv_snapshots(path).result(CONNECT_S)[0].log_offset or 0) < rows:
            if time.monotonic() > deadline:
                raise SystemExit(
                    f"no KV snapshot within {SNAPSHOT_WAIT_S:.0f} s: give a cluster with a short "
                    "kv.snapshot.interval"
                )
            time.sleep(0.2)
        self._admin, self._path = admin, path
        self._core = async_connection(connection)
        self._info = table_info(connection, path)
        self._bucket = TableBucket(self._info.table_id, 0)
        self._rows = rows

    def state(self) -> Measured:
        """The client's reader."""

        def work() -> tuple[float, object]:
            with BlockingState(self._core, self._info, self._bucket) as state:
                return self._summed(state)

        return stopwatch(work)

    def limit_scan(self) -> Measured:
        """All rows in one answer of the server."""
        backend = self._core.backend

        def work() -> tuple[float, object]:
            scan = backend.limit_scan(self._info, self._bucket, self._rows + 1, None)
            return self._summed([run_blocking(scan)])

        return stopwatch(work)

    def parts_alone(self) -> Measured:
        """The time that RocksDB needs to iterate, plus the time that decoding needs."""
        from rocksdict import AccessType, Options, Rdict

        cursor = run_blocking(self._core.backend.open_state(self._info, self._bucket))
        assert isinstance(cursor, SnapshotCursor)
        spent_s, found, total = 0.0, 0, 0
        try:
            options = Options(raw_mode=True)
            database = Rdict(cursor.folder, options, access_type=AccessType.read_only())
            values = iter(database.values())
            while True:
                started = time.perf_counter()
                chunk = list(itertools.islice(values, CHUNK_ROWS))
                spent_s += time.perf_counter() - started
                if not chunk:
                    break
                blobs = Blobs.from_list(chunk)
                started = time.perf_counter()
                batch = run_blocking(self._core.backend.decode_values(self._info, blobs, None))
                spent_s += time.perf_counter() - started
                rows, ids = self._summed([batch])
                found, total = found + int(rows), total + int(str(ids))
            del values
            database.close()
        finally:
            run_blocking(cursor.close())
        return Measured(found / spent_s, total)

    def java_snapshot(self, peer: JavaPeer, settings: dict[str, str]) -> Measured:
        """The reader of KV snapshots in Fluss's own client; its start is not counted."""
        (latest,) = self._admin.list_kv_snapshots(self._path).result(CONNECT_S)
        rows, total, spent_ns = peer.call(
            settings, "snapshot", str(self._path), snapshot=latest.snapshot_id
        )
        return Measured(rows / spent_ns * 1e9, total)

    @staticmethod
    def _summed(batches: Iterable[pa.RecordBatch]) -> tuple[float, object]:
        rows, total = 0, 0
        for batch in batches:
            rows += batch.num_rows
            total += pc.sum(batch.column("id")).as_py()
        return float(rows), total
