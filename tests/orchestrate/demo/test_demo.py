"""The demo runs, and its proof can fail."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fluss_orchestrate.demo.proof import prove


@pytest.mark.timeout(600)
def test_the_demo_ends_with_every_row_once(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fluss_orchestrate.demo", "--rows", "5000"]
    done = subprocess.run(
        [*command, "--keep", str(tmp_path / "demo")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("every row exactly once")
    assert done.stdout.count("gone") == 2
    assert "15,000 rows of 15,000 sent" in done.stdout


def write_ids(folder: Path, name: str, ids: list[int]) -> str:
    file = folder / name
    pq.write_table(pa.table({"event_id": pa.array(ids, pa.int64())}), file)
    return file.as_uri()


def test_the_proof_sees_missing_and_doubled_rows(tmp_path: Path) -> None:
    good = [write_ids(tmp_path, "a", [0, 1]), write_ids(tmp_path, "b c", [2, 3])]
    assert prove("here", good, 4).holds
    lost = prove("here", good[:1], 4)
    assert (lost.holds, lost.missing, lost.doubled) == (False, 2, 0)
    twice = prove("here", [*good, write_ids(tmp_path, "d", [3])], 4)
    assert (twice.holds, twice.rows, twice.doubled) == (False, 5, 1)
    assert not prove("here", [], 4).holds
