"""`python -m benchmarks.client.memory WHO HOW ADDRESS DATABASE TABLE`: a scan's memory at peak.

WHO is `ours` or `pyfluss`, HOW is `table` (all rows as one Arrow table) or `batches` (one after
the other, each let go). Linux tells and resets the peak of a process.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

Summed = tuple[int, int]
RESET_PEAK = "5"


def main() -> None:
    who, how, address, database, table = sys.argv[1:]
    scan = {"ours": scan_ours, "pyfluss": scan_pyfluss}[who]
    rows, total, grown = scan(address, database, table, how == "table")
    print(json.dumps({"mb": grown / 1024, "rows": rows, "total": total}), flush=True)
    # At once: now and then pyfluss aborts the process while its interpreter ends.
    os._exit(0)


def scan_ours(address: str, database: str, table: str, whole: bool) -> tuple[int, int, int]:
    """Rows, their sum, and by how many KB the process grew."""
    import fluss_client as fluss

    config = fluss.Config({"bootstrap.servers": address})
    with fluss.FlussConnection.create(config).result(60) as connection:
        opened = connection.get_table(fluss.TablePath(database, table)).result(60)
        scanner = opened.new_scan().create_record_batch_log_scanner().result(60)
        before = _reset()
        scanner.subscribe(0, fluss.EARLIEST_OFFSET)
        if whole:
            rows, total = _sum_of(scanner.to_arrow())
        else:
            rows, total = _sum_each(scanner.to_arrow_batch_reader())
        grown = _status_kb("VmHWM") - before
        scanner.close()
        return rows, total, grown


def scan_pyfluss(address: str, database: str, table: str, whole: bool) -> tuple[int, int, int]:
    """The same with the official client."""
    import fluss as pyfluss

    async def scan() -> tuple[int, int, int]:
        config = pyfluss.Config({"bootstrap.servers": address.split(",")[0]})
        connection = await pyfluss.FlussConnection.create(config)
        opened = await connection.get_table(pyfluss.TablePath(database, table))
        scanner = await opened.new_scan().create_record_batch_log_scanner()
        before = _reset()
        scanner.subscribe(0, pyfluss.EARLIEST_OFFSET)
        if whole:
            rows, total = _sum_of(await scanner.to_arrow())
        else:
            rows, total = _sum_each(scanner.to_arrow_batch_reader())
        grown = _status_kb("VmHWM") - before
        await connection.close()
        return rows, total, grown

    return asyncio.run(scan())


def _sum_of(read: pa.Table) -> Summed:
    return read.num_rows, pc.sum(read.column("id")).as_py()


def _sum_each(reader: pa.RecordBatchReader) -> Summed:
    rows = total = 0
    for batch in reader:
        rows += batch.num_rows
        total += pc.sum(batch.column("id")).as_py()
    return rows, total


def _reset() -> int:
    Path("/proc/self/clear_refs").write_text(RESET_PEAK)
    return _status_kb("VmRSS")


def _status_kb(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


if __name__ == "__main__":
    main()
