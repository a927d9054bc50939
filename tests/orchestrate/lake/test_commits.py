"""A commit whose outcome is not known is looked at where everybody else looks."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fluss_client import Config, FlussConnection
from fluss_orchestrate import IcebergSink, IncrementalScan, TableSpec, apply_tables, run_increment
from fluss_orchestrate.core.lake.catalog import open_catalog


def test_a_locked_catalog_loses_nothing(tmp_path: Path) -> None:
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db?timeout=0.2",
        "warehouse": f"file://{tmp_path}/warehouse",
    }
    config = Config({"bootstrap.servers": f"embedded:{tmp_path}/fluss"})
    with FlussConnection.create(config).result() as connection:
        spec = TableSpec.of_arrow("d.t", pa.schema([("id", pa.int64())]), buckets=1)
        apply_tables(connection, [spec])
        writer = connection.get_table(spec.path).result().new_append().create_writer()
        scan = IncrementalScan(connection, "d.t", "locked")
        sink = IcebergSink(catalog, "n.t")
        writer.write_arrow(pa.table({"id": [1]}))
        writer.flush().result()
        run_increment(scan, sink, "first")
        writer.write_arrow(pa.table({"id": [2]}))
        writer.flush().result()
        reader = sqlite3.connect(tmp_path / "catalog.db", isolation_level=None)
        reader.execute("BEGIN")
        # A row that is asked for and not the last one: the file stays locked against commits.
        reader.execute("SELECT 1 FROM iceberg_tables UNION ALL SELECT 2").fetchone()
        with pytest.raises(Exception, match="database is locked"):
            run_increment(scan, sink, "second")
        reader.close()
        assert len(open_catalog(catalog).load_table("n.t").snapshots()) == 1
        run_increment(scan, sink, "second")
        writer.close()
    files = open_catalog(catalog).load_table("n.t").scan().plan_files()
    paths = [task.file.file_path.removeprefix("file://") for task in files]
    assert sorted(i for path in paths for i in pq.read_table(path)["id"].to_pylist()) == [1, 2]
