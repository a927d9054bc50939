"""A sensor that starts an increment when its table has grown enough."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from typing import Unpack

import dagster as dg

from fluss_client import FlussConnection, TablePath
from fluss_client.engine import async_connection, backend_of, run_blocking
from fluss_orchestrate.core.checkpoints import CheckpointStore, FlussCheckpointStore
from fluss_orchestrate.core.checkpoints.report import checkpoint_lag
from fluss_orchestrate.core.incremental.planning.observation import observe
from fluss_orchestrate.dagster.compat import valid_name
from fluss_orchestrate.dagster.options import Job, Selection, SensorOptions
from fluss_orchestrate.dagster.runs import UNFINISHED
from fluss_orchestrate.dagster.sensors.ticks import (
    NOT_THERE,
    absent,
    connection_of,
    make_sensor,
    read_cursor,
    write_cursor,
)

KIND = "offsets"
CHECKPOINT_TAG = "fluss/checkpoint"
RETRY_AFTER_S = 300.0


def build_fluss_offset_sensor(
    table: str,
    checkpoint: str,
    *,
    name: str | None = None,
    job: Job = None,
    asset_selection: Selection | None = None,
    min_offsets: int = 1,
    max_wait_s: float | None = None,
    retry_after_s: float = RETRY_AFTER_S,
    resource_key: str = "fluss",
    store: CheckpointStore | None = None,
    **sensor_options: Unpack[SensorOptions],
) -> dg.SensorDefinition:
    """Return a sensor that requests a run when a checkpoint is behind its table.

    While a run that this sensor requested is not finished, it requests no other. A run that failed
    is requested again after `retry_after_s`, under another run key, because Dagster runs a key only
    once.

    Args:
        table: The table, as `database.table`.
        checkpoint: The name of the checkpoint.
        name: The name of the sensor; by default made of the table's name.
        job: The job to run.
        asset_selection: The assets to materialise.
        min_offsets: How many offsets the checkpoint must be behind.
        max_wait_s: After this time, fewer offsets are enough.
        retry_after_s: The time before a failed run is requested again.
        resource_key: The key of the `FlussResource`.
        store: Where checkpoints are kept; by default a table in the cluster.
        **sensor_options: Further arguments of Dagster's sensor.
    """
    own = name or valid_name(f"fluss_offsets_{table}")

    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        kept = read_cursor(context.cursor, KIND)
        tags = {CHECKPOINT_TAG: checkpoint}
        running = context.instance.get_run_records(
            dg.RunsFilter(tags=tags, statuses=UNFINISHED), limit=1
        )
        if running:
            return dg.SensorResult(
                skip_reason=f"run {running[0].dagster_run.run_id} is under way",
                cursor=context.cursor,
            )
        connection = connection_of(context, resource_key)
        try:
            seen = _look(connection, table, checkpoint, store)
        except NOT_THERE as error:
            return dg.SensorResult(skip_reason=absent(table, error), cursor=context.cursor)
        waited = max_wait_s is not None and seen.age_ms >= max_wait_s * 1000
        if seen.offsets == 0 or (seen.offsets < min_offsets and not waited):
            text = f"{checkpoint} is {seen.offsets} offsets behind {table}, of {min_offsets} wanted"
            return dg.SensorResult(skip_reason=text, cursor=context.cursor)
        attempt = 0
        now = time.time()
        if kept.get("position") == seen.position:
            left = retry_after_s - (now - float(kept.get("requested_s", 0.0)))
            if left > 0:
                text = f"the last run did not move {checkpoint}; another one in {left:.0f} s"
                return dg.SensorResult(skip_reason=text, cursor=context.cursor)
            attempt = int(kept.get("attempt", 0)) + 1
        cursor = {"position": seen.position, "attempt": attempt, "requested_s": now}
        request = dg.RunRequest(
            run_key=f"{own}:{checkpoint}:{seen.position}:{attempt}",
            tags={**tags, "fluss/table": table, "fluss/offsets_behind": str(seen.offsets)},
        )
        return dg.SensorResult(run_requests=[request], cursor=write_cursor(KIND, cursor))

    most = "" if max_wait_s is None else f", or when the oldest has waited {max_wait_s:g} s"
    return make_sensor(
        evaluate,
        name=own,
        description=f"Starts a run when {table} has {min_offsets} offsets that checkpoint "
        f"'{checkpoint}' has not read{most}.",
        resource_key=resource_key,
        options=sensor_options,
        job=job,
        asset_selection=asset_selection,
    )


@dataclass(frozen=True, slots=True)
class _Seen:
    offsets: int
    age_ms: int
    position: str
    """A digest of where the checkpoint is; it changes with every commit that took rows."""


def _look(
    connection: FlussConnection, table: str, checkpoint: str, store: CheckpointStore | None
) -> _Seen:
    found = store or FlussCheckpointStore(connection)
    head = found.head(checkpoint)
    if head is None or head.state.position is None:
        core = async_connection(connection)
        alias = connection.config.resolved_alias()
        view = run_blocking(observe(backend_of(core), alias, TablePath.parse(table)))
        return _Seen(sum(view.latest.values()), 0, "none")
    lag = checkpoint_lag(connection, found, checkpoint)
    places = [[*place, offset] for place, offset in head.state.position.offsets.items()]
    text = json.dumps([head.state.position.table.table_id, places])
    return _Seen(lag.offsets, lag.age_ms, hashlib.sha256(text.encode()).hexdigest()[:16])
