"""Runs of an incremental job that kill themselves, one forked process each.

    python -m tests.orchestrate.incremental.crasher

Reads one JSON object per line: {"config", "table", "database", "store_table", "name", "run_key",
"sink", "stage", "seed"}. For each it forks a process that takes what is new into a directory of
Parquet files, killing itself with SIGKILL at the named stage, and answers with its return code.
Forking from a process that has imported everything, and has no threads, is what makes hundreds of
runs affordable.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fluss_client import Config, FlussConnection
from fluss_orchestrate.core.checkpoints import CheckpointStore, Event, EventKind, EventLog
from fluss_orchestrate.core.checkpoints.fluss_store import FlussCheckpointStore
from fluss_orchestrate.core.incremental import IncrementalScan, ScanRun
from fluss_orchestrate.core.plan import BucketRange

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
APPEND_MS_MAX = 12


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

    def append(self, event: Event, previous: Event | None) -> bool:
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


def sink_files(folder: Path, rows: pa.Table, ranges: tuple[BucketRange, ...]) -> Iterator[None]:
    """One file per range, named by it and put there whole; yields after every file."""
    for r in ranges:
        mine = pc.and_(
            pc.equal(rows["_bucket"], r.bucket),
            pc.and_(pc.greater_equal(rows["_offset"], r.start), pc.less(rows["_offset"], r.stop)),
        )
        if r.partition is not None:
            mine = pc.and_(mine, pc.equal(rows["_partition"], r.partition))
        name = f"{r.partition or 'all'}-{r.bucket}-{r.start:012}-{r.stop:012}.parquet"
        unfinished = folder / f".{name}.{os.getpid()}"
        pq.write_table(rows.filter(mine), unfinished)
        os.replace(unfinished, folder / name)
        yield


def take(run: ScanRun, folder: Path, stage: str, rng: random.Random) -> None:
    batches = []
    deadly = rng.randrange(4) if stage == "in the read" else -1
    for number, batch in enumerate(run):
        batches.append(batch)
        if number >= deadly >= 0:
            die()
    if stage == "in the read":
        die()
    rows = pa.Table.from_batches(batches, run.schema)
    deadly = rng.randrange(1 + len(run.plan.ranges)) if stage == "in the sink" else -1
    for number, _ in enumerate(sink_files(folder, rows, run.plan.ranges)):
        if number == deadly:
            die()
    if stage in ("in the sink", "between sink and commit"):
        die()


def job(spec: dict[str, Any]) -> None:
    rng = random.Random(spec["seed"])
    stage = spec["stage"]
    with FlussConnection.create(Config(spec["config"])).result(60) as connection:
        kept = FlussCheckpointStore(connection, spec["database"], spec["store_table"], replicas=1)
        store = CheckpointStore(DeadlyLog(kept.log, stage, rng))
        scan = IncrementalScan(
            connection,
            spec["table"],
            spec["name"],
            store,
            metadata_columns=["_bucket", "_offset", "_partition"],
        )
        for run in scan.runs(spec["run_key"], max_offsets=spec.get("max_offsets")):
            with run:
                take(run, Path(spec["sink"]), stage, rng)


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                job(json.loads(line))
                code = 0
            except BaseException:  # noqa: BLE001 (told to whoever reads, then the process ends)
                traceback.print_exc()
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
