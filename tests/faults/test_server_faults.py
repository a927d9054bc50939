"""Servers that die and come back, one after the other and all at once, while everything runs.

Three tablet servers, three replicas: writers, a scanner, look-ups and an incremental job go on
through the death of leaders, of the coordinator, of ZooKeeper and of all of them.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fluss_client as fluss
from fluss_client.errors import FlussError, WriteError
from fluss_client.testing import LocalCluster
from fluss_orchestrate import FlussCheckpointStore, IncrementalScan, ParquetSink
from fluss_orchestrate import run_increment as run_once
from tests.contract.tables import Tables, done
from tests.faults.recording import FaultRecorder
from tests.fix_cluster import REPLICATES_SOON
from tests.waiting import Deadline, let_pass, scaled

ROUNDS_LONG = 10
ROWS = 50
DOWN_S = (0.2, 3.0)
QUIET_S = 0.5
"""Longer than the servers' interval between two checkpoints of the high watermark."""
PAUSE_S = 1.0
HUNG_S = 180.0
SERVERS = ["tablet-1", "tablet-2", "tablet-3", "coordinator", "zookeeper"]
REPLICATED = {"table.replication.factor": "3"}
CONFIG = {
    "log.replica.high-watermark.checkpoint-interval": "100ms",
    **REPLICATES_SOON,
    "default.replication.factor": "3",
}


class Worker:
    """Repeats a step on a thread of its own until told to stop; typed errors are counted."""

    def __init__(self, name: str, step: Callable[[], None]) -> None:
        self.name = name
        self.steps = 0
        self.refused: Counter[str] = Counter()
        self.failure: BaseException | None = None
        self._step = step
        self._over = threading.Event()
        self.stepping = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                with self.stepping:
                    self._step()
                self.steps += 1
            except FlussError as error:
                self.refused[type(error).__name__] += 1
                let_pass(0.2, "a client that was refused does not storm the servers")
            except BaseException as error:  # noqa: BLE001 (told by the test)
                self.failure = error
                return

    def stop(self) -> bool:
        """Whether it ended in time."""
        self._over.set()
        self._thread.join(scaled(HUNG_S))
        return not self._thread.is_alive()


class Load:
    """All that goes on, and what was acknowledged of it."""

    def __init__(self, connection: fluss.FlussConnection, folder: Path) -> None:
        admin = done(connection.get_admin())
        done(admin.create_database("faults"))
        self.tables = Tables(connection, admin, "faults")
        self.log = self.tables.create(
            {"id": pa.int64()}, buckets=3, bucket_keys=["id"], properties=REPLICATED
        )
        self.keys = self.tables.create(
            {"id": pa.int64(), "turn": pa.int64()}, ["id"], buckets=3, properties=REPLICATED
        )
        self.acknowledged: set[int] = set()
        self.sent = 0
        self.turn = 0
        self.turn_acknowledged = -1
        self.scanned: Counter[int] = Counter()
        self.backwards = 0
        self.folder = folder
        self._seen = -1
        self._append = self.log.new_append().create_writer()
        self._upsert = self.keys.new_upsert().create_writer()
        self._lookup = self.keys.new_lookup().create_lookuper()
        self.scanner = done(self.log.new_scan().create_log_scanner())
        self.tables.subscribe(self.scanner, self.log)
        store = FlussCheckpointStore(connection, "faults", "checkpoints", replicas=3)
        self._scan = IncrementalScan(connection, str(self.log.get_table_path()), "job", store)
        self._sink = ParquetSink(str(folder))
        self._runs = 0

    def append(self) -> None:
        ids = range(self.sent, self.sent + ROWS)
        self.sent += ROWS
        handle = self._append.write_arrow_batch(pa.record_batch({"id": list(ids)}))
        handle.wait().result()
        self.acknowledged |= set(ids)

    def upsert(self) -> None:
        turn = self.turn
        self.turn += 1
        self._upsert.write_arrow(pa.table({"id": list(range(ROWS)), "turn": [turn] * ROWS}))
        self._upsert.flush().result()
        self.turn_acknowledged = turn

    def look_up(self) -> None:
        least = self.turn_acknowledged
        row = self._lookup.lookup((7,)).result()
        found = -1 if row is None else int(row["turn"])
        self.backwards += found < least
        let_pass(0.02, "look-ups leave room for the other workers")

    def scan(self) -> None:
        self.scanned.update(int(record.row["id"]) for record in self.scanner.poll(200))

    def increment(self) -> None:
        run_once(self._scan, self._sink, run_key=f"run-{self._runs}")
        self._runs += 1
        let_pass(0.1, "rows come between two increments")

    def finish(self) -> None:
        """What comes after the last fault: everything is flushed, scanned and taken."""
        for writer in (self._append, self._upsert):
            try:
                writer.close()
            except WriteError:
                continue  # it was counted as refused
        there = self.tables.log(self.log)["id"].to_pylist()
        hung = Deadline(HUNG_S)
        while self.scanned.total() < len(there) and not hung.has_passed:
            self.scan()
        self.scanner.close()
        self.increment()

    def sunk(self) -> Counter[int]:
        found: Counter[int] = Counter()
        for path in self.folder.rglob("*.parquet"):
            found.update(pq.read_table(path, columns=["id"])["id"].to_pylist())
        return found


@contextlib.contextmanager
def quiet(workers: list[Worker]) -> Iterator[None]:
    """Nobody begins a step, and what was acknowledged has been there for a moment."""
    with contextlib.ExitStack() as held:
        for worker in workers:
            held.enter_context(worker.stepping)
        let_pass(QUIET_S, "servers do not tell when they wrote the checkpoint")
        yield


def strike(
    cluster: LocalCluster, victims: list[str], workers: list[Worker], rng: random.Random
) -> None:
    """Kill servers and start them again after a while.

    A server of 0.9 that comes back cuts its log to the last checkpoint of the high watermark. So
    when no replica stays up, what was acknowledged since that checkpoint is gone, whatever a
    client does: only what came before it is asked for there.
    """
    with quiet(workers) if len(victims) > 1 else contextlib.nullcontext():
        for victim in victims:
            cluster.kill(victim)
    let_pass(rng.uniform(*DOWN_S), "how long the servers are down")
    cluster.up()
    let_pass(PAUSE_S, "work goes on between two faults")


def strikes(long_form: bool, rng: random.Random) -> Iterator[list[str]]:
    """Who dies: in the short form a leader and the coordinator; in the long one each, then all."""
    if not long_form:
        yield from (["tablet-1"], ["coordinator"])
        return
    for _ in range(ROUNDS_LONG):
        yield from ([name] for name in rng.sample(SERVERS, len(SERVERS)))
        yield SERVERS


@pytest.mark.timeout(3600)
def test_everything_goes_on_through_the_death_of_servers(
    make_cluster: Callable[..., LocalCluster],
    tmp_path: Path,
    record_fault: FaultRecorder,
    fault_seed: int,
    long_form: bool,
) -> None:
    cluster = make_cluster(tablet_servers=3, config=CONFIG)
    info = cluster.up()
    rng = random.Random(fault_seed)
    settings: dict[str, Any] = {
        "bootstrap.servers": info.bootstrap_servers,
        "retry-timeout": "120s",
        "request-timeout": "20s",
    }
    stages: Counter[str] = Counter()
    with done(fluss.FlussConnection.create(fluss.Config(settings))) as connection:
        load = Load(connection, tmp_path / "sink")
        steps = (load.append, load.upsert, load.look_up, load.scan, load.increment)
        workers = [Worker(step.__name__, step) for step in steps]
        for victims in strikes(long_form, rng):
            strike(cluster, victims, workers, rng)
            stages["all at once" if len(victims) > 1 else victims[0]] += 1
        hung = sum(not worker.stop() for worker in workers)
        print({worker.name: (worker.steps, dict(worker.refused)) for worker in workers}, stages)
        assert [worker.failure for worker in workers] == [None] * len(workers)
        load.finish()
        there = Counter(load.tables.log(load.log)["id"].to_pylist())
        sunk = load.sunk()
    assert all(worker.steps > 1 for worker in workers), "everything got on"
    assert load.backwards == 0, "a look-up saw an older value than was acknowledged"
    assert sunk == there, "the job took each row once, and no other"
    assert load.scanned == there, "the scanner saw each row once, and no other"
    record_fault(
        "kill -9 of servers, three replicas",
        stages.total(),
        lost=len(load.acknowledged - there.keys()),
        doubled=there.total() - len(there),
        hung=hung,
        seed=fault_seed,
        stages=stages,
    )
