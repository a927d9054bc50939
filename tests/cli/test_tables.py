"""Databases, tables, partitions and offsets."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from tests.cli.conftest import Shop


def test_databases(local_shop: Shop) -> None:
    cli = local_shop.cli
    assert cli("databases", "create", "more", "--comment", "for a while") == "created more\n"
    assert cli.json("databases", "create", "more") == {"database": "more", "created": False}
    listed = {d["database"]: d["tables"] for d in cli.json("databases", "ls")}
    assert listed["more"] == 0
    assert listed[local_shop.database] == 3
    assert "database" in cli("databases", "ls").splitlines()[0]
    said = cli.fails("databases", "drop", local_shop.database, "--yes")
    assert "still has 3 tables" in said
    assert "--yes" in cli.fails("databases", "drop", "more")
    assert cli("databases", "drop", "more", "--yes") == "dropped more\n"
    assert "more" in cli.fails("databases", "drop", "more", "--yes")


def test_tables_ls_and_describe(local_shop: Shop) -> None:
    cli = local_shop.cli
    listed = {t["table"]: t for t in cli.json("tables", "ls", local_shop.database)}
    assert listed[local_shop.orders]["kind"] == "primary key"
    assert listed[local_shop.events]["lake"] is True
    assert listed[local_shop.days]["partitioned_by"] == "day"
    assert local_shop.orders in cli("tables", "ls")
    told = cli.json("tables", "describe", local_shop.orders)
    assert told["primary_key"] == ["order_id", "region"]
    assert told["columns"][0] == {"name": "order_id", "type": "bigint NOT NULL", "comment": None}
    shown = cli("tables", "describe", local_shop.orders)
    assert "decimal(12,2)" in shown
    assert "one row per order" in shown
    assert "does not exist" in cli.fails("tables", "describe", f"{local_shop.database}.no")
    assert "write database.table" in cli.fails("tables", "describe", "orders", code=2)


def test_tables_plan_apply_drop(local_shop: Shop) -> None:
    cli, table = local_shop.cli, f"{local_shop.database}.extra"
    spec = f"tables:\n  - table: {table}\n    columns: {{id: bigint}}\n"
    file = local_shop.file("extra.yaml", spec)
    assert cli("tables", "plan", file) == f"create table {table}\n"
    assert cli.json("tables", "plan", file)[0]["change"] == "CreateTable"
    assert cli.json("tables", "apply", file) == [
        {"change": "CreateTable", "what": f"create table {table}"}
    ]
    assert cli("tables", "apply", file) == "nothing to change\n"
    other = local_shop.file("other.yaml", spec.replace("bigint", "string"))
    assert "is bigint, not string" in cli.fails("tables", "plan", other)
    assert "no such file" in cli.fails("tables", "plan", "/nowhere.yaml").lower()
    assert "is no YAML" in cli.fails("tables", "apply", local_shop.file("bad.yaml", "a: [\n"))
    assert f"drop table {table}" in cli.fails("tables", "drop", table)
    assert cli.json("tables", "drop", table, "--yes")["table"] == table
    assert "does not exist" in cli.fails("tables", "drop", table, "--yes")


def test_partitions(local_shop: Shop) -> None:
    cli, table = local_shop.cli, local_shop.days
    assert cli("partitions", "create", table, "day=20200101") == "created day=20200101\n"
    assert cli.json("partitions", "ls", table)[0]["values"] == {"day": "20200101"}
    assert "20200101" in cli("partitions", "ls", table)
    plan = cli.json("partitions", "window", table, "--retain", "5", "--ahead", "1", "--dry-run")
    today = dt.datetime.now(dt.UTC)
    days = [(today + dt.timedelta(days=n)).strftime("%Y%m%d") for n in (0, 1)]
    assert plan["create"] == [{"day": day} for day in days]
    assert plan["drop"] == ["20200101"]
    window = ["partitions", "window", table, "--retain", "5", "--ahead", "1"]
    assert "drop 1 partition" in cli.fails(*window)
    assert "drop 20200101" in cli(*window, "--yes")
    assert cli(*window) == "nothing to change\n"
    assert "unit is one of" in cli.fails("partitions", "window", table, "--unit", "week")
    assert "no '='" in cli.fails("partitions", "create", table, "day", code=2)
    assert "drop partition" in cli.fails("partitions", "drop", table, f"day={days[0]}")
    assert cli("partitions", "drop", table, f"day={days[0]}", "--yes").startswith("dropped")
    assert "has no partitions" in cli.fails("partitions", "ls", local_shop.events)


def test_partitions_that_a_scan_has_not_read_stay(local_shop: Shop, tmp_path: Path) -> None:
    cli, table = local_shop.cli, local_shop.days
    store = ["--store", f"sqlite:///{tmp_path / 'checkpoints.db'}"]
    spec = "day=20200102"
    cli("partitions", "create", table, spec)
    scan = ["scan", table, "--checkpoint", "days", *store]
    cli(*scan)
    cli("write", table, local_shop.file("day.jsonl", '{"day": "20200102", "n": 1}\n'))
    drop = ["partitions", "drop", table, spec, "--yes", *store]
    assert "checkpoint 'days' has read bucket" in cli.fails(*drop)
    window = ["partitions", "window", table, "--retain", "5", "--ahead", "0", "--yes", *store]
    assert "20200102" in cli.json(*window)["kept"]
    cli(*scan)
    assert cli.json(*window)["drop"] == ["20200102"]
    # It was read to its end, so the scan goes on.
    cli(*scan)
    assert "has no partition day=20200102" in cli.fails(*drop)


def test_offsets(local_shop: Shop) -> None:
    cli = local_shop.cli
    assert cli.json("offsets", local_shop.events) == [
        {"partition": None, "bucket": bucket, "earliest": 0, "latest": 0} for bucket in (0, 1)
    ]
    assert cli("offsets", local_shop.events, "--at", "-1h").split()[:3] == [
        "partition",
        "bucket",
        "earliest",
    ]
    assert "no time zone" in cli.fails("offsets", local_shop.events, "--at", "2026-01-01", code=2)
    assert "is no time" in cli.fails("offsets", local_shop.events, "--at", "noon", code=2)
