"""A process that plans and commits under a name which others use too.

    python -m tests.orchestrate.checkpoints.racer STORE NAME ID ROUNDS SEED

STORE is JSON: {"url": …, "table": …} for SQL, or {"config": {…}, "database": …, "table": …} for
Fluss. Each round takes one plan (its own, or one that it adopts) and commits it; now and then it
leaves the plan to the others, as a crashed run would. Prints what it did, as JSON.
"""

from __future__ import annotations

import json
import random
import sys
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


def open_store(spec: dict[str, Any], stack: ExitStack) -> CheckpointStore:
    if "url" in spec:
        return stack.enter_context(SqlCheckpointStore(**spec))
    connection = stack.enter_context(FlussConnection.create(Config(spec["config"])).result(60))
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
        begins = position(0, 1) if head is None else head.state.position
        assert begins is not None
        start = begins.offsets[None, 0]
        made = store.try_plan(head, plan(name, run_key, start, start + size, 1), begins)
        if made is not None:
            return made


def main(spec: str, name: str, who: str, rounds: str, seed: str) -> None:
    rng = random.Random(int(seed))
    done = []
    with ExitStack() as stack:
        store = open_store(json.loads(spec), stack)
        print("ready", flush=True)
        sys.stdin.readline()
        for number in range(int(rounds)):
            made = take(store, name, f"{who}/{number}", rng.randrange(1, 9))
            if rng.random() < 0.2:
                continue
            store.commit(made, receipt(made))
            done.append([made.sequence, made.plan_id, made.run_key])
    print(json.dumps(done), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
