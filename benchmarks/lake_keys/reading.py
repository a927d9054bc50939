"""Reads of a key table: lake and changelog as one, and the data files of its lake alone.

`python -m benchmarks.lake_keys.reading ADDRESS DATABASE TABLE` tells the memory of a union read at
its peak.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from benchmarks.key_tables import SCHEMA
from benchmarks.peak import peak_kb, reset_peak
from benchmarks.place import CONNECT_S, connected
from fluss_client import FlussConnection, TablePath
from fluss_orchestrate import read_table
from fluss_orchestrate.core.lake.catalog import load_lake_table

Summed = tuple[int, int]


def main() -> None:
    address, database, name = sys.argv[1:]
    with connected(address) as connection:
        before = reset_peak()
        rows, total = read_union(connection, TablePath(database, name))
        grown = peak_kb() - before
    print(json.dumps({"mb": grown / 1024, "rows": rows, "total": total}), flush=True)


def read_union(connection: FlussConnection, path: TablePath) -> Summed:
    """Rows and the sum of their ids, batch by batch."""
    return _sum(read_table(connection, path, read="union"))


def read_alone(files: Sequence[str]) -> Summed:
    """The same of Parquet files."""
    return _sum(ds.dataset(list(files), format="parquet").to_batches(columns=SCHEMA.names))


def files_of(connection: FlussConnection, path: TablePath) -> list[str]:
    """Where the data files of a table's lake are."""
    info = connection.get_admin().result(CONNECT_S).get_table_info(path).result(CONNECT_S)
    table = load_lake_table(info, connection.config.resolved_alias())
    tasks = table.scan().plan_files()
    return [unquote(urlparse(task.file.file_path).path) for task in tasks]


def _sum(batches: Iterable[pa.RecordBatch]) -> Summed:
    rows = total = 0
    for batch in batches:
        if batch.num_rows:
            rows += batch.num_rows
            total += pc.sum(batch.column("id")).as_py()
    return rows, total


if __name__ == "__main__":
    main()
