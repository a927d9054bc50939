"""Writes what an earlier version leaves behind, for the tests that a newer one goes on with it.

Run it with the code of that version on the path, in an empty folder:

    PYTHONPATH=<checkout of the version> python make_golden.py

It makes an embedded Fluss with tables and checkpoints in every state, a SQL checkpoint store, a SQL
sink, and plans and receipts as JSON. The test unpacks a tar file of the folder.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

import fluss_client as fluss
from fluss_orchestrate import (
    FlussTableSink,
    IncrementalScan,
    IntervalScan,
    ParquetSink,
    SqlCheckpointStore,
    SqlSink,
    read_table,
    run_increment,
)
from fluss_orchestrate.core.job import run_interval

COLUMNS = pa.schema([("id", pa.int64()), ("text", pa.string())])


def rows(first: int, last: int) -> pa.Table:
    numbers = list(range(first, last))
    return pa.table({"id": numbers, "text": [f"row {n}" for n in numbers]}, schema=COLUMNS)


def now() -> int:
    time.sleep(0.05)
    return time.time_ns() // 1_000_000


def main() -> None:
    config = fluss.Config({"bootstrap.servers": "embedded:fluss", "cluster.alias": "shop"})
    connection = fluss.FlussConnection.create(config).result()
    admin = connection.get_admin().result()
    admin.create_database("db").result()

    def table(name: str, keys: list[str] | None = None) -> Any:
        schema = fluss.Schema(COLUMNS, primary_keys=keys)
        # The rows must be there whenever the test runs.
        lasting = {"table.log.ttl": "36500d"}
        descriptor = fluss.TableDescriptor(
            schema, bucket_count=2, bucket_keys=["id"], properties=lasting
        )
        path = fluss.TablePath("db", name)
        admin.create_table(path, descriptor).result()
        return connection.get_table(path).result()

    def append(made: Any, first: int, last: int) -> None:
        writer = made.new_append().create_writer()
        writer.write_arrow(rows(first, last))
        writer.flush().result()

    events, copy, keyed = table("events"), table("copy"), table("keyed", ["id"])
    bounds = [now()]
    append(events, 0, 10)
    bounds.append(now())

    def scan(name: str, **options: Any) -> IncrementalScan:
        return IncrementalScan(connection, "db.events", name, settle_ms=0, **options)

    kept: dict[str, Any] = {"bounds": bounds}
    run_increment(scan("committed"), ParquetSink("files"), "run-1")
    kept["receipt"] = run_increment(
        scan("into-fluss"), FlussTableSink(connection, "db.copy"), "run-1"
    ).receipt.to_json()
    with scan("block").run("run-1") as run:
        run.to_arrow()
    run_increment(scan("reset"), ParquetSink("reset-files"), "run-1")
    scan("reset").reset("earliest", "by the earlier version")
    run_increment(scan("retired"), ParquetSink("retired-files"), "run-1")
    scan("retired").store.retire("retired")
    kept["pending"] = scan("pending").plan("run-1").to_json()
    by_sql = {"store": SqlCheckpointStore("sqlite:///checkpoints.db")}
    sql = SqlSink("sqlite:///sink.db", "rows")
    run_increment(scan("sql", **by_sql), sql, "run-1")

    append(events, 10, 15)
    bounds.append(now())
    half = scan("sql", **by_sql)
    sql.write(half.plan("run-2"), half.read)  # and dies before the commit
    backfill = IntervalScan(connection, "db.events", "backfill", settle_ms=0)
    run_interval(backfill, ParquetSink("backfill"), "run-1", bounds[0], bounds[1])
    kept["interval"] = backfill.plan("run-2", bounds[1], bounds[2]).to_json()
    writer = keyed.new_upsert().create_writer()
    writer.write_arrow(rows(0, 6))
    writer.delete({"id": 3})
    writer.flush().result()
    kept["keys"] = sorted(read_table(connection, "db.keyed").read_all()["id"].to_pylist())
    marked = IncrementalScan(
        connection, "db.keyed", "keyed", settle_ms=0, metadata_columns=["_change_type"]
    )
    run_increment(marked, ParquetSink("changes"), "run-1")
    append(copy, 100, 101)
    Path("kept.json").write_text(json.dumps(kept))
    connection.close()


if __name__ == "__main__":
    main()
