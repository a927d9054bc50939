"""Runs that are killed at every stage, while a producer writes: each row is there exactly once."""

from __future__ import annotations

import collections
import json
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fluss_client import FlussTable
from fluss_orchestrate.core.checkpoints import FlussCheckpointStore
from fluss_orchestrate.core.lake.catalog import open_catalog
from tests.faults.recording import FaultRecorder
from tests.orchestrate.incremental.crasher import ICEBERG, STAGES, catalog_of
from tests.orchestrate.incremental.events import EventTables, rows

ROOT = Path(__file__).parents[3]
KILLED = -9
SEED = 20261117
KILLS_SHORT = {"parquet": 14, "iceberg": 8}
KILLS_LONG = {"parquet": 500, "iceberg": 200}


class Crashers:
    """The process that forks the runs; several threads may ask for some at once."""

    def __init__(self, module: str = "tests.orchestrate.incremental.crasher") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._asking = threading.Lock()
        self._waiting: dict[str, Future[int]] = {}
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            run_key, code = json.loads(line)
            self._waiting.pop(run_key).set_result(code)
        for unanswered in self._waiting.values():
            unanswered.set_exception(RuntimeError("the process that forks has ended"))

    def run(self, spec: dict[str, Any]) -> int:
        assert self._process.stdin is not None
        answer: Future[int] = Future()
        with self._asking:
            self._waiting[spec["run_key"]] = answer
            self._process.stdin.write(json.dumps(spec) + "\n")
            self._process.stdin.flush()
        return answer.result()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        assert self._process.wait() == 0
        self._listener.join()
        self._process.stdout.close()


@pytest.fixture(scope="module")
def crashers() -> Iterator[Crashers]:
    made = Crashers()
    yield made
    made.close()


class Producer:
    """Appends rows until it is told to stop; `count` ids were acknowledged."""

    def __init__(self, tables: EventTables, table: FlussTable) -> None:
        self.count = 0
        self._tables = tables
        self._table = table
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._produce)
        self._thread.start()

    def _produce(self) -> None:
        rng = random.Random(SEED)
        while not self._over.wait(0.02):
            size = rng.randrange(1, 20)
            self._tables.append(self._table, rows(range(self.count, self.count + size)))
            self.count += size

    def stop(self) -> int:
        self._over.set()
        self._thread.join()
        return self.count


def sink_ids(kind: str, folder: Path) -> collections.Counter[int]:
    """How often each id stands in the sink."""
    tables = _parquet_files(folder) if kind == "parquet" else _iceberg_files(folder)
    return collections.Counter(id_ for table in tables for id_ in table["id"].to_pylist())


def check_sink(kind: str, folder: Path, count: int) -> None:
    """Every id once; per bucket the offsets follow each other without a gap, each file in order."""
    tables = _parquet_files(folder) if kind == "parquet" else _iceberg_files(folder)
    offsets: dict[Any, list[int]] = collections.defaultdict(list)
    for table in tables:
        in_file: dict[Any, list[int]] = collections.defaultdict(list)
        for row in table.select(["_partition", "_bucket", "_offset"]).to_pylist():
            in_file[row["_partition"], row["_bucket"]].append(row["_offset"])
        for place, mine in in_file.items():
            assert mine == list(range(mine[0], mine[-1] + 1))
            offsets[place] += mine
    found = [row for table in tables for row in table["id"].to_pylist()]
    assert sorted(found) == list(range(count))
    for mine in offsets.values():
        assert sorted(mine) == list(range(len(mine)))


def _parquet_files(folder: Path) -> list[pa.Table]:
    return [pq.read_table(path) for path in sorted(folder.glob("*.parquet"))]


def _iceberg_files(folder: Path) -> list[pa.Table]:
    catalog = open_catalog(catalog_of(folder))
    files = catalog.load_table(ICEBERG).inspect.data_files()["file_path"].to_pylist()
    return [pq.read_table(path.removeprefix("file://")) for path in files]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("sink", ["parquet", "iceberg"])
def test_every_row_once_through_kills(
    tables: EventTables,
    settings: dict[str, Any],
    scan_database: str,
    crashers: Crashers,
    tmp_path: Path,
    long_form: bool,
    backend_kind: str,
    sink: str,
    record_fault: FaultRecorder,
) -> None:
    table = tables.events(buckets=6)
    rng = random.Random(SEED)
    folder = tmp_path / "sink"
    folder.mkdir()
    spec = {
        "config": settings,
        "table": str(table.get_table_path()),
        "database": scan_database,
        "store_table": "crashes",
        "name": f"crashes-{sink}-{backend_kind}",
        "sink": sink,
        "folder": str(folder),
    }
    producer = Producer(tables, table)
    kills: collections.Counter[str] = collections.Counter()
    total = (KILLS_LONG if long_form else KILLS_SHORT)[sink]
    number = 0
    try:
        for stage in stages(rng):
            if sum(kills.values()) >= total and all(kills[one] for one in STAGES):
                break
            # A killed run is tried again under its key, or left to the next one to adopt.
            number += rng.random() < 0.6
            run = spec | {"run_key": f"run-{number}", "stage": stage, "seed": rng.random()}
            if rng.random() < 0.3:
                run["max_offsets"] = rng.randrange(1, 60)
            code = crashers.run(run)
            assert code in (0, KILLED), stage
            kills[stage] += code == KILLED
            if rng.random() < 0.3:
                assert crashers.run(run | {"stage": "", "seed": 0}) == 0
    finally:
        count = producer.stop()
    assert crashers.run(spec | {"run_key": "last", "stage": "", "seed": 0}) == 0
    ids = sink_ids(sink, folder)
    record_fault(
        f"kill -9 of incremental jobs ({sink}, {backend_kind})",
        sum(kills.values()),
        lost=len(set(range(count)) - ids.keys()),
        doubled=ids.total() - len(ids),
        seed=SEED,
        stages=kills,
    )
    check_sink(sink, folder, count)
    store = FlussCheckpointStore(tables.connection, scan_database, "crashes", replicas=1)
    check_places(store, f"crashes-{sink}-{backend_kind}")


@pytest.mark.timeout(1800)
def test_eight_runs_at_once_and_some_die(
    tables: EventTables,
    settings: dict[str, Any],
    scan_database: str,
    crashers: Crashers,
    tmp_path: Path,
    long_form: bool,
    backend_kind: str,
    record_fault: FaultRecorder,
) -> None:
    """Planners race, adopters work beside the slow runs whose plans they took over."""
    table = tables.events(buckets=6)
    folder = tmp_path / "sink"
    folder.mkdir()
    spec = {
        "config": settings,
        "table": str(table.get_table_path()),
        "database": scan_database,
        "store_table": "races",
        "name": f"races-{backend_kind}",
        "sink": "parquet",
        "folder": str(folder),
    }
    codes: list[int] = []

    def work(who: int) -> None:
        rng = random.Random(SEED + who)
        for number in range(25 if long_form else 3):
            stage = rng.choice(STAGES) if rng.random() < 0.4 else ""
            run = {"run_key": f"{who}/{number}", "stage": stage, "seed": rng.random()}
            codes.append(crashers.run(spec | run))

    producer = Producer(tables, table)
    try:
        workers = [threading.Thread(target=work, args=(who,)) for who in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        count = producer.stop()
    assert crashers.run(spec | {"run_key": "last", "stage": "", "seed": 0}) == 0
    assert set(codes) <= {0, KILLED}
    ids = sink_ids("parquet", folder)
    record_fault(
        f"kill -9 of some of eight jobs at once ({backend_kind})",
        codes.count(KILLED),
        lost=len(set(range(count)) - ids.keys()),
        doubled=ids.total() - len(ids),
        seed=SEED,
    )
    check_sink("parquet", folder, count)
    store = FlussCheckpointStore(tables.connection, scan_database, "races", replicas=1)
    check_places(store, f"races-{backend_kind}")


def stages(rng: random.Random) -> Iterator[str]:
    """Every stage in turn, then any; a run whose plan was made before does not reach them all."""
    yield from STAGES
    while True:
        yield rng.choice(STAGES)


def check_places(store: FlussCheckpointStore, name: str) -> None:
    events = list(store.history(name, 100_000))[::-1]
    assert [event.sequence for event in events] == list(range(len(events)))
    run_keys = [e.run_key for e in events if e.kind == "plan"]
    assert len(run_keys) == len(set(run_keys))
