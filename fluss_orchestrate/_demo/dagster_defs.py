"""The shop's assets downstream of the increments: revenue by day and region, in a key table.

python -m fluss_orchestrate._demo.dagster_defs ROUND
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from pathlib import Path

import dagster as dg
import pyarrow as pa

from fluss_orchestrate._demo import shop
from fluss_orchestrate._demo.processes import run_or_serve
from fluss_orchestrate.core.lake.catalog import open_catalog
from fluss_orchestrate.dagster import FlussIOManager, FlussResource

NEEDED = (
    "pandas",
    "pyarrow.dataset",
    "pyiceberg.catalog.sql",
    "pyiceberg.io.pyarrow",
)
place = shop.Shop(Path(os.environ["SHOP_FOLDER"]))
fluss = FlussResource(
    bootstrap_servers=place.settings()["bootstrap.servers"], cluster_alias=shop.ALIAS
)


@dg.asset(key=["analytics", "orders"], kinds={"iceberg"})
def orders() -> dg.MaterializeResult[None]:
    """What Airflow has brought here; counted by Iceberg itself."""
    table = open_catalog(place.catalog()).load_table("analytics.orders")
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    return dg.MaterializeResult(
        metadata={"dagster/row_count": int(snapshot.summary["total-records"] or 0)},
        data_version=dg.DataVersion(str(snapshot.snapshot_id)),
    )


@dg.asset(
    key=["shop", "revenue"],
    deps=[orders],
    # Where a cluster has an Iceberg lake, rows are placed by one column of the key.
    metadata={"primary_key": ["day", "region"], "bucket_keys": ["region"], "buckets": 1},
    io_manager_key="fluss_io",
)
def revenue() -> pa.Table:
    """Revenue by day and region, upserted into a key table of Fluss."""
    table = open_catalog(place.catalog()).load_table("analytics.orders")
    rows = table.scan(selected_fields=("day", "region", "amount")).to_arrow()
    summed = rows.group_by(["day", "region"]).aggregate([("amount", "sum")])
    summed = summed.rename_columns(["day", "region", "amount"])
    amount = pa.field("amount", pa.decimal128(18, 2))
    return summed.set_column(2, amount, summed["amount"].cast(amount.type))


defs = dg.Definitions(
    assets=[orders, revenue],
    resources={"fluss": fluss, "fluss_io": FlussIOManager(fluss=fluss)},
)


def import_everything() -> None:
    """Import what every round needs before the fork, so that it is done once."""
    for name in NEEDED:
        importlib.import_module(name)
    # An instance imports its storage when it is opened, and makes its database the first time.
    with dg.DagsterInstance.get():
        pass


def work(words: Sequence[str]) -> bool:
    with dg.DagsterInstance.get() as instance:
        done = dg.materialize(
            [orders, revenue],
            instance=instance,
            resources={"fluss": fluss, "fluss_io": FlussIOManager(fluss=fluss)},
            tags={"round": words[0]},
        )
    return done.success


if __name__ == "__main__":
    Path(os.environ["DAGSTER_HOME"]).mkdir(exist_ok=True)
    import_everything()
    run_or_serve(work)
