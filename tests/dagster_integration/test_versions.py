"""Data versions: what brought nothing new leaves downstream assets as they are."""

from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa

from fluss_client import FlussConnection, TablePath
from fluss_orchestrate import ParquetSink
from fluss_orchestrate.dagster import FlussIOManager, FlussResource, incremental_fluss_asset
from tests.dagster_integration.tables import append, make_table, orders


def version(result: dg.ExecuteInProcessResult, node: str) -> str:
    [event] = result.asset_materializations_for_node(node)
    assert event.tags is not None
    return event.tags["dagster/data_version"]


def test_an_increment_without_rows_keeps_the_version(
    fluss: FlussResource, connection: FlussConnection, database: str, tmp_path: Path
) -> None:
    path = make_table(connection, TablePath(database, "orders"))
    asset = incremental_fluss_asset(
        "copied", table=str(path), sink=ParquetSink(tmp_path), checkpoint=f"{database}/copied"
    )
    versions = []
    for rows in (0, 10, 0, 0, 5, 0):
        if rows:
            append(connection, path, orders(rows))
        versions.append(version(dg.materialize([asset], resources={"fluss": fluss}), "copied"))
    none, ten, still, again, more, at_last = versions
    assert ten == still == again
    assert more == at_last
    assert len({none, ten, more}) == 3


def test_frames_without_rows_keep_the_version(
    fluss: FlussResource, database: str, instance: dg.DagsterInstance
) -> None:
    """Of a table, and of one partition while another one gets rows."""
    counts = [3]
    days = dg.DailyPartitionsDefinition("2026-11-01")

    @dg.asset(key=[database, "whole"])
    def whole() -> pa.Table:
        return orders(counts[0])

    appended = {"partition_expr": "day", "write_mode": "append"}

    @dg.asset(key=[database, "daily"], partitions_def=days, metadata=appended)
    def daily(context: dg.AssetExecutionContext) -> pa.Table:
        table = orders(counts[0])
        return table.append_column("day", pa.array([context.partition_key] * len(table)))

    given: dict[str, Any] = {"resources": {"io_manager": FlussIOManager(fluss=fluss)}}

    def run(asset: Any, **more: Any) -> str:
        result = dg.materialize([asset], instance=instance, **given, **more)
        return version(result, f"{database}__{asset.key.path[-1]}")

    with_rows = run(whole)
    first = run(daily, partition_key="2026-11-01")
    assert run(daily, partition_key="2026-11-02") != first
    counts[0] = 0
    assert run(whole) == with_rows
    assert run(daily, partition_key="2026-11-01") == first
    counts[0] = 1
    assert run(whole) != with_rows
