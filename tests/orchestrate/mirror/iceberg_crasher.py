"""Runs of a mirror in Iceberg that kill themselves, one forked process each.

    python -m tests.orchestrate.mirror.iceberg_crasher

Takes the lines of `tests.orchestrate.incremental.crasher`; `sink` is the mirror's write mode.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from fluss_client import Config, FlussConnection
from fluss_orchestrate.core.checkpoints import CheckpointStore
from fluss_orchestrate.core.checkpoints.fluss_store import FlussCheckpointStore
from fluss_orchestrate.core.job import run_increment
from fluss_orchestrate.core.mirror.table import mirror_scan
from fluss_orchestrate.core.sinks import SinkForm
from tests.orchestrate.incremental import crasher
from tests.orchestrate.mirror.iceberg_source import mirror_sink


class DeadlyMirror(crasher.DeadlySink):
    """A mirror that kills the process while it reads, while it writes, or when it is done."""

    form = SinkForm.MIRROR

    @property
    def identity(self) -> str:
        return str(self._sink.identity)


def job(spec: dict[str, Any]) -> None:
    """One run of the mirror, which dies at its stage."""
    rng = random.Random(spec["seed"])
    with FlussConnection.create(Config(spec["config"])).result() as connection:
        kept = FlussCheckpointStore(connection, spec["database"], spec["store_table"], replicas=1)
        store = CheckpointStore(crasher.DeadlyLog(kept.log, spec["stage"], rng))
        scan = mirror_scan(
            connection,
            spec["table"],
            spec["name"],
            store=store,
            scan_options={"settle_ms": 0},
        )
        # All runs so far may have been killed before a plan was recorded.
        if spec.get("reset") and store.head(spec["name"]) is not None:
            scan.reset("start", "a rebuild", abandon_pending=True)
        sink = mirror_sink(Path(spec["folder"]), write_mode=spec["sink"])
        deadly = DeadlyMirror(sink, spec["stage"], rng)
        run_increment(scan, deadly, spec["run_key"], max_offsets=spec.get("max_offsets"))


if __name__ == "__main__":
    crasher.main(job)
