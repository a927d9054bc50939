"""A password of a cluster is in no plan, option, schema, partition, pickle or error."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from fluss_client import FlussConnection, Schema, TableDescriptor, TablePath
from fluss_client.testing import LocalCluster
from fluss_orchestrate.core.clusters import ClusterRef
from fluss_orchestrate.spark.source.datasource import FlussDataSource
from fluss_orchestrate.spark.source.writing import write_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALIAS = "sasl-by-file"
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("word", pa.string())])


@pytest.fixture
def password(plain_cluster: LocalCluster, clusters_file: Path) -> str:
    """A login that processes find by the alias alone, in a file that only this user reads."""
    info = plain_cluster.info
    user, secret = next(iter(info.users.items()))
    clusters_file.write_text(
        f"[{ALIAS}]\nbootstrap.servers = {info.sasl_bootstrap_servers}\n"
        f"security.protocol = sasl\nsecurity.sasl.username = {user}\n"
        f"security.sasl.password = {secret}\n"
    )
    return secret


@pytest.fixture
def table(password: str) -> Iterator[str]:
    connection: FlussConnection = ClusterRef(ALIAS).connection()
    admin = connection.get_admin().result()
    database = f"secret_{os.getpid()}"
    admin.create_database(database, ignore_if_exists=True).result()
    made = TableDescriptor(Schema(SCHEMA), bucket_count=1)
    admin.create_table(TablePath(database, "words"), made).result()
    yield f"{database}.words"
    admin.drop_database(database, ignore_if_not_exists=True, cascade=True).result()


def test_a_password_travels_nowhere(spark: SparkSession, password: str, table: str) -> None:
    options = {"cluster": ALIAS, "table": table, "filter": "id >= 0"}
    rows = spark.range(20).selectExpr("id", "'w' AS word")
    given = {"cluster": ALIAS, "table": table}
    rows.write.format("fluss").options(**given).mode("append").save()
    frame = spark.read.format("fluss").options(**options).load()
    assert frame.count() == 20, "the login came through"

    run = frame._jdf.queryExecution()  # type: ignore[operator]
    seen = [run.toString(), run.logical().toJSON(), run.executedPlan().toJSON(), str(frame.schema)]
    source = FlussDataSource(options)
    reader = source.reader(source.schema())
    stream = source.streamReader(source.schema())
    job = write_job(FlussDataSource(given)._options, source.schema())
    start = stream.initialOffset()
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    things = [source, reader, stream, job, reader.partitions(), stream.partitions(start, end)]
    seen += [repr(thing) for thing in things]
    seen += [pickle.dumps(thing).decode("latin-1") for thing in things]
    with pytest.raises(PySparkException) as caught:
        spark.read.format("fluss").options(cluster=ALIAS, table="no.where").load().collect()
    seen.append(str(caught.value))
    assert any(ALIAS in text for text in seen)
    assert [text for text in seen if password in text] == []
