"""Runs of a mirror that kill themselves, one forked process each.

    python -m tests.orchestrate.mirror_sql.mirror_crasher

Reads one JSON object per line, as `tests/orchestrate/incremental/crasher.py` does: {"config",
"table", "database", "name", "run_key", "sink", "form", "stage", "seed"}. `sink` is the URL of a SQL
database, or the path of a Fluss table. Some stages are within the sink.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import psycopg2  # noqa: F401 (imported once, before the forks)
import sqlalchemy as sa  # noqa: F401

from fluss_client import Config, FlussConnection
from fluss_orchestrate.core.checkpoints import CheckpointStore
from fluss_orchestrate.core.checkpoints.fluss_store import FlussCheckpointStore
from fluss_orchestrate.core.loading import sending
from fluss_orchestrate.core.mirror.table import mirror_table
from fluss_orchestrate.core.sinks import FlussTableSink, SqlSink
from fluss_orchestrate.core.sinks.base import MirrorSink, SinkForm
from fluss_orchestrate.core.sinks.sql_forms import copying, mirror
from tests.orchestrate.incremental import crasher
from tests.orchestrate.incremental.crasher import DeadlyLog, DeadlySink, die

SQL_STAGES = (
    *crasher.STAGES,
    "before the table is prepared",
    "while rows are copied",
    "before the upsert",
    "after the upsert",
)
FLUSS_STAGES = (
    *crasher.STAGES,
    "before a block is sent",
    "after a block is sent",
    "before a pass is finished",
    "before the position is recorded",
)


class DeadlyMirror(DeadlySink):
    """A mirror that kills the process at some stage."""

    def __init__(self, sink: MirrorSink, stage: str, rng: random.Random) -> None:
        super().__init__(sink, stage, rng)
        self.identity = sink.identity
        self.form: SinkForm | None = sink.form


def dying_before(owner: Any, name: str, after: bool = False, skip: int = 0) -> None:
    """Make a method of a class kill the process, after `skip` calls of it."""
    real: Callable[..., Any] = getattr(owner, name)
    left = skip

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0 and not after:
            die()
        done = real(*args, **kwargs)
        if left < 0:
            die()
        return done

    setattr(owner, name, call)


def arm(stage: str, rng: random.Random) -> None:
    """Arm a stage within a sink."""
    skip = rng.randrange(2)
    if stage == "before the table is prepared":
        dying_before(mirror.KeyedTable, "fitted")
    elif stage == "while rows are copied":
        dying_before(copying.BulkInsert, "write", after=True, skip=skip)
    elif stage == "before the upsert":
        dying_before(mirror.Fitted, "upsert_from")
    elif stage == "after the upsert":
        dying_before(mirror.Fitted, "upsert_from", after=True)
    elif stage == "before a block is sent":
        dying_before(sending.Pins, "block", skip=skip)
    elif stage == "after a block is sent":
        dying_before(sending.PinnedLoad, "_report", skip=skip)
    elif stage == "before a pass is finished":
        dying_before(sending.Pins, "finish", skip=skip)
    elif stage == "before the position is recorded":
        from fluss_orchestrate.core.sinks import fluss_mirror

        dying_before(fluss_mirror.MirrorLog, "record")


def sink_of(spec: dict[str, Any], connection: FlussConnection) -> Any:
    """The sink that all runs share."""
    if "://" in spec["sink"]:
        return SqlSink(spec["sink"], "Copy", schema_policy="add_columns", form=spec["form"])
    return FlussTableSink(
        connection,
        spec["sink"],
        schema_policy="add_columns",
        create_partitions=True,
        form="mirror",
        ledger_replicas=1,
    )


def job(spec: dict[str, Any]) -> None:
    rng = random.Random(spec["seed"])
    stage = spec["stage"]
    arm(stage, rng)
    with FlussConnection.create(Config(spec["config"])).result() as connection:
        kept = FlussCheckpointStore(connection, spec["database"], "kills", replicas=1)
        sink = DeadlyMirror(sink_of(spec, connection), stage, rng)
        crasher.until_placed(
            lambda: mirror_table(
                connection,
                spec["table"],
                sink,
                spec["run_key"],
                checkpoint=spec["name"],
                store=CheckpointStore(DeadlyLog(kept.log, stage, rng)),
                max_offsets=spec.get("max_offsets"),
                scan_options={"settle_ms": 0},
            )
        )


if __name__ == "__main__":
    crasher.main(job)
