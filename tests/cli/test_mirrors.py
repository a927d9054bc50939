"""Mirrors on the command line: a table, a database, and their verification."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Shop

Query = Callable[[str], list[Any]]


@pytest.fixture
def warehouse(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Query:
    file = tmp_path / "warehouse.db"
    monkeypatch.setenv("WAREHOUSE", f"sqlite:///{file}")

    def query(text: str) -> list[Any]:
        with closing(sqlite3.connect(file)) as opened, opened:
            return opened.execute(text).fetchall()

    return query


def write(shop: Shop, text: str) -> None:
    shop.cli("write", shop.orders, "-", "--format", "csv", stdin=f"order_id,region,amount\n{text}")


def test_a_mirror_is_kept_verified_and_rebuilt(shop: Shop, warehouse: Query) -> None:
    store = ["--store", f"{shop.database}.mirror_checkpoints"]
    to = ["--to", "sql:orders", "--sink-env", "url=WAREHOUSE", *store]
    assert "holds no plan" in shop.cli.fails("mirror", "verify", shop.orders, *to)
    write(shop, "1,eu,1.50\n2,eu,2.50\n3,us,3.50\n")
    first = shop.cli.json("mirror", shop.orders, *to, "--run-key", "one", "--verify")
    assert (first["rows"], first["comparison"]["equal"]) == (3, True)
    again = shop.cli.json("mirror", "table", shop.orders, *to, "--run-key", "one")
    assert again["rows"] == 0
    write(shop, "2,eu,20.00\n4,us,4.00\n")
    assert shop.cli("mirror", *to, shop.orders).startswith("3 changes to sql:orders")
    assert "equals" in shop.cli("mirror", "verify", shop.orders, *to)
    warehouse("update orders set amount = 5 where order_id = 3")
    warehouse("delete from orders where order_id = 4")
    result = shop.cli.run("mirror", "verify", shop.orders, *to, "--json")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["equal"]) == (1, False)
    named = {(d["key"]["order_id"], d["kind"]): d["columns"] for d in found["differences"]}
    assert named == {(3, "values"): ["amount"], (4, "missing"): []}
    name = f"mirror/{shop.orders}"
    shop.cli("checkpoints", "reset", name, "--to", "start", "--yes", *store)
    assert "equals" in shop.cli("mirror", shop.orders, *to, "--verify")
    assert warehouse("select count(*) from orders") == [(4,)]


def test_rules_and_a_quarantine(shop: Shop, warehouse: Query) -> None:
    to = ["--to", "sql:good", "--sink-env", "url=WAREHOUSE", "--checkpoint", "rules"]
    to += ["--store", f"{shop.database}.rule_checkpoints", "--rule", "amount >= 0"]
    write(shop, "7,eu,-1.00\n8,eu,1.00\n")
    assert "violate 'amount >= 0'" in shop.cli.fails("mirror", shop.orders, *to)
    done = shop.cli.json("mirror", shop.orders, *to, "--quarantine", "sql:bad")
    (adopted,) = done["adopted"]  # the plan of the run that failed
    assert adopted["details"]["sink"]["quarantined"] == 1
    assert warehouse("select order_id from bad") == [(7,)]
    assert (7,) not in warehouse("select order_id from good")
    assert "--rule" in shop.cli.fails(
        "mirror", shop.orders, *to[:4], "--quarantine", "sql:bad", code=2
    )


def test_a_database(shop: Shop, warehouse: Query) -> None:
    store = ["--store", f"{shop.database}.database_checkpoints"]
    to = ["--sink-env", "url=WAREHOUSE", *store]
    said = shop.cli.fails("mirror", "database", shop.database, "--to", "sql:one", *to, code=2)
    assert "{table}" in said
    write(shop, "1,eu,1.50\n")
    every = ["mirror", "database", shop.database, "--exclude", "*checkpoints"]
    found = shop.cli.json(*every, "--to", "sql:m_{table}", *to, "--on-log-tables", "append")
    kinds = {one["table"].partition(".")[2]: one["kind"] for one in found["tables"]}
    assert kinds == {"days": "append", "events": "append", "orders": "mirror"}
    verify = ["mirror", "verify", shop.orders, "--to", "sql:m_orders", *to]
    assert "equals" in shop.cli(*verify)
    shown = shop.cli.run(*every, "--to", "iceberg:a.{table}", "--catalog", "nowhere", *store)
    assert shown.exit_code == 1
    assert "failed" in shown.stdout
