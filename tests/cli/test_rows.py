"""Rows in and out: write, read, lookup, on the embedded engine and a real cluster."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from tests.cli.conftest import Shop

EVENTS = 'event_id,name,at\n1,007,2026-11-16 08:00:00\n2,,\n3,"",2026-11-16 09:30:00\n'


def ids(rows: list[dict[str, int]]) -> list[int]:
    return sorted(row["event_id"] for row in rows)


def test_log_tables(shop: Shop, tmp_path: Path) -> None:
    cli, table = shop.cli, shop.events
    file = shop.file("events.csv", EVENTS)
    done = cli.json("write", table, file)
    assert done == {"table": table, "mode": "append", "rows": 3, "exactly_once": False}
    rows = cli.json("read", table)
    assert sorted(rows, key=lambda r: r["event_id"]) == [
        {"event_id": 1, "name": "007", "at": "2026-11-16T08:00:00"},
        {"event_id": 2, "name": None, "at": None},
        {"event_id": 3, "name": "", "at": "2026-11-16T09:30:00"},
    ]
    receipt = cli.json("write", table, file, "--load-id", "events-1")
    assert (receipt["rows"], receipt["kind"]) == (3, "append")
    again = cli.json("write", table, file, "--load-id", "events-1")
    assert again["details"]["was_done_before"] is True
    assert ids(cli.json("read", table, "--source", "log")) == [1, 1, 2, 2, 3, 3]
    other = shop.file("other.csv", EVENTS.replace("007", "008"))
    assert "load events-1" in cli.fails("write", table, other, "--load-id", "events-1")
    with_metadata = cli.json("read", table, "--source", "log", "--metadata", "--limit", "1")[0]
    assert with_metadata["_change_type"] == "+A"
    assert with_metadata["_offset"] == 0
    ranges = ",".join(f"{bucket}={stop}" for _, _, bucket, _, stop in receipt["ranges"])
    later = cli.json("read", table, "--source", "log", "--start", ranges)
    assert later == []
    assert cli.json("read", table, "--source", "log", "--until", "0=0,1=0") == []


def test_files_out(shop: Shop, tmp_path: Path) -> None:
    cli, table = shop.cli, shop.events
    expected = ids(cli.json("read", table))
    assert len(expected) == 6
    for name in ("e.parquet", "e.csv", "e.jsonl", "e.arrow"):
        path = tmp_path / name
        done = cli.json("read", table, "--to", str(path), "--columns", "event_id,name")
        assert (done["rows"], done["path"]) == (6, str(path))
        assert done["bytes"] == path.stat().st_size
    assert sorted(pq.read_table(tmp_path / "e.parquet")["event_id"].to_pylist()) == expected
    assert sorted(pacsv.read_csv(tmp_path / "e.csv")["event_id"].to_pylist()) == expected
    lines = [json.loads(line) for line in (tmp_path / "e.jsonl").read_text().splitlines()]
    assert ids(lines) == expected
    assert list(lines[0]) == ["event_id", "name"]
    with pa.ipc.open_file(tmp_path / "e.arrow") as file:
        assert sorted(file.read_all()["event_id"].to_pylist()) == expected
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []
    result = cli.run("read", table, "--to", "-", "--format", "arrow", "--limit", "4")
    assert pa.ipc.open_stream(result.stdout_bytes).read_all().num_rows == 4
    result = cli.run("read", table, "--to", "-", "--format", "parquet")
    assert pq.read_table(io.BytesIO(result.stdout_bytes)).num_rows == 6
    assert "6 rows in" in result.stderr
    assert cli("read", table, "--limit", "2").count("\n") == 3


def test_standard_input(shop: Shop) -> None:
    cli, table = shop.cli, shop.days
    cli("partitions", "create", table, "day=d1")
    rows = pa.table({"day": ["d1", "d1"], "n": pa.array([1, 2], pa.int32())})
    arrow, parquet = io.BytesIO(), io.BytesIO()
    with pa.ipc.new_stream(arrow, rows.schema) as writer:
        writer.write_table(rows)
    pq.write_table(rows, parquet)
    for kind, text in (
        ("csv", b"day,n\nd1,1\nd1,2\n"),
        ("json", b'{"day": "d1", "n": 1}\n{"day": "d1", "n": 2}\n'),
        ("arrow", arrow.getvalue()),
        ("parquet", parquet.getvalue()),
    ):
        assert cli.json("write", table, "-", "--format", kind, stdin=text)["rows"] == 2
    found = cli.json("read", table, "--partition", "d1")
    assert sorted(row["n"] for row in found) == [1, 1, 1, 1, 2, 2, 2, 2]
    assert "--format" in cli.fails("write", table, "-", code=2)
    assert "cannot be read as arrow" in cli.fails(
        "write", table, "-", "--format", "arrow", stdin=b"no"
    )
    new = b"day,n\nd2,7\n"
    loaded = ["write", table, "-", "--format", "csv", "--load-id", "days-1"]
    assert "d2" in cli.fails(*loaded, stdin=new)
    assert cli.json(*loaded, "--create-partitions", stdin=new)["rows"] == 1
    assert cli.json("read", table, "--source", "log", "--partition", "d2") == [
        {"day": "d2", "n": 7}
    ]


def test_key_tables(shop: Shop) -> None:
    cli, table = shop.cli, shop.orders
    orders = (
        '{"order_id": 1, "region": "eu", "amount": "12.50", "note": "a"}\n'
        '{"order_id": 2, "region": "us", "amount": "3.00", "note": "b"}\n'
    )
    file = shop.file("orders.jsonl", orders)
    assert cli.json("write", table, file, "--load-id", "orders-1")["kind"] == "upsert"
    assert cli.json("lookup", table, "1", "eu") == {
        "order_id": 1,
        "region": "eu",
        "amount": "12.50",
        "note": "a",
    }
    part = shop.file("part.csv", "order_id,region,note\n1,eu,changed\n")
    assert cli("write", table, part, "--partial") == "upsert: 1 row\n"
    assert cli.json("lookup", table, "order_id=1", "region=eu", "--columns", "amount,note") == {
        "amount": "12.50",
        "note": "changed",
    }
    for more in ([], ["--load-id", "orders-2"]):
        part = shop.file("part.csv", f"order_id,region,note\n2,us,without{len(more)}\n")
        cli("write", table, part, *more)
        assert cli.json("lookup", table, "2", "us", "--columns", "amount,note") == {
            "amount": "3.00",
            "note": f"without{len(more)}",
        }
    changes = cli.json("read", table, "--source", "changelog")
    of_one = [row["_change_type"] for row in changes if row["order_id"] == 1]
    assert of_one == ["+I", "-U", "+U"]
    keys = shop.file("keys.csv", "order_id,region\n2,us\n")
    assert cli.json("write", table, keys, "--mode", "delete")["rows"] == 1
    assert [row["order_id"] for row in cli.json("read", table)] == [1]
    assert [row["order_id"] for row in cli.json("read", table, "--limit", "5")] == [1]
    assert cli.json("lookup", table, "2", "us") is None
    assert cli("lookup", table, "2", "us") == "no row\n"
    assert cli.json("lookup", table, "1", "--prefix")[0]["note"] == "changed"
    assert "12.50" in cli("lookup", table, "order_id=1", "--prefix")
    assert Decimal(cli.json("lookup", table, "1", "eu")["amount"]) == Decimal("12.5")
    assert cli.json("lookup", table, "9", "--prefix") == []


def test_wrong_uses(shop: Shop) -> None:
    cli, events, orders = shop.cli, shop.events, shop.orders
    file = shop.file("events.csv", EVENTS)
    assert "append to it" in cli.fails("write", events, file, "--mode", "upsert", code=2)
    assert "upsert into it" in cli.fails("write", orders, file, "--mode", "append", code=2)
    assert "needs --load-id" in cli.fails("write", events, file, "--create-partitions", code=2)
    deletes = ["write", orders, file, "--mode", "delete", "--load-id", "x"]
    assert "_change_type" in cli.fails(*deletes, code=2)
    assert "load id is a text" in cli.fails("write", events, file, "--load-id", "")
    assert "no such file" in cli.fails("write", events, "/nowhere.csv")
    assert "cannot be read as parquet" in cli.fails("write", events, file, "--format", "parquet")
    assert "no column 'nope'" in cli.fails("read", events, "--columns", "nope")
    assert "hence no changelog" in cli.fails("read", events, "--source", "changelog", code=2)
    assert "--start is for" in cli.fails("read", events, "--start", "latest", code=2)
    assert "--metadata is for" in cli.fails("read", events, "--metadata", code=2)
    assert "say with --format" in cli.fails("read", events, "--to", "rows.txt", code=2)
    assert "Invalid value for '--source'" in cli.fails("read", events, "--source", "disk", code=2)
    assert "does not exist" in cli.fails("read", f"{shop.database}.no")
    assert "does not exist" in cli.fails("write", f"{shop.database}.no", file)
    assert "no partition 'd9'" in cli.fails("read", shop.days, "--partition", "d9")
    assert "has no primary key" in cli.fails("lookup", events, "1", code=2)
    assert "give 2 values" in cli.fails("lookup", orders, "1", code=2)
    assert "'one' is no bigint" in cli.fails("lookup", orders, "one", "eu", code=2)
    assert "not (order_id)" in cli.fails("lookup", orders, "order_id=1", code=2)
