"""Increments into Iceberg by Spark: files by executors, one commit, each row once after a crash."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from fluss_orchestrate import IncrementalScan, run_increment
from fluss_orchestrate.core.lake.catalog import open_catalog, public_properties
from fluss_orchestrate.spark.iceberg import SparkIcebergSink
from tests.spark.conftest import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("region", pa.string())])


def rows(first: int, count: int) -> pa.Table:
    ids = range(first, first + count)
    return pa.table({"id": ids, "region": [f"r{i % 3}" for i in ids]}, schema=SCHEMA)


def test_increments_land_once(
    spark: SparkSession, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = place.table(SCHEMA, buckets=3)
    place.append(table, rows(0, 900))
    catalog = open_catalog(
        {
            "type": "sql",
            "uri": f"sqlite:///{tmp_path / 'catalog.db'}",
            "warehouse": f"file://{tmp_path / 'warehouse'}",
        }
    )
    scan = IncrementalScan(place.connection, table, f"{place.database}-iceberg")
    sink = SparkIcebergSink(
        spark, place.ref, catalog, "lake.rows", tasks=3, partition_by=["region"]
    )

    def found() -> list[int]:
        return sorted(catalog.load_table("lake.rows").scan().to_arrow().column("id").to_pylist())

    with monkeypatch.context() as patched:
        patched.setattr(scan, "commit", lambda *a, **k: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run_increment(scan, sink, "run-1")
    assert found() == list(range(900)), "the sink has the rows, the checkpoint does not know it yet"
    result = run_increment(scan, sink, "run-1")
    assert result.rows == 900
    assert found() == list(range(900))
    place.append(table, rows(900, 100))
    second = run_increment(scan, sink, "run-2")
    assert second.rows == 100
    assert found() == list(range(1000))
    assert len(catalog.load_table("lake.rows").snapshots()) == 2


def test_secrets_of_the_store_stay_on_the_driver() -> None:
    given = {"s3.endpoint": "http://h", "s3.secret-access-key": "hunter-2", "uri": "a://u:p@h/x"}
    assert public_properties(given) == {"s3.endpoint": "http://h"}
