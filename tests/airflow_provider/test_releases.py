"""The provider on several releases of Airflow: the same smoke test in an environment of each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fluss_orchestrate.airflow.version_compat import CAPABILITIES
from tests.version_matrix import AIRFLOW, ROOT, VERSIONS, Version, run


def test_smoke_on_this_release(tmp_path: Path) -> None:
    """In a process of its own, without anything of the test environment."""
    plain = {k: v for k, v in os.environ.items() if not k.startswith("AIRFLOW")}
    ended = subprocess.run(
        [sys.executable, "-m", AIRFLOW, str(tmp_path)],
        cwd=ROOT,
        env=plain,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    found = json.loads(ended.stdout.strip().splitlines()[-1])
    assert found["lacks"] == sorted(name for name, has in vars(CAPABILITIES).items() if not has)
    assert set(found["states"].values()) == {"success"}


@pytest.mark.long
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    "version", [v for v in VERSIONS if v.part == "airflow"], ids=lambda v: v.name
)
def test_smoke_on_other_releases(version: Version) -> None:
    found = run(version)
    assert found["result"] == "passed", found
    assert found["airflow"] == version.name.split()[0]
