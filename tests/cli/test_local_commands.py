"""Commands without a server: embedded, doctor, demo."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from fluss_orchestrate.cli.commands import doctor as diagnosis
from fluss_orchestrate.cli.commands.doctor import Verdict
from tests.cli.conftest import Shop
from tests.cli.running import Cli


def test_embedded_check_and_vacuum(tmp_path: Path) -> None:
    folder = tmp_path / "fluss"
    cli = Cli(tmp_path, f"embedded:{folder}")
    spec = tmp_path / "t.yaml"
    spec.write_text("tables:\n  - table: d.t\n    columns: {id: bigint}\n    buckets: 1\n")
    cli("tables", "apply", str(spec))
    cli("write", "d.t", "-", "--format", "csv", stdin="id\n1\n2\n")
    assert cli("embedded", "check", str(folder)) == f"{folder} is sound\n"
    assert cli.json("embedded", "check", f"embedded:{folder}")["problems"] == []
    done = cli.json("embedded", "vacuum", str(folder))
    assert done["batches_expired"] == 0
    assert "0 expired batches" in cli("embedded", "vacuum", str(folder))
    file = next(folder.glob("*.db"), None) or next(p for p in folder.iterdir() if p.is_file())
    with sqlite3.connect(file) as database:
        database.execute("UPDATE bucket SET log_end = log_end + 5")
    database.close()
    result = cli.run("embedded", "check", str(folder), "--json")
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert told["sound"] is False
    assert "d.t, bucket 0" in " ".join(told["problems"])
    assert cli.run("embedded", "check", str(folder)).stdout.splitlines() == told["problems"]
    for command in ("check", "vacuum"):
        assert str(tmp_path / "no") in cli.fails("embedded", command, str(tmp_path / "no"))
        assert "Missing argument 'PATH'" in cli.fails("embedded", command, code=2)


def test_doctor(local_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    told = local_shop.cli.json("doctor")
    assert told["healthy"] is True
    checks = {check["what"]: check for check in told["checks"]}
    for name in ("Python", "Java", "connection", "servers"):
        assert checks[name]["verdict"] == "ok", checks[name]
    assert {"pyspark (Spark)", "apache-airflow (Airflow)", "dagster (Dagster)"} <= checks.keys()
    assert local_shop.address in checks["connection"]["found"]
    monkeypatch.setattr(
        diagnosis,
        "PACKAGES",
        (
            ("pyarrow", "the client", "", (999,)),
            ("no-such-package", "nothing", "all", (1,)),
        ),
    )
    result = local_shop.cli.run("doctor", "--bootstrap", "127.0.0.1:1")
    assert result.exit_code == 1
    assert "999 or newer is needed" in result.stdout
    assert "pip install 'fluss-orchestrate[all]'" in result.stdout
    assert "cannot connect to 127.0.0.1:1" in result.stdout
    assert result.stderr == ""


def test_doctor_without_an_address(tmp_path: Path) -> None:
    checks = {c["what"]: c for c in Cli(tmp_path).json("doctor")["checks"]}
    assert checks["connection"]["verdict"] == Verdict.absent
    assert diagnosis.version_of("3.3.2rc1") == (3, 3)


def test_demo_with_wrong_options(tmp_path: Path) -> None:
    wrong = Cli(tmp_path).script("demo", "--", "--nonsense")
    assert wrong.returncode == 2
    assert "--nonsense" in wrong.stderr
    assert "Traceback" not in wrong.stderr


@pytest.mark.long
@pytest.mark.timeout(900)
def test_demo(tmp_path: Path) -> None:
    done = Cli(tmp_path).script("demo", "--json", "--", "--rows", "2000")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["every_row_exactly_once"] is True
    assert "every row exactly once" in done.stderr
