"""What `fluss_orchestrate` offers, and what importing it brings."""

from __future__ import annotations

import subprocess
import sys

import pytest

import fluss_orchestrate

HEAVY = {
    *("pyarrow", "numpy", "pandas", "polars", "duckdb", "pyiceberg", "sqlalchemy"),
    *("airflow", "dagster", "pyspark"),
}


@pytest.mark.parametrize("name", fluss_orchestrate.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(fluss_orchestrate, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = fluss_orchestrate.Nothing


@pytest.mark.parametrize(
    ("statement", "allowed"),
    [
        ("import fluss_orchestrate", set()),
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
