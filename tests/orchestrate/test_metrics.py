"""Figures of all work reach one hook, and OpenTelemetry through it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from fluss_client import Config, FlussConnection, Schema, TableDescriptor, TablePath
from fluss_orchestrate import (
    FunctionSink,
    IncrementalScan,
    lake_status,
    load_rows,
    opentelemetry_hook,
    run_increment,
    set_metrics_hook,
    tier_table,
)
from fluss_orchestrate.core.checkpoints.report import checkpoint_lag

TABLE = TablePath("shop", "orders")
URI = "fluss://default/shop/orders"


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[FlussConnection]:
    """An embedded engine with one tiered log table."""
    address = f"embedded:{tmp_path / 'fluss'}"
    with FlussConnection.create(Config({"bootstrap.servers": address})).result() as made:
        admin = made.get_admin().result()
        admin.create_database("shop").result()
        properties = {"table.datalake.enabled": "true"}
        schema = Schema(pa.schema([("id", pa.int64())]))
        admin.create_table(
            TABLE, TableDescriptor(schema, bucket_count=1, properties=properties)
        ).result()
        yield made


def work(connection: FlussConnection) -> None:
    load_rows(connection, TABLE, pa.table({"id": range(100)}), "load")
    load_rows(connection, TABLE, pa.table({"id": range(100)}), "load")  # adds nothing
    scan = IncrementalScan(connection, TABLE, "reader")
    run_increment(scan, FunctionSink(lambda reader: reader.read_all()), "run")
    load_rows(connection, TABLE, pa.table({"id": range(7)}), "more")
    checkpoint_lag(connection, scan.store, "reader")
    lake_status(connection, TABLE)
    tier_table(connection, TABLE, allow_tiering=True)


def test_every_kind_of_work_is_counted_once(connection: FlussConnection) -> None:
    seen: list[tuple[str, float, Mapping[str, str]]] = []
    set_metrics_hook(lambda *figure: seen.append(figure))
    try:
        work(connection)
    finally:
        set_metrics_hook(None)
    rows = [(a["kind"], a["table"], value) for name, value, a in seen if name == "fluss.rows"]
    assert rows == [
        ("append", URI, 100),
        ("increment", URI, 100),
        ("append", URI, 7),
        ("tier", URI, 107),
    ]
    figures = {name: value for name, value, _ in seen}
    assert figures["fluss.checkpoint.lag"] == 7
    assert figures["fluss.lake.lag"] == 107
    assert figures["fluss.lake.age"] >= figures["fluss.checkpoint.age"] >= 0
    assert all(value >= 0 for name, value, _ in seen if name == "fluss.duration")
    count = len(seen)
    lake_status(connection, TABLE)
    assert len(seen) == count, "the hook was taken away"


def test_a_hook_that_fails_disturbs_nothing(
    connection: FlussConnection, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("no room")

    set_metrics_hook(fails)
    try:
        assert load_rows(connection, TABLE, pa.table({"id": [1]}), "load").rows == 1
    finally:
        set_metrics_hook(None)
    assert "no room" in caplog.text


def test_opentelemetry_gets_them(connection: FlussConnection) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    set_metrics_hook(opentelemetry_hook(provider.get_meter("test")))
    try:
        work(connection)
    finally:
        set_metrics_hook(None)
    found = reader.get_metrics_data()
    assert found is not None
    scopes = [scope for resource in found.resource_metrics for scope in resource.scope_metrics]
    metrics: dict[str, Any] = {m.name: m for scope in scopes for m in scope.metrics}
    points = metrics["fluss.rows"].data.data_points
    by_kind = {point.attributes["kind"]: point.value for point in points}
    assert by_kind == {"append": 107, "increment": 100, "tier": 107}
    assert metrics["fluss.duration"].unit == "s"
    assert metrics["fluss.lake.lag"].data.data_points[0].value == 107
    provider.shutdown()
