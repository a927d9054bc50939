"""What a page's blocks begin with; the page names one of these."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fluss_client import Config, FlussConnection
from fluss_orchestrate import apply_tables, load_rows, load_table_specs
from tests.fix_postgres import new_database

SHOP = """
tables:
  - table: sales.events
    columns: {event_id: bigint not null, at: timestamp_ltz(3), kind: string, amount: double}
    buckets: 2
    lake: true
    lake_freshness: 1s
  - table: sales.visits
    columns: {visit_id: bigint not null, day: string not null, page: string}
    partition_keys: [day]
    buckets: 1
  - table: sales.clicks
    columns: {click_id: bigint not null, page: string}
    buckets: 1
  - table: sales.orders
    columns: {order_id: bigint not null, status: string, amount: double}
    primary_key: [order_id]
    buckets: 2
"""


def events(first: int, count: int) -> pa.Table:
    """Rows for `sales.events` with rising ids."""
    ids = np.arange(first, first + count, dtype=np.int64)
    start = dt.datetime(2026, 11, 16, tzinfo=dt.UTC)
    return pa.table(
        {
            "event_id": ids,
            "at": pa.array([start] * count, pa.timestamp("ms", "UTC")),
            "kind": np.where(ids % 2, "view", "click"),
            "amount": ids / 10,
        }
    )


@dataclass
class Setup:
    """What blocks find: names, words to put in the place of others, what to drop at the end."""

    names: dict[str, Any] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)


@contextmanager
def nothing(folder: Path, request: pytest.FixtureRequest) -> Iterator[Setup]:
    """The page brings everything itself."""
    yield Setup()


@contextmanager
def shop(folder: Path, request: pytest.FixtureRequest) -> Iterator[Setup]:
    """`connection` to an embedded Fluss with `sales.events` (1,000 rows), and smaller tables."""
    config = Config({"bootstrap.servers": f"embedded:{folder / 'fluss'}", "cluster.alias": "shop"})
    connection = FlussConnection.create(config).result()
    apply_tables(connection, load_table_specs(SHOP))
    load_rows(connection, "sales.events", events(0, 1000), "seed")
    orders = pa.table({"order_id": [1, 2], "status": ["new", "new"], "amount": [9.5, 20.0]})
    load_rows(connection, "sales.orders", orders, "seed")
    clicks = pa.table({"click_id": [1, 2], "page": ["/", "/a"]})
    load_rows(connection, "sales.clicks", clicks, "seed")
    analytics = folder / "analytics"
    analytics.mkdir()
    catalog = {
        "name": "analytics",
        "type": "sql",
        "uri": f"sqlite:///{analytics / 'catalog.db'}",
        "warehouse": f"file://{analytics}",
    }
    yield Setup({"connection": connection, "catalog_properties": catalog, "new_events": events})


@contextmanager
def shop_and_cluster(folder: Path, request: pytest.FixtureRequest) -> Iterator[Setup]:
    """The shop, and a real cluster at the address fluss-1:9123, with the database `production`."""
    address = request.getfixturevalue("plain_cluster").info.bootstrap_servers
    database = f"production_{os.getpid()}"
    with shop(folder, request) as made:
        made.words = {"fluss-1:9123": address, "production.events": f"{database}.events"}
        try:
            yield made
        finally:
            config = Config({"bootstrap.servers": address})
            with FlussConnection.create(config).result() as connection:
                admin = connection.get_admin().result()
                admin.drop_database(database, ignore_if_not_exists=True, cascade=True).result()


@contextmanager
def shop_and_warehouse(folder: Path, request: pytest.FixtureRequest) -> Iterator[Setup]:
    """The shop, and an empty PostgreSQL database in the variable `WAREHOUSE`."""
    url = new_database(request.getfixturevalue("postgres_url"))
    with shop(folder, request) as made, pytest.MonkeyPatch.context() as patched:
        patched.setenv("WAREHOUSE", url)
        made.words = {"postgresql+psycopg2://etl@warehouse/shop": url}
        yield made


Enter = Callable[[Path, pytest.FixtureRequest], AbstractContextManager[Setup]]
SETUPS: dict[str | None, Enter] = {
    None: nothing,
    "shop": shop,
    "shop and cluster": shop_and_cluster,
    "shop and warehouse": shop_and_warehouse,
}
