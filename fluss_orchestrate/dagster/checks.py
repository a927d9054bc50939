"""Asset checks that ask Fluss, and a sensor that runs them on a schedule of their own.

Freshness policies of lakes that follow the settings of their tables.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Unpack

import dagster as dg
import pyarrow as pa

from fluss_client import FlussConnection, TableInfo
from fluss_client.engine import duration_ms
from fluss_client.errors import ConfigError, DatabaseNotExistError, TableNotExistError
from fluss_orchestrate.core.checkpoints import CheckpointStore, FlussCheckpointStore
from fluss_orchestrate.core.checkpoints.report import checkpoint_lag
from fluss_orchestrate.core.incremental.planning.late_rows import check_state_is_whole
from fluss_orchestrate.core.lake.status import lake_status
from fluss_orchestrate.core.provisioning import TableSpec
from fluss_orchestrate.core.provisioning.spec import LAKE_FRESHNESS
from fluss_orchestrate.dagster.metadata import COLUMN_SCHEMA, info_schema
from fluss_orchestrate.dagster.options import CheckOptions, Key, SensorOptions, checked_options
from fluss_orchestrate.dagster.runs import UNFINISHED
from fluss_orchestrate.dagster.tables import DagsterFlussTranslator, FlussTableProps
from fluss_orchestrate.dagster.work import row_count, table_info

# Dagster reads the types of a check's arguments as it is made, so they are no strings here.


CHECK_INTERVAL_S = 300
CHECKS_TAG = "fluss/checks"
SCHEMA_CHECK = "fluss_schema_drift"
FRESHNESS_DEFAULT = "3 min"
FRESHNESS_LEAST_S = 60.0
"""Dagster takes no shorter window."""
LAKE_LAG_FACTOR = 3.0

Evaluate = Callable[[FlussConnection, dg.AssetCheckExecutionContext], dg.AssetCheckResult]
CheckedAsset = dg.AssetsDefinition | dg.AssetSpec | Key
"""What a check is about."""


def build_fluss_row_count_check(
    asset: CheckedAsset,
    table: str,
    *,
    minimum: int | None = None,
    maximum: int | None = None,
    name: str = "fluss_row_count",
    on_late_rows: str = "read",
    **options: Unpack[CheckOptions],
) -> dg.AssetChecksDefinition:
    """Return a check of the number of rows that the servers hold of a table.

    Rows that were written for expired partitions (Fluss 1.0) count in a log table. A key table that
    takes such rows is refused (`LateRowsError`) unless `on_late_rows` is `note`: then the rows of
    the partitions that exist are counted.

    Args:
        asset: The asset that the check belongs to.
        table: The table, as `database.table`.
        minimum: The smallest number of rows.
        maximum: The largest number of rows.
        name: The name of the check.
        on_late_rows: `note` takes a key table without the rows of its expired partitions.
        **options: Further arguments of Dagster's check.
    """
    if minimum is None and maximum is None:
        raise ConfigError(f"check {name}: give minimum, maximum or both")

    def evaluate(
        connection: FlussConnection, context: dg.AssetCheckExecutionContext
    ) -> dg.AssetCheckResult:
        info = table_info(connection, table)
        check_state_is_whole(info, on_late_rows)
        count = row_count(connection, info)
        if count is None:
            return dg.AssetCheckResult(
                passed=False, description=f"the servers keep no row count of {table}"
            )
        passed = (minimum or 0) <= count and (maximum is None or count <= maximum)
        return dg.AssetCheckResult(
            passed=passed,
            description=f"{table} has {count} rows, of {minimum or 0} to {maximum or 'any'} wanted",
            metadata={"fluss/rows": count},
        )

    return _check(asset, name, evaluate, options)


def build_fluss_lag_check(
    asset: CheckedAsset,
    checkpoint: str,
    *,
    max_offsets: int | None = None,
    max_age_s: float | None = None,
    store: CheckpointStore | None = None,
    name: str = "fluss_lag",
    **options: Unpack[CheckOptions],
) -> dg.AssetChecksDefinition:
    """Return a check that a checkpoint is not too far behind its table.

    It also fails if retention has deleted rows that were not read, or if there is no such
    checkpoint. Dagster runs a check after its asset, when nothing is behind. Pass the check to
    `build_fluss_check_sensor`, too, which runs it in between.

    Args:
        asset: The asset that the check belongs to.
        checkpoint: The name of the checkpoint.
        max_offsets: How many offsets the checkpoint may be behind.
        max_age_s: How old the oldest row may be that was not read.
        store: Where checkpoints are kept; by default a table in the cluster.
        name: The name of the check.
        **options: Further arguments of Dagster's check.
    """
    if max_offsets is None and max_age_s is None:
        raise ConfigError(f"check {name}: give max_offsets, max_age_s or both")

    def evaluate(
        connection: FlussConnection, context: dg.AssetCheckExecutionContext
    ) -> dg.AssetCheckResult:
        kept = store or FlussCheckpointStore(connection)
        if kept.head(checkpoint) is None:
            return dg.AssetCheckResult(
                passed=False,
                description=f"there is no checkpoint {checkpoint}: no increment was made yet, or "
                "it has another name",
            )
        lag = checkpoint_lag(connection, kept, checkpoint)
        late = max_offsets is not None and lag.offsets > max_offsets
        old = max_age_s is not None and lag.age_ms > max_age_s * 1000
        return dg.AssetCheckResult(
            passed=not (late or old or lag.lost),
            description=f"{checkpoint} is {lag.offsets} offsets behind, the oldest unread row is "
            f"{lag.age_ms / 1000:.0f} s old, {lag.lost} were lost to retention",
            metadata={
                "fluss/lag_offsets": lag.offsets,
                "fluss/lag_ms": lag.age_ms,
                "fluss/lost": lag.lost,
            },
        )

    return _check(asset, name, evaluate, options)


def build_fluss_schema_check(
    asset: CheckedAsset,
    table: str,
    expected: TableSpec | pa.Schema | None = None,
    *,
    name: str = SCHEMA_CHECK,
    **options: Unpack[CheckOptions],
) -> dg.AssetChecksDefinition:
    """Return a check of the columns of a table.

    Args:
        asset: The asset that the check belongs to.
        table: The table, as `database.table`.
        expected: The columns that it shall have. By default those that the last materialisation of
            the asset recorded.
        name: The name of the check.
        **options: Further arguments of Dagster's check.
    """

    def evaluate(
        connection: FlussConnection, context: dg.AssetCheckExecutionContext
    ) -> dg.AssetCheckResult:
        info = table_info(connection, table)
        if expected is None:
            key = _asset_key(asset)
            wanted = _recorded(context, key)
            if wanted is None:
                return dg.AssetCheckResult(
                    passed=True, description="no materialisation has recorded columns yet"
                )
        else:
            spec = expected
            if isinstance(spec, pa.Schema):
                spec = TableSpec.of_arrow(table, spec)
            wanted = {c.name: str(c.type) for c in spec.schema().columns}
        return _compared(info, wanted)

    return _check(asset, name, evaluate, options)


def build_fluss_lake_freshness_check(
    asset: CheckedAsset,
    table: str,
    *,
    max_lag_s: float,
    name: str = "fluss_lake_freshness",
    **options: Unpack[CheckOptions],
) -> dg.AssetChecksDefinition:
    """Return a check of the age of the oldest row that is not in the lake.

    Args:
        asset: The asset that the check belongs to.
        table: The table, as `database.table`.
        max_lag_s: How old the row may be.
        name: The name of the check.
        **options: Further arguments of Dagster's check.
    """

    def evaluate(
        connection: FlussConnection, context: dg.AssetCheckExecutionContext
    ) -> dg.AssetCheckResult:
        status = lake_status(connection, table)
        lag_ms = status.lag_ms or 0
        return dg.AssetCheckResult(
            passed=lag_ms <= max_lag_s * 1000,
            description=f"{status.lag_offsets} offsets of {table} are not in the lake, the oldest "
            f"for {lag_ms / 1000:.0f} s of {max_lag_s:.0f} allowed",
            metadata={
                "fluss/lag_offsets": status.lag_offsets,
                "fluss/lag_ms": lag_ms,
                "fluss/snapshot_id": str(status.snapshot_id),
            },
        )

    return _check(asset, name, evaluate, options)


def build_fluss_checks(
    tables: Sequence[TableSpec | TableInfo | FlussTableProps],
    *,
    min_rows: int | None = None,
    lake_lag_factor: float = LAKE_LAG_FACTOR,
    translator: DagsterFlussTranslator | None = None,
    **options: Unpack[CheckOptions],
) -> list[dg.AssetChecksDefinition]:
    """Return the checks that follow from descriptions of tables, for the tables' own assets.

    Each table is checked for the columns that its description has. One with a lake is also checked
    for the age of rows that the lake does not hold: at most `lake_lag_factor` times its
    `table.datalake.freshness`. Give them to `build_fluss_check_sensor` or
    `build_fluss_check_schedule`, too: external assets are never materialised by a run.

    Args:
        tables: Specs, or descriptions of tables that exist.
        min_rows: With it, each table is checked for so many rows.
        lake_lag_factor: How late a lake may be.
        translator: Which asset a table is.
        **options: Arguments of `dg.asset_check`, for all of them.
    """
    chosen = translator or DagsterFlussTranslator()
    made = []
    for given in tables:
        table = given
        if isinstance(table, TableSpec):
            table = FlussTableProps.of_spec(table)
        elif isinstance(table, TableInfo):
            table = FlussTableProps.of("", table)
        key = chosen.get_asset_spec(table).key
        made.append(_columns_check(key, table, options))
        if min_rows is not None:
            made.append(build_fluss_row_count_check(key, table.table, minimum=min_rows, **options))
        if table.has_lake:
            late_s = lake_lag_factor * freshness_window_s(
                table.properties.get(LAKE_FRESHNESS, FRESHNESS_DEFAULT)
            )
            made.append(
                build_fluss_lake_freshness_check(key, table.table, max_lag_s=late_s, **options)
            )
    return made


def _columns_check(
    key: dg.AssetKey, table: FlussTableProps, options: CheckOptions
) -> dg.AssetChecksDefinition:
    wanted = {column["name"]: column["type"] for column in table.columns}

    def evaluate(
        connection: FlussConnection, context: dg.AssetCheckExecutionContext
    ) -> dg.AssetCheckResult:
        return _compared(table_info(connection, table.table), wanted)

    return _check(key, SCHEMA_CHECK, evaluate, options)


def build_fluss_check_sensor(
    checks: Sequence[dg.AssetChecksDefinition],
    *,
    name: str = "fluss_checks",
    interval_s: int = CHECK_INTERVAL_S,
    **sensor_options: Unpack[SensorOptions],
) -> dg.SensorDefinition:
    """Return a sensor that runs checks every `interval_s` seconds.

    Dagster runs a check only after its asset was materialised, so it does not notice what goes
    wrong in between, such as lag. The sensor requests one run of all its checks at a time. It is on
    unless `default_status` says otherwise.

    Args:
        checks: The checks to run.
        name: The name of the sensor.
        interval_s: The time between two runs.
        **sensor_options: Further arguments of Dagster's sensor.
    """
    tags = {CHECKS_TAG: name}
    keys = [key for check in checks for key in check.check_keys]

    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        wanted = dg.RunsFilter(tags=tags, statuses=UNFINISHED)
        running = context.instance.get_run_records(wanted, limit=1)
        if running:
            text = f"run {running[0].dagster_run.run_id} is under way"
            return dg.SensorResult(skip_reason=text)
        return dg.SensorResult(run_requests=[dg.RunRequest(tags=tags, asset_check_keys=keys)])

    given = checked_options(SensorOptions, sensor_options, f"sensor {name}")
    usual: dict[str, Any] = {
        "default_status": dg.DefaultSensorStatus.RUNNING,
        "description": f"Runs {len(keys)} check(s) every {interval_s} s, also between runs of "
        "their assets.",
    }
    given.pop("minimum_interval_seconds", None)
    return dg.sensor(
        name=name,
        asset_selection=dg.AssetSelection.checks(*checks),
        minimum_interval_seconds=interval_s,
        **{**usual, **given},
    )(evaluate)


def build_fluss_check_schedule(
    checks: Sequence[dg.AssetChecksDefinition],
    cron_schedule: str,
    *,
    name: str = "fluss_checks",
    time_zone: str = "UTC",
    default_status: dg.DefaultScheduleStatus = dg.DefaultScheduleStatus.RUNNING,
) -> dg.ScheduleDefinition:
    """Run checks at the times of a cron schedule, whatever happens to their assets.

    Args:
        checks: The checks.
        cron_schedule: Five fields, such as `0 * * * *`.
        name: The name of the job; the schedule's is that and `_schedule`.
        time_zone: The zone of the schedule.
        default_status: Whether it is on.
    """
    job = dg.define_asset_job(name, dg.AssetSelection.checks(*checks))
    return dg.ScheduleDefinition(
        job=job,
        cron_schedule=cron_schedule,
        execution_timezone=time_zone,
        default_status=default_status,
        description=f"Runs {len(checks)} check(s), also between runs of their assets.",
    )


def _check(
    asset: CheckedAsset, name: str, evaluate: Evaluate, options: CheckOptions
) -> dg.AssetChecksDefinition:
    given = checked_options(CheckOptions, options, f"check {name}")
    resource_key = given.pop("resource_key", "fluss")

    def check(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        connection = getattr(context.resources, resource_key).connection
        try:
            return evaluate(connection, context)
        except (TableNotExistError, DatabaseNotExistError) as error:
            return dg.AssetCheckResult(passed=False, description=f"there is none: {error.message}")

    made: dg.AssetChecksDefinition = dg.asset_check(
        asset=asset.key if isinstance(asset, dg.AssetSpec) else asset,
        name=name,
        required_resource_keys={resource_key},
        **given,
    )(check)
    return made


def _asset_key(asset: CheckedAsset) -> dg.AssetKey:
    return asset.key if hasattr(asset, "key") else dg.AssetKey.from_coercible(asset)


def _recorded(context: dg.AssetCheckExecutionContext, key: dg.AssetKey) -> dict[str, str] | None:
    event = context.instance.get_latest_materialization_event(key)
    found = None if event is None else event.asset_materialization
    value = None if found is None else found.metadata.get(COLUMN_SCHEMA)
    schema = getattr(value, "schema", None)
    if not isinstance(schema, dg.TableSchema):
        return None
    return {column.name: column.type for column in schema.columns}


def _compared(info: TableInfo, wanted: Mapping[str, str]) -> dg.AssetCheckResult:
    present = {column.name: str(column.type) for column in info.schema.columns}
    drift = _drift(wanted, present)
    return dg.AssetCheckResult(
        passed=not drift,
        description="; ".join(drift) or f"{info.table_path} has the columns that are expected",
        metadata={COLUMN_SCHEMA: info_schema(info), "fluss/drift": drift},
    )


def _drift(wanted: Mapping[str, str], present: Mapping[str, str]) -> list[str]:
    found = [f"column {name} is gone" for name in wanted if name not in present]
    found += [f"column {name} {present[name]} is new" for name in present if name not in wanted]
    found += [
        f"column {name} is {present[name]}, not {wanted[name]}"
        for name in wanted
        if name in present and present[name] != wanted[name]
    ]
    return found


def lake_freshness_policy(freshness: str | TableInfo, *, factor: float = 3.0) -> dg.FreshnessPolicy:
    """Return a policy from `table.datalake.freshness`: warn after it, fail at `factor` times it.

    It is for the asset of `fluss_lake_freshness_asset`, which has one already. On an asset that is
    materialised for snapshots alone it would fail while nothing is written.

    Args:
        freshness: that option's text, such as `3min`, or the table itself.
        factor: when it fails.
    """
    warn = timedelta(seconds=freshness_window_s(freshness))
    return dg.FreshnessPolicy.time_window(fail_window=warn * max(factor, 1.01), warn_window=warn)


def freshness_window_s(freshness: str | TableInfo) -> float:
    """The time after which a lake is not fresh, as Dagster can take it."""
    if isinstance(freshness, TableInfo):
        freshness = freshness.properties.get(LAKE_FRESHNESS, FRESHNESS_DEFAULT)
    return max(duration_ms(1)(LAKE_FRESHNESS, freshness) / 1000, FRESHNESS_LEAST_S)
