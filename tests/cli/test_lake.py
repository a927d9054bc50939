"""The lake's commands, on the embedded engine and on a real cluster with Iceberg."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from fluss_orchestrate.cli.presentation import progress
from tests.cli.conftest import Shop
from tests.cli.running import SCRIPT, Cli
from tests.waiting import scaled


def test_tier_wait_status_read(
    lake_shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, cli, table = lake_shop, lake_shop.cli, lake_shop.events
    file = shop.file("lake.csv", "event_id,name,at\n1,a,\n2,b,\n3,c,\n")
    receipt = cli.json("write", table, file, "--load-id", f"{shop.database}-1")
    before = cli.json("lake", "status", table)
    assert (before["snapshot_id"], before["lag_offsets"]) == (None, 3)
    assert "none yet, 3 rows behind" in cli("lake", "status", table)
    assert "after 0.2 s the lake still lacks 3 offsets" in cli.fails(
        "lake", "wait", table, "--timeout", "0.2"
    )
    assert "own tiering service" in cli.fails("lake", "tier", table)
    monkeypatch.setattr(progress, "LINE_INTERVAL_S", 0.0)
    done = cli.run("lake", "tier", table, "--yes", "--json")
    told, last = done.stderr.splitlines()[-2:]
    assert told.startswith(f"tiering {table}: 3 rows, ")
    assert told.endswith("0 s left")
    assert last.startswith(f"tiering {table}: 3 rows in ")
    tiered = json.loads(done.stdout)
    assert tiered["rows"] == 3
    assert cli("lake", "tier", table, "--yes") == "the lake held everything already\n"
    path = tmp_path / "receipt.json"
    path.write_text(json.dumps(receipt))
    held = cli.json("lake", "wait", table, "--covers", f"@{path}", "--timeout", f"{scaled(60):.0f}")
    assert held["snapshot_id"] == tiered["snapshot_id"]
    assert "holds it" in cli("lake", "wait", table, "--timeout", f"{scaled(60):.0f}")
    assert cli.json("lake", "status", table)["lag_offsets"] == 0
    rows = cli.json("read", table, "--source", "lake")
    assert sorted(row["event_id"] for row in rows) == [1, 2, 3]
    assert len(cli.json("read", table, "--source", "lake", "--limit", "2")) == 2
    shown = cli("read", table, "--source", "lake", "--metadata", "--columns", "__offset,name")
    assert shown.split()[:2] == ["__offset", "name"]
    scan = ["scan", table, "--checkpoint", "to-lake", "--store", f"{shop.database}.checkpoints"]
    assert cli.json(*scan, "--until", "lake")["rows"] == 3


def test_a_key_table(tmp_path: Path) -> None:
    cli = Cli(tmp_path, f"embedded:{tmp_path / 'fluss'}")
    spec = tmp_path / "t.yaml"
    spec.write_text(
        "tables:\n  - table: d.t\n    columns: {id: bigint not null, name: string}\n"
        "    primary_key: [id]\n    buckets: 1\n    lake: true\n"
    )
    cli("tables", "apply", str(spec))

    def write(text: str) -> None:
        (tmp_path / "rows.csv").write_text(f"id,name\n{text}")
        cli("write", "d.t", str(tmp_path / "rows.csv"))

    def names(source: str) -> list[str]:
        return sorted(row["name"] for row in cli.json("read", "d.t", "--source", source))

    for text in ("1,a\n2,b\n", "2,c\n", "1,d\n"):
        write(text)
        cli("lake", "tier", "d.t", "--yes")
    write("3,e\n")
    assert names("lake") == ["c", "d"]
    assert names("union") == names("state") == ["c", "d", "e"]
    assert "would be rewritten" in cli("lake", "maintain", "d.t", "--dry-run")
    assert "rewrite and delete files" in cli.fails("lake", "maintain", "d.t")
    done = cli.json("lake", "maintain", "d.t", "--set", "snapshot_age_ms=0", "--yes")
    assert (done["files_rewritten"], done["files_after"], done["deletes_removed"]) == (3, 1, 2)
    assert names("lake") == ["c", "d"]
    assert "NAME=VALUE" in cli.fails("lake", "maintain", "d.t", "--set", "x", code=2)
    assert "no setting 'x'" in cli.fails("lake", "maintain", "d.t", "--set", "x=1")


def test_wrong_uses(lake_shop: Shop) -> None:
    cli, orders = lake_shop.cli, lake_shop.orders
    assert "it has no lake" in cli.fails("lake", "tier", lake_shop.days, "--yes")
    assert "it has no lake" in cli.fails("read", lake_shop.days, "--source", "lake")
    assert "give a table, or --worker" in cli.fails("lake", "tier", code=2)
    assert "--until is not for" in cli.fails(
        "read", lake_shop.events, "--source", "lake", "--until", "latest", code=2
    )
    assert "is not understood" in cli.fails("lake", "wait", orders, "--covers", "soon", code=2)
    no = f"{lake_shop.database}.no"
    assert "does not exist" in cli.fails("lake", "status", no)
    assert "does not exist" in cli.fails("lake", "wait", no)


def test_status_shows_lag_and_freshness(lake_shop: Shop) -> None:
    cli, table = lake_shop.cli, lake_shop.events
    file = lake_shop.file("more.csv", "event_id,name,at\n4,d,\n")
    cli("write", table, file)
    store = f"{lake_shop.database}.checkpoints"
    now = cli.json("status", lake_shop.database, "--store", store)
    lines = {line["table"]: line for line in now["tables"]}
    assert lines[table]["lake_behind"] == 1
    assert lines[table]["rows"] == 4
    assert lines[lake_shop.orders]["rows"] == 0
    assert [(c["name"], c["unread"]) for c in now["checkpoints"]] == [("to-lake", 1)]
    shown = cli("status", lake_shop.database, "--store", store)
    assert table in shown
    assert "to-lake" in shown
    watched = cli(
        *("status", lake_shop.database, "--store", store, "--watch", "--times", "2"),
        *("--interval", "0.1", "--json"),
    )
    assert [len(json.loads(line)["tables"]) for line in watched.splitlines()] == [4, 4]
    again = cli("status", lake_shop.database, "--watch", "--times", "2", "--interval", "0.1")
    assert again.count("not in lake") == 2


def test_a_worker_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    folder = tmp_path / "fluss"
    cli = Cli(tmp_path, f"embedded:{folder}")
    spec = tmp_path / "t.yaml"
    spec.write_text(
        "tables:\n  - table: d.t\n    columns: {id: bigint}\n    buckets: 1\n    lake: true\n"
        "    lake_freshness: 1s\n"
    )
    cli("tables", "apply", str(spec))
    cli("write", "d.t", "-", "--format", "csv", stdin="id\n1\n2\n")
    worker = subprocess.Popen(
        [str(SCRIPT), "lake", "tier", "--worker", "--yes", "--bootstrap", f"embedded:{folder}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert "holds it" in cli("lake", "wait", "d.t", "--timeout", f"{scaled(60):.0f}")
    finally:
        worker.send_signal(signal.SIGINT)
        output, said = worker.communicate()
    assert worker.returncode == 130
    assert output == ""
    first, *tiered = said.splitlines()
    assert first == "serving the coordinator; Ctrl-C ends it"
    assert tiered[0].startswith("d.t: 2 rows into snapshot ")
