"""Many writers and scanners at once, wide tables, large rows: all rows there, nothing left open."""

from __future__ import annotations

import gc
import os
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psutil
import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client.testing import LocalCluster
from fluss_orchestrate import FlussCheckpointStore, IncrementalScan
from tests.contract.tables import Tables, done
from tests.faults.ground import Ground
from tests.faults.recording import FaultRecorder
from tests.waiting import let_pass, scaled

SHORT, LONG = 8, 64
SECONDS_SHORT, SECONDS_LONG = 3.0, 600.0
BATCH = 200
APART = 100_000_000
WIDE_SHORT, WIDE_LONG = 200, 1_000
PARTITIONS = 10_000
CREATED_AT_ONCE = 50
LARGE_SHORT, LARGE_LONG = 2 << 20, 10 << 20
POOLS = ("fluss-codec", "asyncio_")
"""Threads that decode and that look up addresses: few, and kept for the next who need them."""
GROWTH_BYTES_MAX = 256 << 20


def open_things() -> dict[str, int]:
    """What this process holds: sockets, files, and threads that are not of a bounded pool."""
    gc.collect()
    process = psutil.Process()
    threads = [t.name for t in threading.enumerate() if not t.name.startswith(POOLS)]
    return {
        "sockets": len(process.net_connections()),
        "files": process.num_fds(),
        "threads": len(threads),
    }


@pytest.mark.timeout(1800)
def test_many_writers_and_scanners_at_once(
    ground: Ground, long_form: bool, record_fault: FaultRecorder
) -> None:
    count, seconds = (LONG, SECONDS_LONG) if long_form else (SHORT, SECONDS_SHORT)
    table = ground.tables.create({"id": pa.int64()}, buckets=4)
    config = fluss.Config({"bootstrap.servers": ground.direct.config.bootstrap_servers})
    ground.tables.log(table)
    before = open_things()
    over = threading.Event()
    all_open = threading.Barrier(2 * count + 1, timeout=scaled(100))
    written = [0] * count
    sizes: list[int] = []

    def write(number: int) -> None:
        with done(fluss.FlussConnection.create(config)) as connection:
            mine = done(connection.get_table(table.get_table_path()))
            with mine.new_append().create_writer() as writer:
                all_open.wait()
                while not over.is_set():
                    first = number * APART + written[number]
                    writer.write_arrow(pa.table({"id": list(range(first, first + BATCH))}))
                    writer.flush().result()
                    written[number] += BATCH

    def scan(number: int) -> int:
        seen = 0
        with done(fluss.FlussConnection.create(config)) as connection:
            mine = done(connection.get_table(table.get_table_path()))
            with done(mine.new_scan().create_record_batch_log_scanner()) as scanner:
                ground.tables.subscribe(scanner, mine)
                all_open.wait()
                while not over.is_set():
                    seen += scanner.poll_arrow(200).num_rows
        return seen

    with ThreadPoolExecutor(2 * count) as pool:
        writers = [pool.submit(write, number) for number in range(count)]
        scanners = [pool.submit(scan, number) for number in range(count)]
        all_open.wait()
        for _ in range(10):
            let_pass(seconds / 10, "a load that lasts")
            sizes.append(psutil.Process().memory_info().rss)
        over.set()
        for one in [*writers, *scanners]:
            one.result()
    assert all(written), "every writer got on"
    assert all(scanner.result() for scanner in scanners), "every scanner saw rows"
    assert sizes[-1] - sizes[len(sizes) // 2] < GROWTH_BYTES_MAX, "memory grew after the warm-up"
    found = Counter(ground.tables.log(table)["id"].to_pylist())
    expected = {n * APART + i for n in range(count) for i in range(written[n])}
    del writers, scanners
    left = open_things()
    assert all(left[kind] <= before[kind] for kind in left), f"{before} before, {left} after"
    record_fault(
        f"load: {count} writers and {count} scanners",
        count * 2,
        lost=len(expected - found.keys()),
        doubled=found.total() - len(found),
    )


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_partitions(
    make_cluster: Callable[..., LocalCluster], record_fault: FaultRecorder
) -> None:
    """One row in each partition: created, found, planned over and read, all of them."""
    count = PARTITIONS
    info = make_cluster(config={"max.partition.num": "20000", "max.bucket.num": "20000"}).up()
    config = fluss.Config({"bootstrap.servers": info.bootstrap_servers})
    with done(fluss.FlussConnection.create(config)) as connection:
        admin = done(connection.get_admin())
        done(admin.create_database("wide"))
        tables = Tables(connection, admin, "wide")
        table = tables.create({"id": pa.int64(), "day": pa.string()}, partition_keys=["day"])
        path = table.get_table_path()
        names = [f"d{number:05}" for number in range(count)]
        for first in range(0, count, CREATED_AT_ONCE):
            made = [
                admin.create_partition(path, {"day": name})
                for name in names[first : first + CREATED_AT_ONCE]
            ]
            for one in made:
                done(one)
        assert len(done(admin.list_partition_infos(path))) == count
        tables.append(table, pa.table({"id": list(range(count)), "day": names}))
        scan = IncrementalScan(connection, path, "wide", FlussCheckpointStore(connection, "wide"))
        found = Counter[int]()
        with scan.run("first") as run:
            for batch in run:
                found.update(batch.column("id").to_pylist())
        record_fault(
            f"load: {count} partitions",
            count,
            lost=len(set(range(count)) - found.keys()),
            doubled=found.total() - len(found),
        )


@pytest.mark.timeout(600)
def test_a_wide_table_and_large_rows(ground: Ground, long_form: bool) -> None:
    columns = WIDE_LONG if long_form else WIDE_SHORT
    size = LARGE_LONG if long_form else LARGE_SHORT
    wide = ground.tables.create({f"c{n}": pa.int64() for n in range(columns)})
    rows = pa.table({f"c{n}": [n, None, -n] for n in range(columns)})
    ground.tables.append(wide, rows)
    assert ground.tables.log(wide).select(rows.column_names).equals(rows)
    large = ground.tables.create({"id": pa.int64(), "raw": pa.binary()})
    raw = os.urandom(size)
    config = ground.direct.config.copy()
    config.writer_request_max_size = config.writer_batch_size = 64 << 20
    with done(fluss.FlussConnection.create(config)) as connection:
        tables = Tables(connection, done(connection.get_admin()), ground.database)
        mine = tables.open(large.get_table_path())
        tables.append(mine, [(1, raw), (2, raw)])
        assert tables.log(mine)["raw"].to_pylist() == [raw, raw]


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_row_larger_than_a_request_is_a_typed_error(ground: Ground) -> None:
    table = ground.tables.create({"id": pa.int64(), "raw": pa.binary()})
    writer = table.new_append().create_writer()
    with pytest.raises(fluss.FlussError):
        writer.append((1, os.urandom(101 << 20))).wait().result()
    with pytest.raises(fluss.FlussError):
        writer.close()
    assert ground.tables.log(table).num_rows == 0
