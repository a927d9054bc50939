"""A store that stops for a while, and a disk without room for what is on its way to the store."""

from __future__ import annotations

import collections
import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client.errors import StorageError
from fluss_client.testing import LocalCluster
from fluss_client.testing.services import STORE
from fluss_orchestrate import FlussCheckpointStore, IncrementalScan, ParquetSink, run_increment
from fluss_orchestrate.core.sinks import parquet
from tests.disk import full_disk
from tests.faults.recording import FaultRecorder
from tests.storage.conftest import MakeTable, rows
from tests.storage.test_parquet_sink import files_in, table_in
from tests.waiting import let_pass

STOPPED_S = (1.0, 2.0)
STOPPED_LONG_S = (1.0, 15.0)
ROUNDS_LONG = 20
ROWS = 100


@contextmanager
def stopped(cluster: LocalCluster, seconds: float) -> Iterator[None]:
    """The store answers nobody for so long, from now on."""
    pid = cluster.info.pids[STORE]
    os.kill(pid, signal.SIGSTOP)

    def go_on() -> None:
        let_pass(seconds, "so long the store is stopped")
        os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@pytest.mark.timeout(1200)
def test_a_store_that_is_stopped_for_a_while(
    connection: fluss.FlussConnection,
    storage_cluster: LocalCluster,
    make_table: MakeTable,
    own_keys: dict[str, str],
    folder: str,
    long_form: bool,
    fault_seed: int,
    record_fault: FaultRecorder,
) -> None:
    """Runs that begin while it is stopped go on with it, and each row is there once."""
    chance = random.Random(fault_seed)
    table = make_table()
    path = str(table.get_table_path())
    store = FlussCheckpointStore(connection, "storage", "checkpoints", replicas=1)
    rounds = ROUNDS_LONG if long_form else 1
    for number in range(rounds):
        with table.new_append().create_writer() as writer:
            writer.write_arrow(rows(number * ROWS, (number + 1) * ROWS))
        scan = IncrementalScan(connection, path, path, store)
        with stopped(
            storage_cluster, chance.uniform(*(STOPPED_LONG_S if long_form else STOPPED_S))
        ):
            run_increment(scan, ParquetSink(folder), f"run-{number}")
    found = collections.Counter(table_in(folder)["id"].to_pylist())
    record_fault(
        "SIGSTOP of the object store (Parquet sink)",
        rounds,
        lost=len(set(range(rounds * ROWS)) - found.keys()),
        doubled=found.total() - len(found),
        seed=fault_seed,
    )


def test_no_room_for_what_is_on_its_way_to_the_store(
    connection: fluss.FlussConnection,
    make_table: MakeTable,
    own_keys: dict[str, str],
    folder: str,
    monkeypatch: pytest.MonkeyPatch,
    record_fault: FaultRecorder,
) -> None:
    """A typed error, no object, and the same run goes on when there is room."""
    monkeypatch.setattr(parquet, "SPOOL_BYTES", 1 << 10)
    table = make_table()
    path = str(table.get_table_path())
    chance = random.Random(5)
    text = [chance.randbytes(200).hex() for _ in range(ROWS)]
    with table.new_append().create_writer() as writer:
        writer.write_arrow(pa.table({"id": list(range(ROWS)), "text": text}))
    store = FlussCheckpointStore(connection, "storage", "checkpoints", replicas=1)
    scan = IncrementalScan(connection, path, path, store)
    with full_disk(file_bytes_max=8 << 10), pytest.raises(StorageError, match="no room"):
        run_increment(scan, ParquetSink(folder), "run")
    assert files_in(folder) == []
    run_increment(scan, ParquetSink(folder), "run")
    assert sorted(table_in(folder)["id"].to_pylist()) == list(range(ROWS))
    record_fault("disk full: Parquet sink on an object store", 1)
