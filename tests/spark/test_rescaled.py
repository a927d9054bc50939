"""Spark on a table whose partitions have different bucket counts (embedded: 0.9.1 cannot)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fluss_client import TablePath
from fluss_orchestrate.core.spark_submit.load_spec import BulkLoadSpec, LoadSource
from fluss_orchestrate.spark import fast
from fluss_orchestrate.spark.loading.load import run_load
from tests.orchestrate.rescaler import Rescaler
from tests.spark.conftest import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BY_DAY = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), pa.field("day", pa.string(), nullable=False)]
)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("fluss_kind", ["embedded"], indirect=True)
@pytest.mark.parametrize("keys", [None, ["id", "day"]], ids=["log", "keys"])
def test_reads_writes_and_loads(
    spark: SparkSession,
    place: Place,
    tmp_path: Path,
    new_id: Callable[[], str],
    keys: list[str] | None,
) -> None:
    table = place.table(BY_DAY, keys, partition_keys=["day"], buckets=2, bucket_keys=["id"])
    path = TablePath.parse(table)
    admin = place.connection.get_admin().result()
    admin.create_partition(path, {"day": "d0"}).result()
    rescaler = Rescaler(place.connection, path, "d0")
    for day, count in (("d1", 5), ("d2", 3)):
        rescaler.rescale(count)
        rescaler.add(day)

    frame = spark.range(0, 300, 1, 3).selectExpr("id", "concat('d', id % 3) AS day")
    fast.write(frame, table, place.ref, gather=True)
    file = tmp_path / "in.parquet"
    days = [f"d{n % 4}" for n in range(300, 600)]
    pq.write_table(pa.table({"id": range(300, 600), "day": days}, schema=BY_DAY), file)
    rescaler.rescale(4)
    spec = BulkLoadSpec(
        LoadSource("parquet", [str(file)]),
        table,
        new_id(),
        batch_bytes=1024,
        create_partitions=True,
    )
    for _ in range(2):
        assert run_load(spark, spec, place.ref, on_line=lambda _: None).rows == 300
    for read in ("current", "changelog" if keys else "log"):
        rows = spark.read.format("fluss").options(**place.options(table, read=read)).load()
        assert sorted(row["id"] for row in rows.collect()) == list(range(600))
