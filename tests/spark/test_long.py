"""Long forms that need a driver of their own: every mode on a real cluster, a large increment."""

from __future__ import annotations

import functools
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from fluss_orchestrate.core.lake.catalog import open_catalog
from fluss_orchestrate.core.spark_submit.process import end_session
from tests.spark.conftest import CPU_QUIET, STANDALONE_VARIABLE, Place
from tests.waiting import let_pass, wait_until

MODES = ("test_source_read", "test_source_write", "test_streaming", "test_iceberg", "test_lake")
INCREMENT_ROWS = int(os.environ.get("FLUSS_TEST_INCREMENT_ROWS", "20000000"))
BATCH_ROWS = 200_000
KILLS = 2
WRITES_S = 300.0
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("amount", pa.float64())])
DRIVER = f"""
import json, sys
from fluss_orchestrate import IncrementalScan, run_increment
from fluss_orchestrate.spark import ClusterRef, SparkIcebergSink, make_session
address, table, name, catalog = sys.argv[1:]
cluster = ClusterRef(properties={{"bootstrap.servers": address}})
spark = make_session("increment", "local[2]", {CPU_QUIET!r})
sink = SparkIcebergSink(spark, cluster, json.loads(catalog), "lake.rows")
scan = IncrementalScan(cluster.connection(), table, name)
print(run_increment(scan, sink, "the-run").rows, flush=True)
"""


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_every_mode_on_a_standalone_cluster() -> None:
    """The same tests, with executors that are processes of a real worker."""
    folder = Path(__file__).parent
    files = [str(folder / f"{name}.py") for name in MODES]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files],
        env={**os.environ, STANDALONE_VARIABLE: "1", "FLUSS_TEST_LONG": "0"},
        cwd=folder.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-5000:]


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_large_increment_killed_and_resumed(
    place: Place, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """The driver is killed with its executors while files are written; each row is there once."""
    table = place.table(SCHEMA, buckets=4)
    for first in range(0, INCREMENT_ROWS, BATCH_ROWS):
        ids = np.arange(first, min(INCREMENT_ROWS, first + BATCH_ROWS))
        place.append(table, pa.table({"id": ids, "amount": ids * 0.5}, schema=SCHEMA))
    warehouse = tmp_path / "warehouse"
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path / 'catalog.db'}",
        "warehouse": f"file://{warehouse}",
    }
    name = f"{place.database}-large"
    command = [sys.executable, "-c", DRIVER, place.address, table, name, json.dumps(catalog)]
    chance = random.Random(3)

    def works(driver: subprocess.Popen[str], known: set[Path]) -> bool:
        """Whether a driver has written a file, or has ended."""
        return driver.poll() is not None or bool(set(warehouse.rglob("*.parquet")) - known)

    for kill in range(KILLS):
        driver = subprocess.Popen(command, start_new_session=True, text=True)
        known = set(warehouse.rglob("*.parquet"))
        has_begun = functools.partial(works, driver, known)
        wait_until("the first file of the driver", has_begun, WRITES_S)
        let_pass(chance.uniform(0.0, 1.0), "a kill comes at any moment")
        end_session(driver, grace_s=0)
        assert driver.returncode, f"kill {kill} came too late: take more rows"
    begun = time.monotonic()
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    record_property("seconds", round(time.monotonic() - begun, 1))
    print(f"{INCREMENT_ROWS:,} rows in {time.monotonic() - begun:.0f} s after {KILLS} kills")
    assert int(ended.stdout.split()[-1]) == INCREMENT_ROWS
    rows = open_catalog(catalog).load_table("lake.rows").scan(selected_fields=("id",)).to_arrow()
    found = np.sort(rows.column("id").to_numpy())
    assert np.array_equal(found, np.arange(INCREMENT_ROWS))
