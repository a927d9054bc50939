"""One increment into Parquet, in three ways: the product's, and two loops written by hand.

The loops do what people write before they have a checkpoint: read the saved offsets, scan from
there to what is the end now, write a Parquet file, save the new offsets. A crash between the last
two leaves rows twice.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import fluss as pyfluss
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.harness import Measured, stopwatch
from fluss_client import EARLIEST_OFFSET, FlussConnection, TablePath
from fluss_orchestrate import CheckpointStore, IncrementalScan, ParquetSink, run_increment

_COMPRESSION = "zstd"
_OFFSETS = "offsets.json"


def product(
    connection: FlussConnection, store: CheckpointStore, path: TablePath, folder: Path, size: float
) -> Measured:
    """Plan, read, Parquet sink, commit."""
    scan = IncrementalScan(connection, path, f"increment-{folder.name}", store)
    sink = ParquetSink(folder)
    return _checked(folder, size, lambda: run_increment(scan, sink, "bench"))


def by_client(connection: FlussConnection, path: TablePath, folder: Path, size: float) -> Measured:
    """The loop with our client: what plan and commit cost on top of it."""
    table = connection.get_table(path).result()

    def work() -> None:
        scanner = table.new_scan().create_record_batch_log_scanner().result()
        buckets = range(table.get_table_info().num_buckets)
        scanner.subscribe_buckets(dict.fromkeys(buckets, EARLIEST_OFFSET))
        _write(scanner.to_arrow_batch_reader(), folder)
        scanner.close()

    return _checked(folder, size, work)


def by_pyfluss(bootstrap: str, path: TablePath, folder: Path, size: float) -> Measured:
    """The loop with the official client."""

    async def open_table() -> tuple[Any, Any]:
        config = pyfluss.Config({"bootstrap.servers": bootstrap.split(",")[0]})
        connection = await pyfluss.FlussConnection.create(config)
        named = pyfluss.TablePath(path.database_name, path.table_name)
        return connection, await connection.get_table(named)

    async def increment(table: Any) -> None:
        scanner = await table.new_scan().create_record_batch_log_scanner()
        buckets = range(table.get_table_info().num_buckets)
        scanner.subscribe_buckets(dict.fromkeys(buckets, pyfluss.EARLIEST_OFFSET))
        _write(scanner.to_arrow_batch_reader(), folder)

    loop = asyncio.new_event_loop()
    connection, table = loop.run_until_complete(open_table())
    try:
        return _checked(folder, size, lambda: loop.run_until_complete(increment(table)))
    finally:
        loop.run_until_complete(_closed(connection))
        loop.close()


async def _closed(connection: Any) -> None:
    await connection.close()


def _write(batches: Iterable[pa.RecordBatch], folder: Path) -> None:
    writer = None
    rows = 0
    for batch in batches:
        if writer is None:
            file = folder / "part-0.parquet"
            writer = pq.ParquetWriter(file, batch.schema, compression=_COMPRESSION)
        writer.write_batch(batch)
        rows += batch.num_rows
    if writer is not None:
        writer.close()
    (folder / _OFFSETS).write_text(json.dumps({"rows": rows}))


def _checked(folder: Path, size: float, work: Callable[[], object]) -> Measured:
    """Time the work; the checksum is what the files hold afterwards."""

    def timed() -> tuple[float, object]:
        work()
        return size, None

    measured = stopwatch(timed)
    read = pa.concat_tables(pq.read_table(f, columns=["id"]) for f in folder.glob("*.parquet"))
    return Measured(measured.value, (read.num_rows, pc.sum(read.column("id")).as_py()))
