"""Assets that are kept equal to key tables, and the check that they are.

A mirror is an asset like an increment: a run's plan is pinned in the checkpoint store under the
root run and the asset, so that retries and re-executions apply the same changes once. A mirror has
no partitions, because it takes every change in order.
"""

# Dagster reads the types of an asset's arguments as it is made, so they are no strings here.
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import dagster as dg

from fluss_client import FlussConnection
from fluss_client.engine import table_info
from fluss_client.errors import ConfigError
from fluss_orchestrate.core.checkpoints import CheckpointStore, FlussCheckpointStore
from fluss_orchestrate.core.incremental.planning.settings import Until
from fluss_orchestrate.core.incremental.run import ScanRun
from fluss_orchestrate.core.job import JobResult
from fluss_orchestrate.core.mirror.comparison import MirrorComparison
from fluss_orchestrate.core.mirror.table import mirror_table
from fluss_orchestrate.core.mirror.verification import verify_mirror
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.sinks.base import Sink, identity_of
from fluss_orchestrate.dagster.compat import pool_of
from fluss_orchestrate.dagster.incremental import MakeSink, made_sink, with_source
from fluss_orchestrate.dagster.metadata import LAG_OFFSETS, ROW_COUNT, increment_metadata
from fluss_orchestrate.dagster.options import AssetOptions, CheckOptions, Key, checked_options
from fluss_orchestrate.dagster.runs import RunLog, mirror_tag, run_key_of, work_name
from fluss_orchestrate.dagster.tables import DagsterFlussTranslator, shared_attributes
from fluss_orchestrate.dagster.work import (
    columns_metadata,
    lag_offsets,
    position_version,
    row_count,
)

CHECK_NAME = "fluss_mirror_equal"
DIFFERENCES_SHOWN_MAX = 20


def fluss_mirror_asset(
    key: Key,
    *,
    table: str,
    sink: Sink | MakeSink,
    checkpoint: str | None = None,
    until: Until = "latest",
    max_offsets: int | None = None,
    columns: Sequence[str] | None = None,
    scan_options: Mapping[str, Any] | None = None,
    verify: bool = False,
    translator: DagsterFlussTranslator | None = None,
    resource_key: str = "fluss",
    pool: str | None = None,
    **asset_options: Unpack[AssetOptions],
) -> dg.AssetsDefinition:
    """Return an asset whose runs bring a sink up to the current rows of a key table.

    Its metadata have the receipt, the lineage of the columns and the number of rows. Runs of one
    asset queue in a pool of their own, so that a limit of one makes them take turns.

    Args:
        key: The asset's key.
        table: The key table, as `database.table`.
        sink: A sink of form `mirror` or `history`, or a function that makes one from the
            connection when the asset runs.
        checkpoint: The name of the checkpoint; the asset's key by default.
        until: Where the changes end.
        max_offsets: The most offsets that one run reads.
        columns: The columns to copy; all by default.
        scan_options: Further settings of the core's `IncrementalScan`, and `store`.
        verify: Whether each run compares the mirror with the table afterwards, as the asset check
            `fluss_mirror_equal`.
        translator: Which asset the table is; by default `database/table`.
        resource_key: The key of the `FlussResource`.
        pool: The pool in which the runs of the asset wait for each other; by default
            `fluss_database_table`.
        **asset_options: Further arguments of Dagster's asset.

    Raises:
        ConfigError: The asset has partitions, or an argument is unknown.
    """
    options = checked_options(AssetOptions, asset_options, "fluss_mirror_asset")
    if asset_options.get("partitions_def") is not None:
        raise ConfigError(
            "a mirror takes every change in order, so its asset has no partitions; use "
            "incremental_fluss_asset for rows by time"
        )
    asset_key = dg.AssetKey.from_coercible(key)
    given = dict(scan_options or {})
    mirror = _Mirror(
        asset_key,
        table,
        sink,
        checkpoint or f"dagster/{asset_key.to_user_string()}",
        until,
        max_offsets,
        columns,
        given.pop("store", None),
        given,
        verify,
        (translator or DagsterFlussTranslator()).spec_of(table),
        resource_key,
    )
    return mirror.asset(pool or pool_of(table), options)


@dataclass(frozen=True, slots=True)
class _Mirror:
    """What is mirrored, and how."""

    key: dg.AssetKey
    table: str
    sink: Sink | MakeSink
    checkpoint: str
    until: Until
    max_offsets: int | None
    columns: Sequence[str] | None
    store: CheckpointStore | None
    scan_options: Mapping[str, Any]
    verify: bool
    source: dg.AssetSpec
    """The asset of the table."""
    resource_key: str

    def asset(self, pool: str, asset_options: Mapping[str, Any]) -> dg.AssetsDefinition:
        """The asset, with the source among its dependencies."""

        def bring(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
            return self.materialised(context)

        # With a check beside the asset, Dagster knows the class only without its parameter.
        bring.__annotations__["return"] = dg.MaterializeResult
        options = {**shared_attributes(self.source), **asset_options}
        kinds = {"fluss", *options.pop("kinds", ())}
        if not callable(self.sink):
            kinds.add(identity_of(self.sink).partition(":")[0])
        checks = [*(options.pop("check_specs", None) or ())]
        if self.verify:
            said = "The mirror holds exactly the rows of its table."
            checks.append(dg.AssetCheckSpec(CHECK_NAME, asset=self.key, description=said))
        metadata = {"fluss/source_table": self.table, "fluss/checkpoint": self.checkpoint}
        made: dg.AssetsDefinition = dg.asset(
            key=self.key,
            kinds=kinds,
            metadata={**metadata, **options.pop("metadata", {})},
            pool=pool,
            deps=with_source(options.pop("deps", None), self.source.key, partitioned=False),
            check_specs=checks or None,
            required_resource_keys={
                self.resource_key,
                *options.pop("required_resource_keys", ()),
            },
            **{"description": f"Kept equal to {self.table}.", **options},
        )(bring)
        return made

    def materialised(self, context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
        """Plan under the run's name, apply the changes, commit; then tell it."""
        connection = getattr(context.resources, self.resource_key).connection
        sink = made_sink(self.sink, connection)
        store = self.store or FlussCheckpointStore(connection)
        log = RunLog(context, identity_of(sink))
        plans: list[ScanPlan] = []

        def planned(run: ScanRun) -> None:
            log.planned(run)
            plans.append(run.plan)
            mirror_tag(context, "plan", work_name(context), run.plan.plan_id)

        result = mirror_table(
            connection,
            self.table,
            sink,
            run_key_of(context),
            checkpoint=self.checkpoint,
            until=self.until,
            max_offsets=self.max_offsets,
            store=store,
            columns=self.columns,
            scan_options=self.scan_options,
            progress=log.progress,
            planned=planned,
        )
        log.done(result.receipt)
        head = store.require(self.checkpoint)
        state = head.state
        assert state.position is not None, "a committed plan has set it"
        metadata = {
            **increment_metadata(result.receipt, identity_of(sink)),
            **columns_metadata(connection, sink, plans[-1], self.source.key),
            **self._counts(connection, result),
            LAG_OFFSETS: lag_offsets(connection, plans[-1].table.path, head),
        }
        checks = []
        if self.verify:
            found = verify_mirror(
                connection, self.table, sink, self.checkpoint, store=store, columns=self.columns
            )
            metadata[ROW_COUNT] = found.mirror_rows
            checks.append(_result(found, self.key))
        generation = None if state.generation is None else state.generation.to_json()
        return dg.MaterializeResult(
            asset_key=self.key,
            metadata=metadata,
            data_version=position_version(result.receipt.table, state.position.offsets, generation),
            check_results=checks,
        )

    def _counts(self, connection: FlussConnection, result: JobResult) -> dict[str, Any]:
        """The rows of adopted plans too, and those that the mirror has now."""
        metadata: dict[str, Any] = {"fluss/rows": result.rows}
        if result.adopted:
            metadata["fluss/adopted_plans"] = [str(r.plan_id) for r in result.adopted]
        if self.until == "latest" and self.max_offsets is None:
            rows = row_count(connection, table_info(connection, self.table))
            if rows is not None:
                metadata[ROW_COUNT] = rows
        return metadata


def build_fluss_mirror_check(
    asset: Any,
    table: str,
    sink: Sink | MakeSink,
    checkpoint: str,
    *,
    store: CheckpointStore | None = None,
    columns: Sequence[str] | None = None,
    name: str = CHECK_NAME,
    **options: Unpack[CheckOptions],
) -> dg.AssetChecksDefinition:
    """Return a check that passes while a mirror holds exactly the rows of its table.

    Counts and checksums are compared per bucket at the mirror's offsets; the description names the
    first keys that differ. Writers of the table need not stop.

    Args:
        asset: The mirror, or its key.
        table: The key table, as `database.table`.
        sink: The sink of the mirror, or a function that makes it from the connection.
        checkpoint: The checkpoint of the mirror.
        store: The checkpoint store; a table of the cluster by default.
        columns: The columns to compare; by default those that the mirror copies.
        name: The name of the check.
        **options: Further arguments of Dagster's asset check, such as `blocking`.

    Raises:
        ConfigError: An argument is unknown.
    """
    given = checked_options(CheckOptions, options, "build_fluss_mirror_check")
    resource_key = given.pop("resource_key", "fluss")

    def check(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        connection = getattr(context.resources, resource_key).connection
        opened = made_sink(sink, connection)
        found = verify_mirror(connection, table, opened, checkpoint, store=store, columns=columns)
        return _result(found, None)

    made: dg.AssetChecksDefinition = dg.asset_check(
        asset=asset, name=name, required_resource_keys={resource_key}, **given
    )(check)
    return made


def _result(found: MirrorComparison, key: dg.AssetKey | None) -> dg.AssetCheckResult:
    value = found.to_json()
    return dg.AssetCheckResult(
        passed=found.equal,
        asset_key=key,
        check_name=None if key is None else CHECK_NAME,
        description=str(found),
        metadata={
            "fluss/rows": found.rows,
            "fluss/mirror_rows": found.mirror_rows,
            "fluss/buckets": len(found.buckets),
            "fluss/differences": dg.MetadataValue.json(
                value["differences"][:DIFFERENCES_SHOWN_MAX]
            ),
        },
    )
