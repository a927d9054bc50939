"""Iceberg's own Java as referee: it reads what mirrors and tiering write as the model says.

Long form: it installs the Spark that Iceberg has a runtime for, which is older than this project's.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fluss_client import Config, FlussConnection
from fluss_client.testing.artifacts import ensure_jars
from fluss_client.testing.jars import Jar
from fluss_client.testing.java import find_java
from fluss_orchestrate.core.lake import MaintenanceSettings, maintain_lake
from fluss_orchestrate.core.lake.catalog import open_catalog
from fluss_orchestrate.core.mirror.table import mirror_scan, mirror_table
from fluss_orchestrate.core.spark_submit.environment import java_home
from tests.fix_either import own_database
from tests.foundation.environments import ROOT, make_environment, uv
from tests.orchestrate.lake.key_programs import COLUMNS as KEY_COLUMNS
from tests.orchestrate.lake.key_programs import VARIANTS, make_key_table
from tests.orchestrate.mirror.iceberg_source import (
    REGIONS,
    TABLE,
    Source,
    as_model,
    catalog_properties,
    mirror_sink,
    without_nulls,
)

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

SPARK = "4.1"
RUNTIME = Jar(
    "org.apache.iceberg",
    "iceberg-spark-runtime-4.1_2.13",
    "1.12.0",
    48309426,
    "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
)
SEED = 20261118
MIRRORS, TIERED = 6, 8
LAYOUTS = ([], ["bucket(3, id)"], ["region"], ["region", "bucket(2, id)"])
NOW = MaintenanceSettings(snapshot_age_ms=0, keep_snapshots=1)

Read = Callable[[str], pa.Table]


@pytest.fixture(scope="session")
def read_by_java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Read]:
    """Reads a table by the location of its metadata."""
    folder = tmp_path_factory.mktemp("iceberg-java")
    (jar,) = ensure_jars([RUNTIME], find_java())
    python = make_environment(folder / "environment")
    packages = (f"pyspark=={SPARK}.*", "pandas>=2.2,<3", "pyarrow")
    uv("pip", "install", "--quiet", "--python", str(python), *packages)
    command = [str(python), str(ROOT / "tests/interop/iceberg_reader.py"), str(jar), str(folder)]
    errors = (folder / "errors.txt").open("w+")
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        env={**os.environ, "JAVA_HOME": java_home()},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    said = process.stdout.readline()
    assert said, (folder / "errors.txt").read_text()[-4000:]
    assert json.loads(said)["spark"].startswith(SPARK)

    def read(metadata: str) -> pa.Table:
        assert process.stdin is not None
        assert process.stdout is not None
        out = folder / "rows.parquet"
        process.stdin.write(json.dumps({"metadata": metadata, "out": str(out)}) + "\n")
        process.stdin.flush()
        answer = json.loads(process.stdout.readline())
        assert "error" not in answer, answer["error"]
        return pq.read_table(out)

    yield read
    process.stdin.close()
    process.wait()
    process.stdout.close()
    errors.close()


@pytest.fixture(scope="module")
def connection(lake_address: str) -> Iterator[FlussConnection]:
    with FlussConnection.create(Config({"bootstrap.servers": lake_address})).result() as made:
        yield made


@pytest.fixture
def database(connection: FlussConnection) -> Iterator[str]:
    with own_database(connection, "referee") as name:
        yield name


@pytest.fixture(scope="module")
def source_connection(fluss_address: str) -> Iterator[FlussConnection]:
    with FlussConnection.create(Config({"bootstrap.servers": fluss_address})).result() as made:
        yield made


@pytest.fixture
def source_database(source_connection: FlussConnection) -> Iterator[str]:
    with own_database(source_connection, "referee") as name:
        yield name


@pytest.mark.parametrize("mode", ["equality", "copy_on_write"])
def test_mirrors_are_read_as_they_are_meant(
    source_connection: FlussConnection,
    source_database: str,
    tmp_path: Path,
    read_by_java: Read,
    mode: str,
) -> None:
    """Random changes, dropped partitions, new columns and rebuilds; compared after every plan."""
    for number in range(MIRRORS):
        chance = random.Random(SEED + number)
        print("seed", SEED + number, mode)
        folder = tmp_path / str(number)
        folder.mkdir()
        source = Source(source_connection, source_database, partitioned=number % 2 == 1)
        sink = mirror_sink(
            folder,
            write_mode=mode,
            partition_by=LAYOUTS[number % len(LAYOUTS)],
            schema_policy="add_columns",
        )
        for turn in range(4):
            source.change(chance, 25)
            if turn == 2:
                source.add_column("more")
                source.change(chance, 5)
                if source.partitioned:
                    region = chance.choice(REGIONS)
                    source.drop(region)
                    source.create(region)
            if turn == 3 and chance.random() < 0.5:
                mirror_scan(source_connection, source.path, f"java {mode} {number}").reset(
                    "start", "x"
                )
            mirror_table(
                source_connection,
                source.path,
                sink,
                f"run {turn}",
                checkpoint=f"java {mode} {number}",
                scan_options={"settle_ms": 0},
            )
            table = open_catalog(catalog_properties(folder)).load_table(TABLE)
            found = as_model(read_by_java(table.metadata_location))
            assert found == without_nulls(source.model), (number, turn)


def test_tiered_key_tables_are_read_row_by_row(
    connection: FlussConnection, database: str, read_by_java: Read
) -> None:
    """Rounds of tiering with upserts and deletes, then a compaction, then another round."""
    variants = list(VARIANTS.items())
    for number in range(TIERED):
        name, options = variants[number % len(variants)]
        chance = random.Random(SEED + number)
        table = make_key_table(connection, database, f"j{number}_", **options)

        def check(what: str, name: str = name, table: Any = table) -> None:
            rows = read_by_java(table.iceberg().metadata_location)
            named = rows.select(KEY_COLUMNS.names).cast(KEY_COLUMNS)
            assert table.by_key(named) == table.in_lake, (name, what)

        for _ in range(4):
            table.upsert([chance.randrange(24) for _ in range(12)])
            table.delete(sorted({chance.randrange(24) for _ in range(3)}))
            table.tier()
            check("a round")
        maintain_lake(connection, table.path, settings=NOW)
        check("compacted")
        table.upsert([chance.randrange(24) for _ in range(6)])
        table.tier()
        check("a round after it")
