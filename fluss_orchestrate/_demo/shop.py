"""A small shop: its place on disk, its tables, its rows. Everything else of the demo stands on it.

Orders and their lines are log tables with daily partitions and a lake; customers are a key table
whose composite key has a one-column bucket key, and which a SQL table mirrors. Rows are made from
their numbers alone, so that every process of the demo knows what must have arrived.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fluss_client import Config, FlussConnection
from fluss_orchestrate.core.provisioning import TableSpec, load_table_specs

ORDERS = "shop.orders"
LINES = "shop.order_lines"
CUSTOMERS = "shop.customers"
REVENUE = "shop.revenue"
DAYS = ("20261114", "20261115", "20261116", "20261117")
HISTORY_DAYS = DAYS[:2]
"""What Spark loads before the first round."""
DAY_OF_ROUND = {1: DAYS[2], 2: DAYS[2], 3: DAYS[3]}
LINES_PER_ORDER = 3
CUSTOMER_COUNT = 2_000
REGIONS = np.array(["north", "east", "south", "west"])
ALIAS = "demo"
MIRROR = "customers-to-warehouse"
"""The checkpoint of the mirror."""
WAREHOUSE = "warehouse"
"""The Airflow connection of the analysts' SQL database."""
SETTINGS_FILE = "connection.json"

SPECS = f"""
tables:
  - table: {ORDERS}
    comment: one row per order, as they come
    columns:
      order_id: bigint not null
      customer_id: int
      region: string
      at: timestamp_ltz(6)
      amount: decimal(12,2)
      day: string not null
    partition_keys: [day]
    bucket_keys: [order_id]
    buckets: 2
    lake: true
  - table: {LINES}
    comment: what was ordered
    columns:
      line_id: bigint not null
      order_id: bigint not null
      sku: string
      quantity: int
      price: decimal(12,2)
      day: string not null
    partition_keys: [day]
    bucket_keys: [order_id]
    buckets: 2
    lake: true
  - table: {CUSTOMERS}
    comment: what each customer has bought on each day
    columns:
      customer_id: int not null
      day: string not null
      orders: bigint
      spent: decimal(14,2)
    primary_key: [customer_id, day]
    partition_keys: [day]
    bucket_keys: [customer_id]
    buckets: 2
"""


def specs() -> list[TableSpec]:
    """The tables of the shop, with the partitions that this demo needs."""
    days = tuple({"day": day} for day in DAYS)
    return [replace(spec, partitions=days) for spec in load_table_specs(SPECS)]


@dataclass(frozen=True)
class Shop:
    """Where the demo works. Its processes find each other's settings in its folder."""

    folder: Path

    def settings(self) -> dict[str, Any]:
        """How to reach Fluss."""
        found: dict[str, Any] = json.loads((self.folder / SETTINGS_FILE).read_text())
        return found

    def set_up(self, bootstrap_servers: str | None) -> None:
        """Remember the cluster; without one, an embedded Fluss lives in the folder."""
        address = bootstrap_servers or f"embedded:{self.folder / 'fluss'}"
        settings = {"bootstrap.servers": address, "cluster.alias": ALIAS}
        (self.folder / SETTINGS_FILE).write_text(json.dumps(settings))
        self.warehouse.mkdir()
        self.logs.mkdir()

    def connect(self) -> FlussConnection:
        """A connection to the shop's Fluss."""
        return FlussConnection.create(Config(self.settings())).result(60)

    @property
    def warehouse(self) -> Path:
        """The analysts' Iceberg tables, apart from Fluss's own lake."""
        return self.folder / "analytics"

    @property
    def logs(self) -> Path:
        """What Spark, Airflow and Dagster have to say."""
        return self.folder / "logs"

    def catalog(self) -> dict[str, str]:
        """The analysts' catalog."""
        return {
            "name": "analytics",
            "type": "sql",
            "uri": f"sqlite:///{self.warehouse / 'catalog.db'}",
            "warehouse": f"file://{self.warehouse}",
        }

    @property
    def warehouse_url(self) -> str:
        """The analysts' SQL database."""
        return f"sqlite:///{self.warehouse / 'warehouse.db'}"

    def environment(self) -> dict[str, str]:
        """What Airflow and Dagster need to know, beside this process's own environment.

        Settings of another Airflow are left out: the demo must not work on its database.
        """
        settings = self.settings()
        connection = {
            "conn_type": "fluss",
            "host": settings["bootstrap.servers"],
            "extra": {"cluster_alias": ALIAS},
        }
        own = {key: said for key, said in os.environ.items() if not key.startswith("AIRFLOW__")}
        return own | {
            "SHOP_FOLDER": str(self.folder),
            "AIRFLOW_HOME": str(self.folder / "airflow"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.folder / "airflow" / "dags"),
            "AIRFLOW_CONN_FLUSS_DEFAULT": json.dumps(connection),
            f"AIRFLOW_CONN_{WAREHOUSE.upper()}": json.dumps(
                {"conn_type": "generic", "extra": {"sqlalchemy_url": self.warehouse_url}}
            ),
            "DAGSTER_HOME": str(self.folder / "dagster"),
            "DAGSTER_DISABLE_TELEMETRY": "1",
        }


def make_orders(first: int, count: int, day: str) -> pa.Table:
    """Orders with rising ids."""
    random = np.random.default_rng(first)
    ids = np.arange(first, first + count, dtype=np.int64)
    cents = random.integers(500, 90_000, count)
    return pa.table(
        {
            "order_id": ids,
            "customer_id": pa.array(random.integers(1, CUSTOMER_COUNT, count), pa.int32()),
            "region": REGIONS[ids % len(REGIONS)],
            "at": pa.array(1_794_700_000_000_000 + ids * 250_000, pa.timestamp("us", "UTC")),
            "amount": pa.array(cents / 100).cast(pa.decimal128(12, 2)),
            "day": [day] * count,
        }
    )


def make_lines(orders: pa.Table) -> pa.Table:
    """The lines of some orders, with rising ids."""
    order_ids = np.repeat(orders["order_id"].to_numpy(), LINES_PER_ORDER)
    numbers = np.tile(np.arange(LINES_PER_ORDER), orders.num_rows)
    line_ids = order_ids * LINES_PER_ORDER + numbers
    prices = (line_ids * 7 % 5_000 + 100) / 100
    return pa.table(
        {
            "line_id": line_ids,
            "order_id": order_ids,
            "sku": pa.array([f"sku-{n:04}" for n in range(1_000)]).take(line_ids * 31 % 1_000),
            "quantity": pa.array(numbers + 1, pa.int32()),
            "price": pa.array(prices).cast(pa.decimal128(12, 2)),
            "day": orders["day"].take(np.repeat(np.arange(orders.num_rows), LINES_PER_ORDER)),
        }
    )


def make_customers(orders: pa.Table) -> pa.Table:
    """What each customer has bought among some orders of one day."""
    summed = orders.group_by(["customer_id", "day"]).aggregate(
        [("order_id", "count"), ("amount", "sum")]
    )
    renamed = summed.rename_columns(["customer_id", "day", "orders", "spent"])
    return renamed.set_column(3, "spent", renamed["spent"].cast(pa.decimal128(14, 2)))
