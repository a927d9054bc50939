"""What `fluss_orchestrate` offers, and that importing it costs nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

import fluss_orchestrate


@pytest.mark.parametrize("name", fluss_orchestrate.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(fluss_orchestrate, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = fluss_orchestrate.Nothing


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = (
        "import sys, fluss_orchestrate\n"
        "heavy = {'pyarrow', 'numpy', 'pandas', 'pyiceberg', 'sqlalchemy', 'airflow', 'dagster'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
