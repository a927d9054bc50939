"""Increments with their checkpoints, on the embedded engine and a real cluster."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from fluss_orchestrate.cli.commands.scan import made_run_key
from tests.cli.conftest import Shop


@pytest.fixture
def store(shop: Shop) -> str:
    """A checkpoint table of this shop's own."""
    return f"{shop.database}.checkpoints"


def write(shop: Shop, *numbers: int) -> None:
    lines = "".join(f"{number},n{number},\n" for number in numbers)
    shop.cli("write", shop.events, "-", "--format", "csv", stdin=f"event_id,name,at\n{lines}")


def test_increments_to_parquet(shop: Shop, store: str, tmp_path: Path) -> None:
    cli, out = shop.cli, tmp_path / "out"
    scan = [
        "scan",
        shop.events,
        "--checkpoint",
        "files",
        "--to",
        f"parquet:{out}",
        "--store",
        store,
    ]
    write(shop, 1, 2, 3)
    first = cli.json(*scan, "--run-key", "r1")
    assert first["rows"] == 3
    again = cli.json(*scan, "--run-key", "r1")
    assert again["rows"] == again["receipt"]["rows_moved"] == 0
    assert again["receipt"]["plan_id"] == first["receipt"]["plan_id"]
    write(shop, 4, 5)
    assert cli(*scan).startswith("2 rows to parquet:")
    assert cli.json(*scan)["rows"] == 0
    read = pq.read_table(out)
    assert sorted(read["event_id"].to_pylist()) == [1, 2, 3, 4, 5]
    shown = cli.json("checkpoints", "show", "files", "--store", store)
    assert [event["kind"] for event in shown[-4:]] == ["commit", "plan", "commit", "plan"]
    assert "commit" in cli("checkpoints", "show", "files", "--limit", "1", "--store", store)
    write(shop, 6)
    lag = cli.json("checkpoints", "lag", "files", "--store", store)[0]
    assert (lag["offsets"], lag["lost"]) == (1, 0)
    assert "files" in cli("checkpoints", "lag", "--store", store)
    listed = cli.json("checkpoints", "ls", "--store", store)
    assert [(c["name"], c["pending_run_key"]) for c in listed] == [("files", "")]
    reset = ["checkpoints", "reset", "files", "--store", store, "--to"]
    assert "set checkpoint 'files'" in cli.fails(*reset, "earliest")
    assert cli.json(*reset, "earliest", "--yes", "--reason", "again")["kind"] == "reset"
    assert cli.json(*scan, "--max-offsets", "1")["rows"] >= 1
    receipt = tmp_path / "receipt.json"
    receipt.write_text(json.dumps(first))
    cli(*reset, f"@{receipt}", "--yes")
    assert cli.json(*scan)["rows"] == 3


def test_increments_to_the_screen(shop: Shop, store: str) -> None:
    cli = shop.cli
    write(shop, 7)
    total = len(cli.json("read", shop.events))
    screen = ["scan", shop.events, "--store", store, "--columns", "event_id"]
    shown = cli(*screen, "--checkpoint", "screen", "--metadata", "_offset").splitlines()
    assert shown[0] == "event_id\t_offset"
    assert len(shown) == total + 1
    told = cli.json(*screen, "--checkpoint", "screen-2")
    assert len(told["data"]) == told["rows"] == total
    assert cli.json(*screen, "--checkpoint", "from-now", "--start", "latest")["data"] == []
    assert "'noon' is not understood" in cli.fails(
        *screen, "--checkpoint", "s", "--until", "noon", code=2
    )
    assert "is no sink" in cli.fails(*screen, "--checkpoint", "s", "--to", "kafka:x", code=2)
    assert "--catalog" in cli.fails(*screen, "--checkpoint", "s", "--to", "iceberg:a.b", code=2)
    assert "--catalog is for" in cli.fails(*screen, "--checkpoint", "s", "--catalog", "x", code=2)
    assert "Missing option '--checkpoint'" in cli.fails("scan", shop.events, code=2)
    assert "does not exist" in cli.fails("scan", f"{shop.database}.no", "--checkpoint", "s")
    assert made_run_key() != made_run_key()


def test_increments_to_other_tables(shop: Shop, store: str, tmp_path: Path) -> None:
    cli = shop.cli
    spec = f"tables:\n  - table: {shop.database}.copy\n    columns: {{event_id: bigint}}\n"
    cli("tables", "apply", shop.file("copy.yaml", spec))
    scan = ["scan", shop.events, "--store", store, "--columns", "event_id"]
    total = len(cli.json("read", shop.events))
    into = [*scan, "--checkpoint", "copy", "--to", f"fluss:{shop.database}.copy"]
    assert cli.json(*into)["rows"] == total
    assert len(cli.json("read", f"{shop.database}.copy", "--source", "log")) == total
    catalog = ["--catalog", "type=sql", "--catalog", f"uri=sqlite:///{tmp_path}/catalog.db"]
    catalog += ["--catalog", f"warehouse=file://{tmp_path}/warehouse"]
    lake = [*scan, "--checkpoint", "lake", "--to", "iceberg:analytics.events", *catalog]
    assert cli.json(*lake)["rows"] == total
    files = [str(path) for path in (tmp_path / "warehouse").rglob("*.parquet")]
    assert sum(pq.read_metadata(file).num_rows for file in files) == total


def test_increments_with_fields_and_secrets(
    shop: Shop, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli = shop.cli
    scan = ["scan", shop.events, "--store", store, "--columns", "event_id"]
    total = len(cli.json("read", shop.events))
    monkeypatch.setenv("SINK_URL", f"sqlite:///{tmp_path}/sink.db")
    sql = [*scan, "--checkpoint", "sql", "--to", "sql:events", "--sink-env", "url=SINK_URL"]
    assert cli.json(*sql)["rows"] == total
    assert cli.json(*sql)["rows"] == 0
    with closing(sqlite3.connect(tmp_path / "sink.db")) as database:
        assert database.execute("SELECT COUNT(*) FROM events").fetchone() == (total,)
    files = [*scan, "--checkpoint", "gzip", "--to", f"parquet:{tmp_path}/gzip"]
    assert cli.json(*files, "--sink-option", "compression=gzip")["rows"] == total
    (file, *_) = (tmp_path / "gzip").glob("*.parquet")
    assert pq.read_metadata(file).row_group(0).column(0).compression == "GZIP"
    monkeypatch.setenv("CATALOG_URI", f"sqlite:///{tmp_path}/catalog.db")
    lake = [*scan, "--checkpoint", "lake-env", "--to", "iceberg:a.events"]
    lake += ["--catalog", "type=sql", "--sink-option", f"catalog.warehouse=file://{tmp_path}/w"]
    lake += ["--sink-env", "catalog.uri=CATALOG_URI", "--sink-option", "partition_by=event_id"]
    assert cli.json(*lake)["rows"] == total


def test_wrong_fields_of_sinks(shop: Shop) -> None:
    scan = ["scan", shop.events, "--checkpoint", "s"]
    for arguments, said in (
        (["--to", "sql:t"], "--sink-env url=VARIABLE"),
        (["--to", "sql:t", "--sink-option", "url=sqlite://"], "would show a secret"),
        (["--to", "parquet:x", "--sink-option", "color=red"], "is no field of --to parquet"),
        (["--to", "parquet:x", "--catalog", "a=b"], "--catalog is for"),
        (["--sink-option", "a=b"], "the screen has none"),
        (["--to", "fluss:a.b", "--sink-option", "create_partitions=maybe"], "true or false"),
        (["--to", "iceberg:table"], "is no sink"),
    ):
        assert said in shop.cli.fails(*scan, *arguments, code=2)
    unset = ["--to", "sql:t", "--sink-env", "url=FLUSS_TEST_NOWHERE"]
    assert "FLUSS_TEST_NOWHERE is not set" in shop.cli.fails(*scan, *unset)


def test_the_help_lists_the_sinks(shop: Shop) -> None:
    shown = " ".join(shop.cli("scan", "--help").replace("│", " ").split())
    for form in ("parquet:DIR", "sql:table", "iceberg:namespace.table", "fluss:database.table"):
        assert form in shown


def test_a_pending_plan(shop: Shop, store: str, tmp_path: Path) -> None:
    cli = shop.cli
    blocked = tmp_path / "file"
    blocked.write_text("")
    scan = ["scan", shop.events, "--checkpoint", "stuck", "--store", store]
    said = cli.fails(*scan, "--run-key", "first", "--to", f"parquet:{blocked}")
    assert str(blocked) in said
    listed = {c["name"]: c for c in cli.json("checkpoints", "ls", "--store", store)}
    assert listed["stuck"]["pending_run_key"] == "first"
    same = [*scan, "--to", f"parquet:{blocked}"]
    assert "is pending" in cli.fails(*same, "--on-pending", "fail")
    assert "it belongs to sink parquet" in cli.fails(*scan, "--on-pending", "skip")
    assert cli.json(*same, "--on-pending", "skip")["receipt"]["details"]["skipped"] is True
    adopted = cli.json("checkpoints", "adopt", "stuck", "--run-key", "second", "--store", store)
    assert adopted["run_key"] == "first"
    abandon = ["checkpoints", "abandon", "stuck", "--store", store]
    assert "give up plan" in cli.fails(*abandon)
    assert cli.json(*abandon, "--yes", "--reason", "test")["kind"] == "abandon"
    assert "error" not in cli(*scan, "--to", f"parquet:{tmp_path}/out")
    retire = ["checkpoints", "retire", "stuck", "--store", store]
    assert "retire checkpoint" in cli.fails(*retire)
    assert cli(*retire, "--yes") == "retired 'stuck'\n"
    assert "it was retired" in cli.fails(*scan)


def test_moving_checkpoints(shop: Shop, store: str, tmp_path: Path) -> None:
    cli = shop.cli
    cli("scan", shop.events, "--checkpoint", "moved", "--store", store)
    file = tmp_path / "checkpoints.json"
    exported = cli.json("checkpoints", "export", "moved", "--to", str(file), "--store", store)
    assert exported == {"path": str(file), "checkpoints": 1}
    assert cli.json("checkpoints", "export", "moved", "--store", store) == json.loads(
        file.read_text()
    )
    sql = f"sqlite:///{tmp_path}/checkpoints.db"
    assert cli.json("checkpoints", "import", str(file), "--store", sql) == ["moved"]
    assert cli.json("scan", shop.events, "--checkpoint", "moved", "--store", sql)["rows"] == 0
    other = f"sqlite:///{tmp_path}/other.db"
    compact = ["checkpoints", "compact", "--store", sql, "--into", other]
    assert "retire every checkpoint" in cli.fails(*compact)
    assert cli.json(*compact, "--yes") == ["moved"]
    assert "it was retired" in cli.fails(
        "scan", shop.events, "--checkpoint", "moved", "--store", sql
    )
    assert "is no JSON" in cli.fails("checkpoints", "import", shop.file("bad.json", "{"))
    assert "there is none" in cli.fails("checkpoints", "show", "nobody", "--store", store)
    assert "--table" in cli.fails(
        *("checkpoints", "reset", "nobody", "--to", "latest", "--store", store), code=2
    )
    empty = f"{shop.database}.no_checkpoints"
    assert cli.json("checkpoints", "ls", "--store", empty) == []
    assert "no checkpoints here yet" in cli.fails("checkpoints", "show", "x", "--store", empty)
    assert empty not in cli("tables", "ls", shop.database)


def test_secrets_of_a_store_are_not_shown(shop: Shop, store: str) -> None:
    shop.cli("scan", shop.events, "--checkpoint", "quiet", "--store", store)
    into = "postgresql://me:hush@nowhere/db"
    said = shop.cli.fails("checkpoints", "compact", "--store", store, "--into", into)
    assert "//******@nowhere" in said
    assert "hush" not in said


def test_one_lost_table_does_not_hide_the_other_lags(local_shop: Shop) -> None:
    cli, gone = local_shop.cli, f"{local_shop.database}.gone"
    spec = f"tables:\n  - table: {gone}\n    columns: {{id: bigint}}\n"
    cli("tables", "apply", local_shop.file("gone.yaml", spec))
    store = ["--store", f"{local_shop.database}.lags"]
    cli("scan", gone, "--checkpoint", "lost", *store)
    cli("scan", local_shop.events, "--checkpoint", "there", *store)
    cli("tables", "drop", gone, "--yes")
    result = cli.run("checkpoints", "lag", *store, "--json")
    assert result.exit_code == 1
    assert [lag["name"] for lag in json.loads(result.stdout)] == ["there"]
    assert "does not exist" in result.stderr
    lines = {c["name"]: c for c in cli.json("status", local_shop.database, *store)["checkpoints"]}
    assert "does not exist" in lines["lost"]["problem"]
    assert lines["there"]["unread"] == 0
