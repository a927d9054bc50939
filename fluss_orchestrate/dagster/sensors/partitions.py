"""A sensor that keeps Dagster's dynamic partitions equal to a table's partitions."""

from __future__ import annotations

from typing import Any, Unpack

import dagster as dg

from fluss_client import TablePath
from fluss_orchestrate.dagster.compat import valid_name
from fluss_orchestrate.dagster.options import Job, Selection, SensorOptions
from fluss_orchestrate.dagster.sensors.ticks import (
    NOT_THERE,
    absent,
    connection_of,
    make_sensor,
    write_cursor,
)

KIND = "partitions"
CHANGES_MAX = 5_000
"""Changes of one tick; Dagster takes 25,000."""


def build_fluss_partition_sensor(
    table: str,
    partitions_def: dg.DynamicPartitionsDefinition,
    *,
    name: str | None = None,
    remove_dropped: bool = True,
    request_runs: bool = False,
    job: Job = None,
    asset_selection: Selection | None = None,
    resource_key: str = "fluss",
    **sensor_options: Unpack[SensorOptions],
) -> dg.SensorDefinition:
    """Return a sensor that keeps dynamic partitions in line with the partitions of a table.

    The keys are the names that Fluss uses: the value of the partition column, or the values of
    several columns with `$` between them.

    Args:
        table: The table, as `database.table`.
        partitions_def: The dynamic partitions.
        name: The name of the sensor; by default made of the table's name.
        remove_dropped: Remove the keys of partitions that were dropped.
        request_runs: Request a run of `job` or `asset_selection` for each new partition.
        job: The job to run.
        asset_selection: The assets to materialise.
        resource_key: The key of the `FlussResource`.
        **sensor_options: Further arguments of Dagster's sensor.
    """
    own = name or valid_name(f"fluss_partitions_{table}")
    kept_as = partitions_def.name
    if kept_as is None:
        raise dg.DagsterInvalidDefinitionError(f"sensor {own}: give the partitions a name")

    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        admin = connection_of(context, resource_key).get_admin().result()
        try:
            found = admin.list_partition_infos(TablePath.parse(table)).result()
        except NOT_THERE as error:
            return dg.SensorResult(skip_reason=absent(table, error), cursor=context.cursor)
        present = {p.partition_name: p.partition_id for p in found}
        known = set(context.instance.get_dynamic_partitions(kept_as))
        added = sorted(present.keys() - known)[:CHANGES_MAX]
        gone = sorted(known - present.keys())[:CHANGES_MAX] if remove_dropped else []
        changes: list[Any] = []
        if added:
            changes.append(partitions_def.build_add_request(added))
        if gone:
            changes.append(partitions_def.build_delete_request(gone))
        requests = []
        if request_runs:
            # The id tells a partition from one that was dropped and created again.
            requests = [
                dg.RunRequest(run_key=f"{own}:{key}:{present[key]}", partition_key=key)
                for key in added
            ]
        return dg.SensorResult(
            run_requests=requests,
            dynamic_partitions_requests=changes,
            cursor=write_cursor(KIND, {"partitions": len(present)}),
            skip_reason=None if changes else f"{table} has the same {len(present)} partitions",
        )

    return make_sensor(
        evaluate,
        name=own,
        description=f"Keeps the partitions '{kept_as}' equal to those of {table}"
        f"{', and starts a run for each new one' if request_runs else ''}.",
        resource_key=resource_key,
        options=sensor_options,
        job=job,
        asset_selection=asset_selection,
    )
