"""What is in sinks and tables, to be compared with what should be."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from fluss_client import FlussConnection
from fluss_orchestrate import IncrementalScan


def ids(path: Path) -> list[int]:
    """The numbers in a directory of Parquet files, sorted."""
    found: list[int] = pq.read_table(path).column("id").to_pylist()
    return sorted(found)


def ids_in(client: FlussConnection, table: str, column: str = "id") -> list[int]:
    """The numbers in a table, sorted."""
    name = f"count-{table}"
    scan = IncrementalScan(client, table, name)
    with scan.run("count") as whole:
        found: list[int] = whole.to_arrow().column(column).to_pylist()
    scan.store.retire(name)
    return sorted(found)
