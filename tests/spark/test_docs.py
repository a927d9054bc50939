"""The programs of docs/spark.md, run one after the other on a real session."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fluss_client import Config, FlussConnection, Schema, TableDescriptor, TablePath
from fluss_orchestrate import lake_status, load_rows, read_table
from fluss_orchestrate.core.lake.catalog import open_catalog
from tests.examples.documents import programs
from tests.spark.conftest import QUICK_JAVA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("item", pa.string())])
EVENTS = pa.schema([("at", pa.int64()), ("what", pa.string())])


@pytest.mark.timeout(300)
def test_the_programs_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("JDK_JAVA_OPTIONS", QUICK_JAVA)
    (tmp_path / "incoming").mkdir()
    ids = list(range(2000, 2500))
    rows = pa.table({"id": ids, "item": [str(i) for i in ids]}, schema=ORDERS)
    pq.write_table(rows, tmp_path / "incoming" / "a.parquet")
    address = f"embedded:{tmp_path / 'engine'}"
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path / 'catalog.db'}",
        "warehouse": f"file://{tmp_path / 'warehouse'}",
    }
    with FlussConnection.create(Config({"bootstrap.servers": address})).result() as connection:
        admin = connection.get_admin().result()
        admin.create_database("shop").result()
        keyed = TableDescriptor(Schema(ORDERS, primary_keys=["id"]), bucket_count=2)
        for name in ("orders", "orders_copy"):
            admin.create_table(TablePath("shop", name), keyed).result()
        for name in ("events", "events_copy"):
            lake = {"table.datalake.enabled": "true"} if name == "events" else {}
            log = TableDescriptor(Schema(EVENTS), bucket_count=2, properties=lake)
            admin.create_table(TablePath("shop", name), log).result()
        events = pa.table({"at": range(50), "what": ["x"] * 50}, schema=EVENTS)
        load_rows(connection, "shop.events", events, "first")
        names: dict[str, object] = {
            "ADDRESS": address,
            "CATALOG": catalog,
            "CHECKPOINT": str(tmp_path / "checkpoint"),
        }
        for program in programs("docs/spark.md"):
            exec(compile(program, "docs/spark.md", "exec"), names)
        orders = read_table(connection, "shop.orders").read_all()
        assert sorted(orders.column("id").to_pylist()) == [
            *range(1000),
            *range(2000, 2500),
            *range(5000, 5100),
        ]
        mirrored = read_table(connection, "shop.orders_copy").read_all()
        assert sorted(mirrored.column("id").to_pylist()) == [*range(1000), *range(2000, 2500)]
        copied = read_table(connection, "shop.events_copy").read_all()
        assert sorted(copied.column("at").to_pylist()) == list(range(50))
        assert lake_status(connection, "shop.events").lag_offsets == 0
        lake = open_catalog(catalog).load_table("analytics.events").scan().to_arrow()
        assert sorted(lake.column("at").to_pylist()) == list(range(50))
