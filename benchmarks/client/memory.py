"""`python -m benchmarks.client.memory WHO HOW ADDRESS DATABASE TABLE`: a scan's memory at peak.

WHO is `ours` or `pyfluss`, HOW is `table` (all rows as one Arrow table) or `batches` (one after
the other, each let go).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.peak import peak_kb, reset_peak

Summed = tuple[int, int]
Scanned = tuple[Summed, int, float]
"""What the rows sum up to, by how many KB the process grew, and the seconds."""


def main() -> None:
    who, how, address, database, table = sys.argv[1:]
    scan = {"ours": scan_ours, "pyfluss": scan_pyfluss}[who]
    (rows, total), grown, seconds = scan(address, database, table, how == "table")
    found = {"mb": grown / 1024, "seconds": seconds, "rows": rows, "total": total}
    print(json.dumps(found), flush=True)
    # At once: now and then pyfluss aborts the process while its interpreter ends.
    os._exit(0)


def scan_ours(address: str, database: str, table: str, whole: bool) -> Scanned:
    """Our client."""
    import fluss_client as fluss

    config = fluss.Config({"bootstrap.servers": address})
    with fluss.FlussConnection.create(config).result(60) as connection:
        opened = connection.get_table(fluss.TablePath(database, table)).result(60)
        scanner = opened.new_scan().create_record_batch_log_scanner().result(60)
        before, started = reset_peak(), time.perf_counter()
        scanner.subscribe(0, fluss.EARLIEST_OFFSET)
        if whole:
            summed = _sum_of(scanner.to_arrow())
        else:
            summed = _sum_each(scanner.to_arrow_batch_reader())
        seconds, grown = time.perf_counter() - started, peak_kb() - before
        scanner.close()
        return summed, grown, seconds


def scan_pyfluss(address: str, database: str, table: str, whole: bool) -> Scanned:
    """The same with the official client."""
    import fluss as pyfluss

    async def scan() -> Scanned:
        config = pyfluss.Config({"bootstrap.servers": address.split(",")[0]})
        connection = await pyfluss.FlussConnection.create(config)
        opened = await connection.get_table(pyfluss.TablePath(database, table))
        scanner = await opened.new_scan().create_record_batch_log_scanner()
        before, started = reset_peak(), time.perf_counter()
        scanner.subscribe(0, pyfluss.EARLIEST_OFFSET)
        if whole:
            summed = _sum_of(await scanner.to_arrow())
        else:
            summed = _sum_each(scanner.to_arrow_batch_reader())
        seconds, grown = time.perf_counter() - started, peak_kb() - before
        await connection.close()
        return summed, grown, seconds

    return asyncio.run(scan())


def _sum_of(read: pa.Table) -> Summed:
    return read.num_rows, pc.sum(read.column("id")).as_py()


def _sum_each(reader: pa.RecordBatchReader) -> Summed:
    rows = total = 0
    for batch in reader:
        rows += batch.num_rows
        total += pc.sum(batch.column("id")).as_py()
    return rows, total


if __name__ == "__main__":
    main()
