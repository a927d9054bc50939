"""A shop on Fluss, run by Dagster: `dagster dev -f dags/dagster/definitions.py`.

Without settings it runs on an embedded Fluss in `shop-data/`. `FLUSS_BOOTSTRAP_SERVERS` names a
cluster instead, with `FLUSS_SASL_USERNAME` and `FLUSS_SASL_PASSWORD` where it asks for them;
`SHOP_LAKE=true` says that it has a lake (the embedded one has).

    tables ─ events ─┬─ events_files      what is new, each row once, in Parquet files
                     ├─ daily_totals      a key table, upserted by day and kind
                     └─ lake/shop/events  Fluss's own Iceberg table ─ lake_report, freshness
"""

import os
from pathlib import Path

import dagster as dg
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from fluss_orchestrate import ParquetSink, TableSpec, load_table_specs
from fluss_orchestrate.dagster import (
    FlussIOManager,
    FlussResource,
    build_fluss_check_sensor,
    build_fluss_lag_check,
    build_fluss_lake_freshness_check,
    build_fluss_lake_snapshot_sensor,
    build_fluss_offset_sensor,
    build_fluss_row_count_check,
    build_fluss_table_sensor,
    fluss_lake_asset,
    fluss_lake_freshness_asset,
    incremental_fluss_asset,
    lake_asset_key,
)

HOME = Path(os.environ.get("SHOP_HOME", "shop-data")).absolute()
ADDRESS = os.environ.get("FLUSS_BOOTSTRAP_SERVERS", f"embedded:{HOME / 'fluss'}")
DATABASE = os.environ.get("SHOP_DATABASE", "shop")
HAS_LAKE = os.environ.get("SHOP_LAKE", str(ADDRESS.startswith("embedded:"))).lower() == "true"
EVENTS = f"{DATABASE}.events"
CHECKPOINT = f"{DATABASE}/events_files"
FILES = HOME / "events"
KINDS = np.array(["view", "click", "cart", "order"])
ID_SPACE = 1 << 20
CHECK_INTERVAL_S = 300

fluss = FlussResource(
    bootstrap_servers=ADDRESS,
    cluster_alias="shop",
    sasl_username=os.environ.get("FLUSS_SASL_USERNAME", ""),
    sasl_password=dg.EnvVar("FLUSS_SASL_PASSWORD") if "FLUSS_SASL_PASSWORD" in os.environ else "",
)


def specs() -> list[TableSpec]:
    """The tables of the shop."""
    return load_table_specs(f"""
tables:
  - table: {EVENTS}
    comment: what happens in the shop
    columns:
      event_id: bigint not null
      day: string
      kind: string
      amount: double
    buckets: 2
    {"lake: true" if HAS_LAKE else ""}
""")


class NewEvents(dg.Config):
    """How many events arrive."""

    count: int = 1_000


@dg.asset(key_prefix=DATABASE, kinds={"fluss"})
def tables(context: dg.AssetExecutionContext, fluss: FlussResource) -> dg.MaterializeResult:
    """The shop's tables, made or extended as their specs ask."""
    return fluss.provision(context, specs())


@dg.asset(key=[DATABASE, "events"], deps=[tables], kinds={"fluss"})
def events(
    context: dg.AssetExecutionContext, config: NewEvents, fluss: FlussResource
) -> dg.MaterializeResult:
    """Events arrive. A retry makes the same ones, and they are appended once."""
    root = context.run.root_run_id or context.run.run_id
    seed = int(root.replace("-", "")[:8], 16)
    random = np.random.default_rng(seed)
    rows = pa.table(
        {
            "event_id": np.arange(config.count, dtype=np.int64) + seed * ID_SPACE,
            "day": ["20261116"] * config.count,
            "kind": KINDS[random.integers(0, len(KINDS), config.count)],
            "amount": random.integers(100, 9_000, config.count) / 100,
        }
    )
    return fluss.append(context, EVENTS, rows)


events_files = incremental_fluss_asset(
    [DATABASE, "events_files"],
    table=EVENTS,
    sink=ParquetSink(FILES),
    checkpoint=CHECKPOINT,
    retry_policy=dg.RetryPolicy(max_retries=2),
)


@dg.asset(
    key=[DATABASE, "daily_totals"],
    deps=[events_files],
    # Where a cluster has an Iceberg lake, rows are placed by one column of the key.
    metadata={"primary_key": ["day", "kind"], "bucket_keys": ["kind"], "buckets": 1},
    io_manager_key="fluss_io",
)
def daily_totals() -> pd.DataFrame:
    """Amounts by day and kind, upserted into a key table."""
    files = sorted(FILES.glob("*.parquet"))
    rows = pa.concat_tables([pq.read_table(file) for file in files]).to_pandas()
    return rows.groupby(["day", "kind"], as_index=False)["amount"].sum()


offset_sensor = build_fluss_offset_sensor(
    EVENTS,
    CHECKPOINT,
    name="new_events",
    asset_selection=[events_files],
    minimum_interval_seconds=5,
    default_status=dg.DefaultSensorStatus.RUNNING,
)
table_sensor = build_fluss_table_sensor([EVENTS])
checks = [
    build_fluss_row_count_check(events, EVENTS, minimum=1),
    build_fluss_lag_check(events_files, CHECKPOINT, max_age_s=600),
]


@dg.asset(key_prefix=DATABASE, deps=[events], kinds={"fluss", "iceberg"})
def tiering(context: dg.AssetExecutionContext, fluss: FlussResource) -> dg.MaterializeResult:
    """One round of tiering; in production a tiering service does this."""
    return fluss.tier(context, EVENTS, allow_tiering=True)


@dg.asset(
    key_prefix=DATABASE,
    deps=[tables, lake_asset_key(EVENTS)],
    automation_condition=dg.AutomationCondition.eager(),
)
def lake_report(fluss: FlussResource) -> dg.MaterializeResult:
    """Made whenever the lake has a new snapshot."""
    rows = sum(batch.num_rows for batch in fluss.read_table(EVENTS, columns=["event_id"]))
    return dg.MaterializeResult(metadata={"events": rows})


lake_assets = [
    tiering,
    lake_report,
    fluss_lake_asset(EVENTS),
    fluss_lake_freshness_asset(EVENTS, "3min"),
]
lake_checks = [build_fluss_lake_freshness_check(tiering, EVENTS, max_lag_s=600)]
lake_sensor = build_fluss_lake_snapshot_sensor(
    [EVENTS],
    report_freshness=True,
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
)
# Between runs, too: right after an increment nothing is behind.
all_checks = [*checks, *(lake_checks if HAS_LAKE else [])]
check_sensor = build_fluss_check_sensor(all_checks, interval_s=CHECK_INTERVAL_S)

defs = dg.Definitions(
    assets=[tables, events, events_files, daily_totals, *(lake_assets if HAS_LAKE else [])],
    asset_checks=all_checks,
    sensors=[offset_sensor, table_sensor, check_sensor, *([lake_sensor] if HAS_LAKE else [])],
    resources={"fluss": fluss, "fluss_io": FlussIOManager(fluss=fluss)},
)
