"""What the packages offer, and what importing and using them brings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import fluss_client
import fluss_orchestrate

HEAVY = {
    *("pyarrow", "numpy", "pandas", "polars", "duckdb", "pyiceberg", "sqlalchemy"),
    *("airflow", "dagster", "pyspark"),
}


NAMES = [(package, n) for package in (fluss_client, fluss_orchestrate) for n in package.__all__]


@pytest.mark.parametrize(("package", "name"), NAMES)
def test_every_name_is_there(package: ModuleType, name: str) -> None:
    assert getattr(package, name) is not None


@pytest.mark.parametrize("package", [fluss_client, fluss_orchestrate])
def test_an_unknown_name_is_an_attribute_error(package: ModuleType) -> None:
    for name in ("Nothing", "_nothing"):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'"):
            getattr(package, name)


def test_modules_and_names_of_the_client_are_found_when_they_are_used() -> None:
    code = (
        "import sys, fluss_client as fluss\n"
        "assert fluss.errors.ConfigError and fluss.aio.FlussConnection and fluss.engine.Backoff\n"
        "assert {'aio', 'FlussConnection', 'errors'} <= {*dir(fluss)}\n"
        "assert fluss.Schema is vars(fluss)['Schema']"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("statement", "allowed"),
    [
        ("import fluss_orchestrate", set()),
        ("import fluss_client", set()),
        ("from fluss_client import *", {"numpy", "pyarrow"}),
        ("from fluss_orchestrate import *", {"numpy", "pyarrow"}),
        ("from fluss_orchestrate.spark import *", {"numpy", "pyarrow", "pyspark"}),
        ("from fluss_orchestrate.dagster import *", {"numpy", "pyarrow", "dagster"}),
        ("from fluss_orchestrate.airflow import *", {"airflow", "sqlalchemy"}),
    ],
)
def test_an_import_brings_only_what_it_needs(statement: str, allowed: set[str]) -> None:
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert HEAVY & set(done.stdout.splitlines()[-1].split()) == allowed


EMPTY_RUN = """
import sys
import pyarrow as pa
import fluss_client as fluss
from fluss_orchestrate import IncrementalScan, ParquetSink, run_increment

config = fluss.Config({"bootstrap.servers": "embedded:fluss"})
connection = fluss.FlussConnection.create(config).result()
admin = connection.get_admin().result()
admin.create_database("db").result()
descriptor = fluss.TableDescriptor(fluss.Schema(pa.schema([("id", pa.int64())])))
admin.create_table(fluss.TablePath("db", "t"), descriptor).result()
scan = IncrementalScan(connection, "db.t", "empty")
for number in range(2):
    run = run_increment(scan, ParquetSink("files"), str(number))
    assert run.rows == 0
print(*sys.modules)
"""


def test_a_run_that_finds_nothing_does_not_bring_pandas(tmp_path: Path) -> None:
    """`pa.array` imports it, which takes half as long as all of the run."""
    done = subprocess.run(
        [sys.executable, "-c", EMPTY_RUN], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert "pandas" not in done.stdout.split()
