"""A smoke test of the Dagster part on whatever release is installed, without pytest.

    python -m tests.dagster_integration.release_smoke DIRECTORY

It runs assets, an IO manager, an increment, sensors, checks and a component over an embedded Fluss.
The last line of its output is JSON with the versions. `python -m tests.version_matrix` runs it.
"""

import json
import platform
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa

from fluss_client import TablePath
from fluss_orchestrate import ColumnSpec, ParquetSink, TableSpec
from fluss_orchestrate.dagster import (
    FlussIOManager,
    FlussResource,
    build_fluss_checks,
    build_fluss_lag_check,
    build_fluss_offset_sensor,
    build_fluss_table_sensor,
    close_connections,
    fluss_lake_asset,
    incremental_fluss_asset,
    load_fluss_asset_specs,
)

ORDERS = TableSpec("shop.orders", (ColumnSpec("id", "bigint"), ColumnSpec("day", "string")))
DAYS = dg.StaticPartitionsDefinition(["20261101", "20261102"])


def rows(count: int, day: str = "20261101") -> pa.Table:
    return pa.table({"id": list(range(count)), "day": [day] * count})


def run_assets(fluss: FlussResource, files: Path) -> dg.AssetsDefinition:
    """Tables, a load, an increment with its check, and a partition that is replaced."""

    @dg.asset
    def tables(context: dg.AssetExecutionContext, fluss: FlussResource) -> dg.MaterializeResult:
        return fluss.provision(context, [ORDERS])

    @dg.asset(key=["shop", "orders"], deps=[tables])
    def orders(context: dg.AssetExecutionContext, fluss: FlussResource) -> dg.MaterializeResult:
        return fluss.append(context, "shop.orders", rows(20))

    @dg.asset(key=["shop", "daily"], partitions_def=DAYS, metadata={"partition_expr": "day"})
    def daily(context: dg.AssetExecutionContext) -> pa.Table:
        return rows(5, context.partition_key)

    copied = incremental_fluss_asset("copied", table="shop.orders", sink=ParquetSink(files))
    checks = [
        build_fluss_lag_check(copied, "dagster/copied", max_offsets=0),
        *build_fluss_checks([ORDERS]),
    ]
    resources: dict[str, Any] = {"fluss": fluss, "io_manager": FlussIOManager(fluss=fluss)}
    done = dg.materialize([tables, orders, copied, *checks], resources=resources)
    assert [e.passed for e in done.get_asset_check_evaluations()] == [True, True]
    [event] = done.asset_materializations_for_node("copied")
    assert event.metadata["fluss/rows"].value == 20
    for _ in range(2):
        made = dg.materialize([daily], resources=resources, partition_key="20261102")
    [event] = made.asset_materializations_for_node("shop__daily")
    assert event.metadata["dagster/partition_row_count"].value == 5
    return copied


def run_sensors(fluss: FlussResource, copied: dg.AssetsDefinition) -> None:
    """One tick of each, called as tests of users call them."""
    path = TablePath("shop", "orders")
    with fluss.connection.get_table(path).result().new_append().create_writer() as writer:
        writer.write_arrow(rows(3))
    resources = {"fluss": fluss}
    with dg.DagsterInstance.ephemeral() as instance:
        context = dg.build_sensor_context(instance=instance, resources=resources)
        told: Any = build_fluss_table_sensor(["shop.orders"])(context)
        assert len(told.asset_events) == 2
        sensor = build_fluss_offset_sensor(
            "shop.orders", "dagster/copied", asset_selection=[copied]
        )
        context = dg.build_sensor_context(instance=instance, resources=resources)
        asked: Any = sensor(context)
        assert [r.tags["fluss/offsets_behind"] for r in asked.run_requests] == ["3"]


def run_component(address: str, folder: Path) -> None:
    """A component loads what it wrote down."""
    from fluss_orchestrate.dagster.components import FlussDatabaseComponent
    from fluss_orchestrate.dagster.components.connection import ConnectionAttributes
    from fluss_orchestrate.dagster.components.increments import IncrementAttributes

    component: Any = FlussDatabaseComponent(
        ConnectionAttributes(bootstrap_servers=address, cluster_alias="smoke"),
        ["shop"],
        increments=[IncrementAttributes(table="shop.orders", key="shop/files", parquet="files")],
    )
    component.write_state_to_path(folder / "state")
    found = component.build_defs_from_state(None, folder / "state")
    assert found.get_repository_def().sensor_defs


def main(directory: Path) -> dict[str, str]:
    """Run everything; the versions."""
    directory.mkdir(parents=True, exist_ok=True)
    address = f"embedded:{directory / 'fluss'}"
    fluss = FlussResource(bootstrap_servers=address, cluster_alias="smoke")
    copied = run_assets(fluss, directory / "files")
    run_sensors(fluss, copied)
    specs = load_fluss_asset_specs(fluss, ["shop"])
    definitions = dg.Definitions(
        assets=[*specs, copied, fluss_lake_asset("shop.orders")], resources={"fluss": fluss}
    )
    assert definitions.get_repository_def()
    run_component(address, directory)
    close_connections()
    return {"dagster": dg.__version__, "python": platform.python_version()}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
