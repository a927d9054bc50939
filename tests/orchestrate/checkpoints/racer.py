"""Processes that plan and commit under one name, all at once.

    python -m tests.orchestrate.checkpoints.racer STORE NAME PROCESSES ROUNDS SEED

STORE is JSON: {"url": …, "table": …} for SQL, or {"config": {…}, "database": …, "table": …} for
Fluss. Each round takes one plan (its own, or one that it adopts) and commits it; now and then it
leaves the plan to the others, as a crashed run would. Prints what each did, as JSON. The processes
are forks of this one, which has imported everything and has no threads.
"""

from __future__ import annotations

import json
import multiprocessing
import multiprocessing.synchronize
import random
import sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from typing import Any

from fluss_client import Config, FlussConnection
from fluss_orchestrate.core.checkpoints import (
    CheckpointStore,
    FlussCheckpointStore,
    SqlCheckpointStore,
)
from fluss_orchestrate.core.errors import CheckpointConflictError
from fluss_orchestrate.core.plan import ScanPlan
from tests.orchestrate.checkpoints.plans import plan, position, receipt
from tests.orchestrate.incremental.crasher import import_before_forks
from tests.waiting import scaled

IMPORTED_WHEN_NEEDED = ("fluss_client.backend.embedded", "pandas", "sqlalchemy.dialects")
START_DEADLINE_S = 120.0
_FORK = multiprocessing.get_context("fork")
_start: multiprocessing.synchronize.Barrier


def open_store(spec: dict[str, Any], stack: ExitStack) -> CheckpointStore:
    if "url" in spec:
        return stack.enter_context(SqlCheckpointStore(**spec))
    connection = stack.enter_context(FlussConnection.create(Config(spec["config"])).result())
    return FlussCheckpointStore(
        connection, spec["database"], spec["table"], replicas=spec.get("replicas", 1)
    )


def take(store: CheckpointStore, name: str, run_key: str, size: int) -> ScanPlan:
    while True:
        head = store.head(name)
        known = store.plan_of(name, run_key, head)
        if known is not None:
            return known
        if head is not None and head.state.pending is not None:
            try:
                return store.adopt(name, run_key)
            except CheckpointConflictError:
                continue
        begins = position(0, 1, wide=True) if head is None else head.state.position
        assert begins is not None
        start = begins.offsets[None, 0]
        made = store.try_plan(head, plan(name, run_key, start, start + size, 1), begins)
        if made is not None:
            return made


def run(spec: dict[str, Any], name: str, who: str, rounds: int, seed: int) -> list[list[Any]]:
    rng = random.Random(seed)
    done = []
    with ExitStack() as stack:
        store = open_store(spec, stack)
        _start.wait(scaled(START_DEADLINE_S))
        for number in range(rounds):
            made = take(store, name, f"{who}/{number}", rng.randrange(1, 9))
            if rng.random() < 0.2:
                continue
            store.commit(made, receipt(made))
            done.append([made.sequence, made.plan_id, made.run_key])
    return done


def main(spec: str, name: str, processes: str, rounds: str, seed: str) -> None:
    global _start
    import_before_forks(IMPORTED_WHEN_NEEDED)
    _start = _FORK.Barrier(int(processes))
    with ProcessPoolExecutor(int(processes), _FORK) as pool:
        racing = [
            pool.submit(run, json.loads(spec), name, f"p{at}", int(rounds), int(seed) + at)
            for at in range(int(processes))
        ]
        print(json.dumps([racer.result() for racer in racing]))


if __name__ == "__main__":
    main(*sys.argv[1:])
