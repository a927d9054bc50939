"""`bulk-load`: what it refuses at once, and a real load by spark-submit in the long form."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fluss_orchestrate.cli.commands.bulk_load import listener
from fluss_orchestrate.cli.connecting import Target
from fluss_orchestrate.cli.presentation.progress import Meter
from fluss_orchestrate.cli.session import Session
from tests.cli.conftest import Shop
from tests.cli.running import SCRIPT, Cli


def test_wrong_uses(tmp_path: Path) -> None:
    cli = Cli(tmp_path, f"embedded:{tmp_path / 'fluss'}")
    load = ["bulk-load", "d.t"]
    assert "Missing option '--load-id'" in cli.fails(*load, "x.parquet", code=2)
    assert "say with --format" in cli.fails(*load, "x", "--load-id", "1", code=2)
    assert "one name or query" in cli.fails(
        *load, "a", "b", "--format", "table", "--load-id", "1", code=2
    )
    assert "is no Spark master" in cli.fails(
        *load, "x.parquet", "--load-id", "1", "--master", "nowhere"
    )
    secret = cli.fails(
        *load, "t", "--format", "jdbc", "--load-id", "1", "--option", "password=hush"
    )
    assert "secret_options" in secret
    assert "hush" not in secret
    spec = tmp_path / "t.yaml"
    spec.write_text("tables:\n  - table: d.other\n    columns: {id: bigint}\n")
    assert "has no table d.t" in cli.fails(
        *load, "x.parquet", "--load-id", "1", "--provision", str(spec), code=2
    )


def test_what_the_job_says_becomes_progress(capsys: pytest.CaptureFixture[str]) -> None:
    meter = Meter("loading", None)
    hear = listener(Session(Target()), meter, verbose=False)
    hear("fluss-orchestrate: 40%: 4,000 of 10,000 rows, 500 rows/s, 12 s left")
    assert (meter.rows, meter.done, meter.total) == (4_000, 4_000, 10_000)
    hear("fluss-orchestrate: application local-1")
    hear("fluss-orchestrate: receipt: {}")
    hear("26/11/17 INFO SparkContext: noise")
    assert capsys.readouterr().err == "application local-1\n"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_load_and_its_repetition(shop: Shop, tmp_path: Path) -> None:
    rows = pa.table({"event_id": range(5_000), "name": ["n"] * 5_000})
    pq.write_table(rows, tmp_path / "rows.parquet")
    spec = tmp_path / "bulk.yaml"
    table = f"{shop.database}.bulk"
    spec.write_text(
        f"tables:\n  - table: {table}\n    columns: {{event_id: bigint, name: string}}\n"
        "    buckets: 2\n"
    )
    command = ["bulk-load", table, str(tmp_path / "rows.parquet"), "--load-id", f"{table}-1"]
    command += ["--master", "local[2]", "--provision", str(spec)]
    for _ in range(2):
        done = subprocess.run(
            [str(SCRIPT), *command, "--json", "--bootstrap", shop.address],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["rows"] == 5_000
    read = shop.cli.json("read", table, "--source", "log", "--columns", "event_id")
    assert sorted(row["event_id"] for row in read) == list(range(5_000))
