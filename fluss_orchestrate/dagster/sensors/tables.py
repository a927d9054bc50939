"""A sensor that keeps the assets of tables alive: what they hold, and how far readers are behind.

Dagster wakes what is downstream of an external asset by its materialisations, and shows numbers of
observations in charts. So a table that has got rows is materialised, without a run, with a data
version; and what can be said of it is observed then and again every few minutes. One sensor does it
for many tables.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import dagster as dg

from fluss_client import FlussConnection
from fluss_client.errors import FlussError
from fluss_orchestrate.core.checkpoints import CheckpointStore
from fluss_orchestrate.core.checkpoints.events import Event
from fluss_orchestrate.core.table_report import TableReport, checkpoint_heads, report_table
from fluss_orchestrate.dagster.metadata import (
    DATA_VERSION_TAG,
    LAG_OFFSETS,
    LAG_S,
    PARTITION_ROW_COUNT,
    ROW_COUNT,
    SNAPSHOT_ID,
    table_metadata,
)
from fluss_orchestrate.dagster.options import SensorOptions
from fluss_orchestrate.dagster.sensors.ticks import (
    NOT_THERE,
    TICK_TIMEOUT_S,
    TableRound,
    absent,
    connection_of,
    make_sensor,
)
from fluss_orchestrate.dagster.tables import DagsterFlussTranslator
from fluss_orchestrate.dagster.work import position_version

KIND = "tables"
INTERVAL_S = 60
OBSERVE_INTERVAL_S = 300.0
EVENTS_MAX = 500
"""Materialisations of partitions in one tick; the next tick goes on."""
OFFSETS_TOTAL = "fluss/offsets_total"
BYTES = "fluss/bytes"
LAKE_LAG_OFFSETS = "fluss/lake_lag_offsets"
LAKE_LAG_S = "fluss/lake_lag_s"


def build_fluss_table_sensor(
    tables: Sequence[str] | Mapping[str, dg.AssetKey],
    *,
    name: str = "fluss_tables",
    min_offsets: int = 1,
    observe_interval_s: float = OBSERVE_INTERVAL_S,
    store: CheckpointStore | None = None,
    translator: DagsterFlussTranslator | None = None,
    resource_key: str = "fluss",
    tick_timeout_s: float = TICK_TIMEOUT_S,
    **sensor_options: Unpack[SensorOptions],
) -> dg.SensorDefinition:
    """Report what happens in many tables with one sensor.

    A table that has got rows is a materialisation of its asset, without a run, with a data version:
    `AutomationCondition.eager()` and the like downstream of it wake up. What the table holds, how
    far each checkpoint and the lake are behind, is an observation with numbers. If the asset has
    the partitions of the table, each partition that has got rows is materialised by itself. Rows
    that a run of Dagster has written itself are not reported again.

    Args:
        tables: The tables, as `database.table`, or the key of each table's asset.
        name: The sensor's name.
        min_offsets: How many offsets a table, or partition, must have got to be materialised.
        observe_interval_s: How often a table is observed while nothing is written.
        store: The checkpoint store; the default one if not given.
        translator: Which asset a table is.
        resource_key: The key of the `FlussResource`.
        tick_timeout_s: When a tick stops; the next one goes on with the other tables.
        **sensor_options: Arguments of `dg.sensor`. It ticks every minute and is on by default.
    """
    chosen = translator or DagsterFlussTranslator()
    keys = (
        dict(tables)
        if isinstance(tables, Mapping)
        else {table: chosen.spec_of(table).key for table in tables}
    )

    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        connection = connection_of(context, resource_key)
        tick = TableRound(context.cursor, KIND, list(keys), tick_timeout_s)
        heads = checkpoint_heads(connection, store)
        look = _Look(context, connection, heads, min_offsets, observe_interval_s)
        for table, state in tick:
            look.at(table, keys[table], state)
        quiet = f"no news of {tick.seen} table(s). {' '.join(look.notes)}".strip()
        return dg.SensorResult(
            asset_events=look.events,
            cursor=tick.cursor(),
            skip_reason=None if look.events else quiet,
        )

    usual: dict[str, Any] = {
        "minimum_interval_seconds": INTERVAL_S,
        "default_status": dg.DefaultSensorStatus.RUNNING,
    }
    return make_sensor(
        evaluate,
        name=name,
        description=f"Reports new rows of {len(keys)} table(s), what they hold, and how far their "
        "checkpoints and lakes are behind.",
        resource_key=resource_key,
        options={**usual, **sensor_options},
    )


class _Look:
    """One tick's look at tables."""

    def __init__(
        self,
        context: dg.SensorEvaluationContext,
        connection: FlussConnection,
        heads: Sequence[Event],
        min_offsets: int,
        observe_interval_s: float,
    ) -> None:
        self._context = context
        self._connection = connection
        self._heads = heads
        self._min_offsets = min_offsets
        self._observe_interval_s = observe_interval_s
        self.events: list[dg.AssetMaterialization | dg.AssetObservation] = []
        self.notes: list[str] = []

    def at(self, table: str, key: dg.AssetKey, state: dict[str, Any]) -> None:
        """Report a table; one table's trouble leaves the others be."""
        try:
            report = report_table(self._connection, table, self._heads)
        except NOT_THERE as error:
            self.notes.append(f"{absent(table, error)}.")
            return
        except FlussError as error:
            self._context.log.warning(f"{table}: {error}")
            self.notes.append(f"{table}: {error.message}.")
            return
        changed = self._materialize(table, key, state, report)
        now = time.time()
        due = now - float(state.get("observed_s", 0.0)) >= self._observe_interval_s
        if changed or due:
            state["observed_s"] = now
            self.events.append(
                dg.AssetObservation(
                    key,
                    description=f"{table} has {_count(report.rows)} rows",
                    metadata=_numbers(report),
                    tags={DATA_VERSION_TAG: _version(report).value},
                )
            )

    def _materialize(
        self, table: str, key: dg.AssetKey, state: dict[str, Any], report: TableReport
    ) -> bool:
        """Add a materialisation of what has changed; whether there is one."""
        definition = self._partitions(key)
        if definition is not None and report.view.info.is_partitioned():
            return self._materialize_partitions(key, state, report, definition)
        version = _version(report).value
        known = int(state.get("offsets", 0)) if state.get("version") else None
        if version == state.get("version"):
            return False
        same_table = state.get("table_id") == report.view.info.table_id
        grown = known is None or not same_table or report.offsets - known >= self._min_offsets
        if not grown:
            return False
        state.update(version=version, offsets=report.offsets, table_id=report.view.info.table_id)
        if self._is_known(key, version, None):
            return False
        count = {} if report.rows is None else {ROW_COUNT: report.rows}
        self.events.append(
            dg.AssetMaterialization(
                key,
                description=f"{table} ends at {report.offsets} offsets",
                metadata={**self._described(report), **count, OFFSETS_TOTAL: report.offsets},
                tags={DATA_VERSION_TAG: version},
            )
        )
        return True

    def _materialize_partitions(
        self,
        key: dg.AssetKey,
        state: dict[str, Any],
        report: TableReport,
        definition: dg.PartitionsDefinition[Any],
    ) -> bool:
        kept: dict[str, int] = state.get("partitions", {})
        ends: dict[int, dict[Any, int]] = {}
        for place, offset in report.view.latest.items():
            assert place[0] is not None, "a table with partitions"
            ends.setdefault(place[0], {})[place] = offset
        # Ids of dropped partitions are forgotten; ids are never used again.
        state["partitions"] = {i: n for i, n in kept.items() if int(i) in ends}
        known, found = self._known_keys(definition), False
        for partition_id, offsets in ends.items():
            name, total = report.view.partitions[partition_id], sum(offsets.values())
            if total - state["partitions"].get(str(partition_id), 0) < self._min_offsets:
                continue
            if name not in known:
                continue
            if len(self.events) >= EVENTS_MAX:
                self.notes.append(f"more partitions of {report.view.info.table_path} come next.")
                break
            state["partitions"][str(partition_id)] = total
            version = position_version(report.view.identity, offsets).value
            if self._is_known(key, version, name):
                continue
            counts = report.row_counts or {}
            rows = {PARTITION_ROW_COUNT: counts[partition_id]} if partition_id in counts else {}
            self.events.append(
                dg.AssetMaterialization(
                    key,
                    partition=name,
                    description=f"partition {name} ends at {total} offsets",
                    metadata={**self._described(report), **rows, OFFSETS_TOTAL: total},
                    tags={DATA_VERSION_TAG: version},
                )
            )
            found = True
        return found

    def _described(self, report: TableReport) -> dict[str, Any]:
        return table_metadata(report.view.identity.cluster, report.view.info)

    def _partitions(self, key: dg.AssetKey) -> dg.PartitionsDefinition[Any] | None:
        """How Dagster partitions the asset, as far as this location knows it."""
        repository = self._context.repository_def
        if repository is None or not repository.asset_graph.has(key):
            return None
        return repository.asset_graph.get(key).partitions_def

    def _known_keys(self, definition: dg.PartitionsDefinition[Any]) -> set[str]:
        """The keys that Dagster has; a partition sensor adds others before they are reported."""
        return set(definition.get_partition_keys(dynamic_partitions_store=self._context.instance))

    def _is_known(self, key: dg.AssetKey, version: str, partition: str | None) -> bool:
        """Whether a run of Dagster has reported the same already, because it wrote the rows."""
        only = None if partition is None else [partition]
        wanted = dg.AssetRecordsFilter(key, asset_partitions=only)
        records = self._context.instance.fetch_materializations(wanted, limit=1).records
        event = records[0].asset_materialization if records else None
        return event is not None and (event.tags or {}).get(DATA_VERSION_TAG) == version


def _version(report: TableReport) -> dg.DataVersion:
    return position_version(report.view.identity, report.view.latest)


def _count(rows: int | None) -> str:
    return "an unknown number of" if rows is None else str(rows)


def _numbers(report: TableReport) -> dict[str, Any]:
    """What is worth a line in a chart."""
    metadata: dict[str, Any] = {OFFSETS_TOTAL: report.offsets}
    if report.rows is not None:
        metadata[ROW_COUNT] = report.rows
    if report.bytes is not None:
        metadata[BYTES] = report.bytes
    if report.view.info.is_partitioned():
        metadata["fluss/partitions"] = len(report.view.partitions)
    if report.lags:
        metadata[LAG_OFFSETS] = max(lag.offsets for lag in report.lags)
        metadata[LAG_S] = max(lag.age_ms for lag in report.lags) / 1000
    for lag in report.lags:
        metadata[f"{LAG_OFFSETS}/{lag.name}"] = lag.offsets
        metadata[f"{LAG_S}/{lag.name}"] = lag.age_ms / 1000
        if lag.lost:
            metadata[f"fluss/lost/{lag.name}"] = lag.lost
    if report.lake is not None:
        metadata[LAKE_LAG_OFFSETS] = report.lake.lag_offsets
        metadata[LAKE_LAG_S] = (report.lake.lag_ms or 0) / 1000
        metadata[SNAPSHOT_ID] = str(report.lake.snapshot_id)
    return metadata
