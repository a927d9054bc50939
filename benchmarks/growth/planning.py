"""`python -m benchmarks.growth.planning ADDRESS DATABASE TABLE BUCKETS PARTITIONS RUNS`

Increments of a wide table in a process of its own, which has not seen its checkpoint before. Prints
the medians of each step, and by how much the process grew while it planned.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.incremental.wide import MS, WideTable
from benchmarks.peak import peak_kb, reset_peak
from benchmarks.place import connected
from fluss_client import TablePath
from fluss_orchestrate.core.checkpoints import FlussCheckpointStore

STORE = "store"


def main() -> None:
    address, database, table, buckets, partitions, runs = sys.argv[1:]
    with connected(address) as connection, tempfile.TemporaryDirectory() as folder:
        store = FlussCheckpointStore(connection, database, STORE, replicas=1)
        store.names()
        path = TablePath(database, table)
        before = reset_peak()
        started = time.perf_counter()
        store.require(table)
        read_ms = (time.perf_counter() - started) * MS
        wide = WideTable(connection, store, path, int(buckets), int(partitions), exists=True)
        changed = min(1, wide.partitions)
        wide.change(changed)
        # What the writer needs is no part of the plan.
        reset_peak()
        plan = wide.scan.plan(f"first/{os.getpid()}")
        memory = peak_kb() - before
        wide.scan.skip(plan, "it is not measured")
        found = [wide.increment(Path(folder), changed) for _ in range(int(runs))]
    print(
        json.dumps(
            {
                "read_ms": read_ms,
                "plan_mb": memory / 1024,
                **{key: statistics.median(one[key] for one in found) for key in found[0]},
            }
        )
    )


if __name__ == "__main__":
    main()
