"""Runs of an incremental job that kill themselves, one forked process each.

    python -m tests.orchestrate.incremental.crasher

Reads one JSON object per line: {"config", "table", "database", "store_table", "name", "run_key",
"sink", "folder", "stage", "seed"}. For each it forks a process that takes what is new into a sink
(`make_sink`), killing itself with SIGKILL at the named stage, and answers with the run key and the
return code. Several may run at once.
Forking from a process that has imported everything, and has no threads, is what makes hundreds of
runs affordable.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import random
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from fluss_client import Config, FlussConnection
from fluss_orchestrate.core.checkpoints import (
    CheckpointStore,
    Event,
    EventKind,
    EventLog,
    layers,
)
from fluss_orchestrate.core.checkpoints.fluss_store import FlussCheckpointStore
from fluss_orchestrate.core.incremental import IncrementalScan
from fluss_orchestrate.core.job import run_increment
from fluss_orchestrate.core.loading import PlacedElsewhereError
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.sinks import (
    FlussTableSink,
    IcebergSink,
    ParquetSink,
    ReadPlan,
    Sink,
    SinkResult,
    SqlSink,
)

STAGES = (
    "before the plan is recorded",
    "while the plan is recorded",
    "after the plan is recorded",
    "in the read",
    "in the sink",
    "between sink and commit",
    "in the commit",
    "after the commit",
)
IMPORTED_WHEN_NEEDED = (
    "fluss_client.backend.embedded",
    "pandas",
    "pyarrow.dataset",
    "pyiceberg.catalog.sql",
    "pyiceberg.io.pyarrow",
    "requests",
    "sqlalchemy.dialects.sqlite",
)
"""What jobs import as they go along; a fork that did so would spend most of its time on it."""
APPEND_MS_MAX = 12
SINK_MS_MAX: dict[type, int] = {ParquetSink: 20, IcebergSink: 250, SqlSink: 60, FlussTableSink: 250}
ICEBERG = "crashes.events"
METADATA = ("_bucket", "_offset", "_partition")
PLACED_MAX = 5
"""How often a run is tried again whose rows were placed by a count that has changed."""


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class DeadlyLog:
    """An event log that kills the process around an append."""

    def __init__(self, log: EventLog, stage: str, rng: random.Random) -> None:
        self._log = log
        self._stage = stage
        self._rng = rng

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def append(self, event: Event, previous: Event | None) -> Event | None:
        planning = event.kind is EventKind.PLAN
        if planning and self._stage == "before the plan is recorded":
            die()
        inside = {EventKind.PLAN: "while the plan is recorded", EventKind.COMMIT: "in the commit"}
        if inside.get(event.kind) == self._stage:
            timer = threading.Timer(self._rng.uniform(0, APPEND_MS_MAX) / 1000, die)
            timer.start()
        won = self._log.append(event, previous)
        if inside.get(event.kind) == self._stage:
            timer.join()
        if planning and won and self._stage == "after the plan is recorded":
            die()
        if event.kind is EventKind.COMMIT and self._stage == "after the commit":
            die()
        return won


class DeadlySink:
    """A sink that kills the process while it reads, while it writes, or when it is done."""

    exactly_once = True

    def __init__(self, sink: Sink, stage: str, rng: random.Random) -> None:
        self._sink = sink
        self._stage = stage
        self._rng = rng

    def write(self, plan: ScanPlan, read: ReadPlan) -> SinkResult:
        if self._stage == "in the sink":
            threading.Timer(self._rng.uniform(0, SINK_MS_MAX[type(self._sink)]) / 1000, die).start()
        done = self._sink.write(plan, self._dying(read) if self._stage == "in the read" else read)
        if self._stage in ("in the read", "in the sink", "between sink and commit"):
            die()
        return done

    def _dying(self, read: ReadPlan) -> ReadPlan:
        left = self._rng.randrange(4)

        def read_some(plan: ScanPlan) -> pa.RecordBatchReader:
            reader = read(plan)

            def batches() -> Iterator[pa.RecordBatch]:
                nonlocal left
                for batch in reader:
                    left -= 1
                    if left < 0:
                        die()
                    yield batch

            return pa.RecordBatchReader.from_batches(reader.schema, batches())

        return read_some


def make_sink(spec: dict[str, Any], connection: FlussConnection) -> Sink:
    """The sink that all runs share; `folder` is a path, a URI, a SQL URL, or a table of Fluss."""
    kind, place = spec["sink"], spec["folder"]
    if kind == "parquet":
        return ParquetSink(place)
    if kind == "iceberg":
        # `place` is a folder with a catalog of its own, or a table of a catalog that is given.
        given = spec.get("catalog")
        return IcebergSink(given or catalog_of(Path(place)), place if given else ICEBERG)
    if kind == "sql":
        return SqlSink(place, "events")
    return FlussTableSink(connection, place, create_partitions=True, ledger_replicas=1)


def catalog_of(folder: Path) -> dict[str, str]:
    """The catalog of the Iceberg table."""
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}


def until_placed(work: Callable[[], object]) -> None:
    """Do the work again while its rows are placed by a count that has changed, as retries do."""
    for attempt in range(PLACED_MAX):
        try:
            work()
            return
        except PlacedElsewhereError:
            if attempt + 1 == PLACED_MAX:
                raise


def job(spec: dict[str, Any]) -> None:
    rng = random.Random(spec["seed"])
    stage = spec["stage"]
    with FlussConnection.create(Config(spec["config"])).result() as connection:
        kept = FlussCheckpointStore(connection, spec["database"], spec["store_table"], replicas=1)
        scan = IncrementalScan(
            connection,
            spec["table"],
            spec["name"],
            CheckpointStore(DeadlyLog(kept.log, stage, rng)),
            metadata_columns=spec.get("metadata", METADATA),
        )
        sink = DeadlySink(make_sink(spec, connection), stage, rng)
        until_placed(
            lambda: run_increment(scan, sink, spec["run_key"], max_offsets=spec.get("max_offsets"))
        )


def run(spec: dict[str, Any], work: Callable[[dict[str, Any]], None]) -> int:
    """The return code of a process that does the job."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work(spec)
            code = 0
        except BaseException:  # noqa: BLE001 (told to whoever reads, then the process ends)
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def import_before_forks(names: Iterable[str]) -> None:
    """Import what forks would import otherwise, each by itself."""
    for name in names:
        importlib.import_module(name)
    gc.freeze()  # a collection in a fork would copy the memory of all that was imported


def main(work: Callable[[dict[str, Any]], None] = job) -> None:
    # Tables of a few buckets get records of what changed, as those of hundreds do.
    layers.WHOLE_PLACES_MAX = 0
    import_before_forks(IMPORTED_WHEN_NEEDED)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # who waits for a run needs no waiting for
    for line in sys.stdin:
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            spec = json.loads(line)
            answer = json.dumps([spec["run_key"], run(spec, work)])
            os.write(sys.stdout.fileno(), f"{answer}\n".encode())  # at once, beside others
            os._exit(0)


if __name__ == "__main__":
    main()
