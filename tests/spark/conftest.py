"""One Spark session for all tests, and tables on the embedded engine and on a real cluster."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from fluss_client import Config, FlussConnection, Schema, TableDescriptor, TablePath
from fluss_orchestrate.core.clusters import CLUSTERS_FILE_VARIABLE, ClusterRef
from fluss_orchestrate.spark.setup import make_session
from fluss_orchestrate.spark.source.datasource import register
from tests.fix_either import own_database
from tests.spark.standalone import Standalone, standalone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = itertools.count()
STANDALONE_VARIABLE = "FLUSS_TEST_SPARK_STANDALONE"
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
CPU_QUIET = {
    "spark.driver.extraJavaOptions": f"{QUICK_JAVA} -Dderby.stream.error.file=/dev/null",
    "spark.executor.extraJavaOptions": QUICK_JAVA,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
}


@pytest.fixture(scope="session")
def clusters_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where this process and Spark's own look for the secrets of a cluster."""
    path = tmp_path_factory.mktemp("secrets") / "clusters.ini"
    path.touch(mode=0o600)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(CLUSTERS_FILE_VARIABLE, str(path))
        yield path


@pytest.fixture(scope="session")
def spark(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, clusters_file: Path
) -> Iterator[SparkSession]:
    """Two local workers, or the standalone cluster where the environment says so."""
    folder = tmp_path_factory.mktemp("spark")
    master = "local[2,3]"
    if os.environ.get(STANDALONE_VARIABLE):
        master = request.getfixturevalue("spark_cluster").master
    conf = {
        **CPU_QUIET,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.executorEnv.FLUSS_CLUSTERS_FILE": str(clusters_file),
        "spark.executor.memory": "512m",
    }
    session = make_session("tests", master, conf)
    session.sparkContext.setLogLevel("OFF")
    register(session)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A real master and worker."""
    with standalone(tmp_path_factory.mktemp("standalone")) as running:
        yield running


@dataclass
class Place:
    """A database of one test module's own, and how to reach it."""

    address: str
    connection: FlussConnection
    database: str
    made: list[str] = field(default_factory=list)

    @property
    def ref(self) -> ClusterRef:
        """The same as Spark's tasks get it."""
        return ClusterRef("default", {"bootstrap.servers": self.address})

    def table(
        self,
        schema: pa.Schema,
        keys: list[str] | None = None,
        buckets: int = 2,
        **options: Any,
    ) -> str:
        """A new table; its name."""
        name = f"t{next(_numbers)}"
        admin = self.connection.get_admin().result()
        descriptor = TableDescriptor(
            Schema(schema, primary_keys=keys or []), bucket_count=buckets, **options
        )
        admin.create_table(TablePath(self.database, name), descriptor).result()
        return f"{self.database}.{name}"

    def options(self, table: str, **more: str) -> dict[str, str]:
        """Options of `format("fluss")` for a table; underscores stand for dots."""
        named = {key.replace("_", "."): value for key, value in more.items()}
        return {"bootstrap.servers": self.address, "table": table, **named}

    def append(self, table: str, rows: pa.Table) -> None:
        """Append to a log table, or upsert into a key table, by the client."""
        opened = self.connection.get_table(TablePath.parse(table)).result()
        made = opened.new_upsert() if opened.has_primary_key() else opened.new_append()
        with made.create_writer() as writer:
            writer.write_arrow(rows)

    def rows(self, table: str, columns: list[str] | None = None) -> pa.Table:
        """All that a table holds, by the client's own word."""
        from fluss_orchestrate import read_table

        return read_table(self.connection, table, columns).read_all()


@pytest.fixture(scope="module")
def place(fluss_address: str) -> Iterator[Place]:
    """A database that goes away with the module."""
    with open_place(fluss_address) as opened:
        yield opened


@contextmanager
def open_place(address: str) -> Iterator[Place]:
    """A database there, while it is wanted."""
    config = Config({"bootstrap.servers": address, "cluster.alias": "default"})
    with (
        FlussConnection.create(config).result() as connection,
        own_database(connection, "spark") as name,
    ):
        yield Place(address, connection, name)


@pytest.fixture
def new_id(tmp_path: Path) -> Callable[[], str]:
    """Load ids that no other run uses."""
    return lambda: f"{tmp_path.name}-{os.getpid()}-{next(_numbers)}-{os.urandom(4).hex()}"
