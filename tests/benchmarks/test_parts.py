"""Every part of the benchmarks runs, and tells what it measured. Nothing here looks at a time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.parts import PARTS
from fluss_client.testing import LocalCluster

ROOT = Path(__file__).parents[2]
PEERS = {
    "client": {"pyfluss", "awaited", "socket", "encode+socket", "encode alone", "decode alone"},
    "embedded": {"sqlite", "duckdb"},
    "growth": set(),
    "incremental": {"pyfluss loop", "client loop"},
    "spark": {"format", "client", "Spark's Parquet"},
    "orchestration": {"each alone", "pyfluss"},
    "tiering": {"scan + pyiceberg", "log scan"},
    "keys": {"rocksdict + decode", "limit scan", "Java client"},
    "mirrors": {"COPY + MERGE", "scan + COPY + MERGE", "pyiceberg", "scan + pyiceberg"},
    "lake_keys": {"changelog as a log", "upserts as a log", "Parquet alone"},
    "storage": {
        "pyarrow.fs + decode",
        "pyarrow.fs, bytes only",
        "log on the server's disk",
        "pyarrow.fs",
        "local disk",
    },
}
NEEDS_PROGRAMS = {"Java client", "COPY + MERGE", "scan + COPY + MERGE"}
"""Peers that are left out where there is no JDK, or no PostgreSQL server."""


SLOW = {"spark", "tiering", "orchestration"}
"""Their set-up takes longer than all that they measure in their smallest form."""


@pytest.fixture(scope="module")
def found(
    lake_cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory, long_form: bool
) -> dict[str, Any]:
    """What one run of all these parts tells: a process for each would import the same again."""
    parts = [part for part in PARTS if part != "storage" and (long_form or part not in SLOW)]
    file = tmp_path_factory.mktemp("parts") / "figures.json"
    return run_parts(parts, file, lake_cluster.info.bootstrap_servers)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "part",
    [
        pytest.param(name, marks=[pytest.mark.long] * (name in SLOW))
        for name in PARTS
        if name != "storage"
    ],
)
def test_a_part_runs_beside_its_peers(part: str, found: dict[str, Any]) -> None:
    check_part(part, found)


def test_every_case_is_of_a_part(found: dict[str, Any]) -> None:
    assert {name.partition(": ")[0] for name in found["cases"]} <= set(PARTS)


@pytest.mark.timeout(300)
@pytest.mark.long
def test_storage_runs_beside_its_peers(
    tmp_path: Path, storage_cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part whose cluster has its remote storage on S3."""
    for key, value in (storage_cluster.info.storage or {}).items():
        name = key.removeprefix("s3.").replace("-", "_").upper()
        monkeypatch.setenv(f"FLUSS_STORAGE__S3__{name}", value)
    servers = storage_cluster.info.bootstrap_servers
    check_part("storage", run_parts(["storage"], tmp_path / "figures.json", servers))


def check_part(part: str, found: dict[str, Any]) -> None:
    cases = {name: case for name, case in found["cases"].items() if name.startswith(f"{part}: ")}
    assert cases
    peers = {peer for case in cases.values() for peer in case["ratios"]}
    assert PEERS[part] - NEEDS_PROGRAMS <= peers <= PEERS[part]
    assert all(value >= 0 for case in cases.values() for value in case["medians"].values())
    assert found["facts"]["scale"] == "tiny"


def run_parts(parts: list[str], file: Path, bootstrap: str) -> dict[str, Any]:
    """In a process of its own: Spark's session and pyfluss's threads are not for this one."""
    door = [sys.executable, "-m", "benchmarks", *parts, "--tiny", "--json", str(file)]
    done = subprocess.run(
        [*door, "--bootstrap", bootstrap], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert all(f"| {part}" in done.stdout for part in parts)
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def test_a_part_that_is_not_there_is_named() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "clinet", "--tiny"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "there is no part 'clinet': name some of client, embedded" in done.stderr
