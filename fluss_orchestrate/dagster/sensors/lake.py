"""A sensor that tells Dagster when a table's lake has a new snapshot, or has caught up.

A snapshot is reported once although ticks may repeat: the cursor knows the last one, and so does
the asset's latest materialisation, which is looked at before another one is made.

Dagster's freshness policies look at the time of the last materialisation. A lake that holds
everything gets no snapshot while nothing is written, and still is fresh. So freshness is an asset
of its own, which is materialised for each snapshot and, again and again, while the lake holds
everything; what is downstream of the lake itself is not woken by that.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from fluss_client import FlussConnection, LakeSnapshot, TableInfo, TablePath
from fluss_client.engine import async_connection, run_blocking
from fluss_client.errors import ConfigError, FlussError
from fluss_orchestrate.core.errors import NotYetError, TableIdentityChangedError
from fluss_orchestrate.core.identity import table_uri
from fluss_orchestrate.core.lake.covers import (
    LakeTarget,
    Target,
    freeze_target,
    latest_snapshot,
)
from fluss_orchestrate.core.lake.status import lake_status
from fluss_orchestrate.core.times import as_time_ms
from fluss_orchestrate.dagster.checks import (
    FRESHNESS_DEFAULT,
    freshness_window_s,
    lake_freshness_policy,
)
from fluss_orchestrate.dagster.metadata import (
    DATA_VERSION_TAG,
    OFFSETS,
    SNAPSHOT_ID,
    STORAGE,
    STORAGE_KIND,
    TABLE_NAME,
    URI,
)
from fluss_orchestrate.dagster.sensors.cursors import read_cursor, write_cursor
from fluss_orchestrate.dagster.work import table_info

KIND = "lake"
TICK_TIMEOUT_S = 40.0
"""Dagster gives a tick 60 seconds."""
COVERED = "fluss/covered"
REPORTS_PER_WINDOW = 3
"""How often a lake that holds everything is reported within the time after which it would warn."""

OneCovers = Target | Callable[[datetime], Target]
Covers = OneCovers | Mapping[str, OneCovers]
"""What the lake shall hold: for every table, or table by table."""


def lake_asset_key(table: str) -> dg.AssetKey:
    """Return the asset key of the lake of a `table`: `lake/database/table`."""
    path = TablePath.parse(table)
    return dg.AssetKey(["lake", path.database_name, path.table_name])


def fluss_lake_asset(table: str, **options: Any) -> dg.AssetSpec:
    """Return the lake of a table as an external asset, for a snapshot sensor to materialise.

    Args:
        table: The table, as `database.table`.
        **options: Further arguments of `AssetSpec`.
    """
    if options.get("freshness_policy") is not None:
        raise ConfigError(
            f"the lake of {table}: a policy here would fail whenever nothing is written, because "
            "each snapshot is reported once; define fluss_lake_freshness_asset beside it and give "
            "the snapshot sensor report_freshness=True"
        )
    given = {"key": lake_asset_key(table), "kinds": {"fluss", "iceberg"}, **options}
    metadata = {TABLE_NAME: table, STORAGE: STORAGE_KIND, **given.pop("metadata", {})}
    return dg.AssetSpec(metadata=metadata, **given)


def lake_freshness_key(lake: dg.AssetKey) -> dg.AssetKey:
    """Return the key of the freshness asset of a `lake`: its own key, then `freshness`."""
    return dg.AssetKey([*lake.path, "freshness"])


def fluss_lake_freshness_asset(
    table: str,
    freshness: str | TableInfo = FRESHNESS_DEFAULT,
    *,
    factor: float = 3.0,
    **options: Any,
) -> dg.AssetSpec:
    """Return the freshness of a table's lake as an external asset with a freshness policy.

    A snapshot sensor with `report_freshness=True` materialises it. The policy warns if the lake got
    no snapshot and did not hold everything for the time `freshness`, and fails after `factor` times
    that.

    Args:
        table: The table, as `database.table`.
        freshness: `table.datalake.freshness` as text, or the table itself.
        factor: After how many times the freshness the policy fails.
        **options: Further arguments of `AssetSpec`.
    """
    lake = lake_asset_key(table)
    given = {
        "key": lake_freshness_key(lake),
        "deps": [lake],
        "kinds": {"fluss", "iceberg"},
        "freshness_policy": lake_freshness_policy(freshness, factor=factor),
        **options,
    }
    metadata = {TABLE_NAME: table, STORAGE: STORAGE_KIND, **given.pop("metadata", {})}
    return dg.AssetSpec(metadata=metadata, **given)


def build_fluss_lake_snapshot_sensor(
    tables: Sequence[str] | Mapping[str, dg.AssetKey],
    *,
    name: str = "fluss_lake_snapshots",
    covers: Covers | None = None,
    request_runs: bool = False,
    report_freshness: bool = False,
    job: Any = None,
    asset_selection: Any = None,
    resource_key: str = "fluss",
    tick_timeout_s: float = TICK_TIMEOUT_S,
    **sensor_options: Any,
) -> dg.SensorDefinition:
    """Return a sensor that watches the lakes of many tables.

    It reports each new snapshot as a materialisation, without a run, of the table's lake asset.

    Args:
        tables: The tables; a mapping also gives the key of each lake asset. By default the key is
            that of `fluss_lake_asset`.
        name: The name of the sensor.
        covers: A target: `latest`, a time, offsets, a receipt or a plan; a function that returns
            one for the current time; or a mapping of tables to these. It is resolved once, reported
            once the lake covers it, then resolved again.
        request_runs: Request a run of `job` or `asset_selection`, tagged with table and snapshot,
            instead of reporting a materialisation.
        report_freshness: Materialise the table's `fluss_lake_freshness_asset` as long as the lake
            is fresh. The sensor must tick more often than the freshness of the table.
        job: The job to run.
        asset_selection: The assets to materialise.
        resource_key: The key of the `FlussResource`.
        tick_timeout_s: How long one tick may take.
        **sensor_options: Further arguments of Dagster's sensor.
    """
    if request_runs and job is None and asset_selection is None:
        raise ConfigError(f"sensor {name}: request_runs needs a job or an asset_selection")
    keys = dict(tables) if isinstance(tables, Mapping) else {t: lake_asset_key(t) for t in tables}

    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        connection = getattr(context.resources, resource_key).connection
        watch = _Watch(context, connection, covers)
        kept = read_cursor(context.cursor, KIND)
        state: dict[str, Any] = {t: s for t, s in kept.get("tables", {}).items() if t in keys}
        order, places = list(keys), max(1, len(keys))
        first = int(kept.get("next", 0)) % places
        started = time.monotonic()
        news: list[tuple[str, LakeSnapshot, str]] = []
        fresh: list[dg.AssetMaterialization] = []
        seen = 0
        for table in order[first:] + order[:first]:
            if seen and time.monotonic() - started > tick_timeout_s:
                break
            seen += 1
            own = state.setdefault(table, {})
            found = watch.look(table, keys[table], own)
            news += [] if found is None else [(table, *found)]
            if report_freshness:
                fresh += watch.freshness(table, keys[table], own)
        cursor = write_cursor(KIND, {"tables": state, "next": (first + seen) % places})
        quiet = f"no news of {seen} table(s). {' '.join(watch.notes)}".strip()
        alias = connection.config.resolved_alias()
        events = [_materialization(keys[item[0]], alias, *item) for item in news]
        return dg.SensorResult(
            run_requests=[_run_request(name, *item) for item in news] if request_runs else None,
            asset_events=fresh if request_runs else [*events, *fresh],
            cursor=cursor,
            skip_reason=None if news or fresh else quiet,
        )

    return dg.sensor(
        name=name,
        job=job,
        asset_selection=asset_selection,
        required_resource_keys={resource_key},
        **sensor_options,
    )(evaluate)


class _Watch:
    """One tick's look at tables."""

    def __init__(
        self,
        context: dg.SensorEvaluationContext,
        connection: FlussConnection,
        covers: Covers | None,
    ) -> None:
        self._context = context
        self._connection = connection
        self._covers = covers
        self.notes: list[str] = []

    def look(
        self, table: str, key: dg.AssetKey, state: dict[str, Any]
    ) -> tuple[LakeSnapshot, str] | None:
        """A snapshot to report, with what it covers; one table's trouble leaves the others be."""
        try:
            path = TablePath.parse(table)
            snapshot = run_blocking(latest_snapshot(async_connection(self._connection), path))
            if snapshot is None:
                self.notes.append(f"{table} has no snapshot yet.")
                return None
            covered = self._covered(table, state, snapshot)
        except NotYetError as error:
            self.notes.append(str(error))
            return None
        except FlussError as error:
            self._context.log.warning(f"{table}: {error}")
            self.notes.append(f"{table}: {error.message}.")
            return None
        wanted = self._wanted(table)
        mark = str(snapshot.snapshot_id) if wanted is None else covered
        if not mark or state.get("reported") == mark:
            return None
        state["reported"] = mark
        name = SNAPSHOT_ID if wanted is None else COVERED
        return None if self._was_reported(key, name, mark) else (snapshot, covered)

    def freshness(
        self, table: str, lake: dg.AssetKey, state: dict[str, Any]
    ) -> list[dg.AssetMaterialization]:
        """An event if the lake got a snapshot, or still holds everything and a report is due."""
        try:
            status = lake_status(self._connection, table, times=False)
            info = table_info(self._connection, table)
        except FlussError as error:
            self.notes.append(f"{table}: {error.message}.")
            return []
        now = time.time()
        every_s = freshness_window_s(info) / REPORTS_PER_WINDOW
        due = now - float(state.get("fresh_s", 0.0)) >= every_s
        # A snapshot that was there at the first look may be old.
        is_new = state.get("fresh_snapshot", status.snapshot_id) != status.snapshot_id
        state["fresh_snapshot"] = status.snapshot_id
        if not (is_new or (due and status.lag_offsets == 0)):
            return []
        state["fresh_s"] = now
        return [
            dg.AssetMaterialization(
                lake_freshness_key(lake),
                description=f"{status.lag_offsets} offsets of {table} are not in its lake",
                metadata={
                    SNAPSHOT_ID: str(status.snapshot_id),
                    "fluss/lag_offsets": status.lag_offsets,
                },
            )
        ]

    def _wanted(self, table: str) -> OneCovers | None:
        given = self._covers
        if isinstance(given, Mapping) and all(isinstance(key, str) for key in given):
            by_table: Mapping[str, OneCovers] = given  # type: ignore[assignment]
            return by_table.get(table)
        return given  # type: ignore[return-value]

    def _covered(self, table: str, state: dict[str, Any], snapshot: LakeSnapshot) -> str:
        """The name of the frozen target that the snapshot covers; empty while it does not."""
        given = self._wanted(table)
        if given is None:
            return ""
        if "target" not in state:
            wanted = given(datetime.now(UTC)) if callable(given) else given
            frozen = freeze_target(self._connection, table, wanted)
            state["target"] = frozen.to_json()
            moves = as_time_ms(wanted) is None
            state["mark"] = json.dumps(state["target"]["offsets"]) if moves else str(wanted)
        try:
            done = LakeTarget.from_json(state["target"]).covered_by(snapshot)
        except TableIdentityChangedError:
            del state["target"]
            raise
        if not done:
            self.notes.append(f"the lake of {table} does not cover {state['mark']} yet.")
            return ""
        del state["target"]  # the next tick resolves the next one
        return str(state["mark"])

    def _was_reported(self, key: dg.AssetKey, name: str, mark: str) -> bool:
        event = self._context.instance.get_latest_materialization_event(key)
        found = None if event is None else event.asset_materialization
        if found is None:
            return False
        value = found.metadata.get(name)
        return value is not None and value.value == mark


def _materialization(
    key: dg.AssetKey, alias: str, table: str, snapshot: LakeSnapshot, covered: str
) -> dg.AssetMaterialization:
    offsets = [
        [bucket.partition_id, bucket.bucket_id, offset]
        for bucket, offset in snapshot.table_buckets_offset.items()
    ]
    metadata: dict[str, Any] = {
        TABLE_NAME: table,
        STORAGE: STORAGE_KIND,
        URI: table_uri(alias, TablePath.parse(table)),
        SNAPSHOT_ID: str(snapshot.snapshot_id),
        OFFSETS: dg.MetadataValue.json(offsets),
    }
    if covered:
        metadata[COVERED] = covered
    return dg.AssetMaterialization(
        key,
        description=f"lake snapshot {snapshot.snapshot_id} of {table}",
        metadata=metadata,
        tags={DATA_VERSION_TAG: str(snapshot.snapshot_id)},
    )


def _run_request(name: str, table: str, snapshot: LakeSnapshot, covered: str) -> dg.RunRequest:
    mark = covered or str(snapshot.snapshot_id)
    return dg.RunRequest(
        run_key=f"{name}:{table}:{mark}",
        tags={"fluss/table": table, "fluss/snapshot_id": str(snapshot.snapshot_id)},
    )
