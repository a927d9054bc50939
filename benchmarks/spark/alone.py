"""`python -m benchmarks.spark.alone load|read ADDRESS TABLE FOLDER`: the client without Spark.

One process that is kept to one core: what a core can do when nobody stands in between.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

ONE_CORE = 0


def main() -> None:
    what, address, table, folder = sys.argv[1:]
    if hasattr(os, "sched_setaffinity"):
        # Before anything starts a thread: threads inherit it.
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[ONE_CORE]})
    from fluss_client import EARLIEST_OFFSET, Config, FlussConnection, TablePath

    config = Config({"bootstrap.servers": address})
    with FlussConnection.create(config).result(60) as connection:
        opened = connection.get_table(TablePath.parse(table)).result(60)
        started = time.perf_counter()
        if what == "load":
            rows = load(opened, Path(folder))
        else:
            scanner = opened.new_scan().create_record_batch_log_scanner().result(60)
            buckets = range(opened.get_table_info().num_buckets)
            scanner.subscribe_buckets(dict.fromkeys(buckets, EARLIEST_OFFSET))
            rows = sum(batch.num_rows for batch in scanner.to_arrow_batch_reader())
            scanner.close()
        seconds = time.perf_counter() - started
    print(json.dumps({"seconds": seconds, "rows": rows}))


def load(table, folder: Path) -> int:  # type: ignore[no-untyped-def]
    """Append every file, acknowledged."""
    import pyarrow.parquet as pq

    rows = 0
    with table.new_append().create_writer() as writer:
        for file in sorted(folder.glob("*.parquet")):
            for batch in pq.ParquetFile(file).iter_batches(batch_size=1 << 16):
                writer.write_arrow_batch(batch)
                rows += batch.num_rows
    return rows


if __name__ == "__main__":
    main()
