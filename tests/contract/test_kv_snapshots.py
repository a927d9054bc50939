"""What can go wrong with a KV snapshot, on a real cluster that makes one every second."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs

import fluss_client as fluss
from fluss_client.backend.cluster.kv_snapshots import SnapshotCursor
from fluss_client.backend.cluster.remote_files import copy_file
from fluss_client.backend.temporary_folder import FOLDER_PREFIX
from fluss_client.engine import StateReader, run_blocking
from fluss_client.errors import CorruptDataError, SchemaNotExistError, StorageError
from fluss_client.net.rate import RateLimit
from fluss_orchestrate import read_table
from tests.disk import full_disk
from tests.waiting import Deadline, let_pass, wait_until

ROWS = 20_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where snapshots are opened."""
    return tmp_path / "state"


@pytest.fixture
def settings(lake_cluster: Any, folder: Path) -> dict[str, str]:
    """How the cluster is reached, and where snapshots are opened."""
    return {
        "bootstrap.servers": lake_cluster.info.bootstrap_servers,
        "scanner.state.folder": str(folder),
    }


@pytest.fixture
def connection(settings: dict[str, str]) -> Any:
    with fluss.FlussConnection.create(fluss.Config(settings)).result() as connected:
        yield connected


@pytest.fixture
def path(connection: Any) -> Any:
    """A table with a snapshot of all its rows."""
    admin = connection.get_admin().result()
    path = fluss.TablePath("fluss", f"snapshots_{os.getpid()}_{time.monotonic_ns()}")
    arrow = pa.schema([("id", pa.int64()), ("text", pa.string())])
    schema = fluss.Schema(arrow, primary_keys=["id"])
    admin.create_table(path, fluss.TableDescriptor(schema, bucket_count=1)).result()
    table = connection.get_table(path).result()
    with table.new_upsert().create_writer() as writer:
        texts = [os.urandom(40).hex() for _ in range(ROWS)]
        writer.write_arrow(pa.table({"id": range(ROWS), "text": texts}))
    wait_until("a snapshot", lambda: admin.list_kv_snapshots(path).result()[0].log_offset == ROWS)
    yield path
    admin.drop_table(path).result()


def count(connection: Any, path: fluss.TablePath) -> int:
    core = connection.core

    async def read() -> int:
        info = await core.backend.get_table_info(path)
        bucket = fluss.TableBucket(info.table_id, 0)
        reader = await StateReader(core.backend, info, bucket, core.config).open()
        try:
            assert reader.source.kind == "snapshot"
            return sum([batch.num_rows async for batch in reader.batches()])
        finally:
            await reader.close()

    return run_blocking(read())


def snapshot_files(cluster: Any, path: fluss.TablePath) -> list[Path]:
    """The SST files of a table in the cluster's remote storage."""
    files = [file for file in (cluster.directory / "remote").rglob("*") if file.is_file()]
    files = [file for file in files if f"{path.table_name}" in str(file) and "/kv/" in str(file)]
    return sorted(files, key=lambda file: file.stat().st_size, reverse=True)


def test_nothing_is_left_behind(connection: Any, path: fluss.TablePath, folder: Path) -> None:
    assert count(connection, path) == ROWS
    assert list(folder.iterdir()) == []


def test_a_damaged_block_is_an_error(
    connection: Any, path: fluss.TablePath, folder: Path, lake_cluster: Any
) -> None:
    largest = snapshot_files(lake_cluster, path)[0]
    with open(largest, "r+b") as file:
        file.seek(largest.stat().st_size // 2)
        file.write(b"\xff" * 64)
    with pytest.raises(CorruptDataError, match=r"KV snapshot \d+ of .* is damaged"):
        count(connection, path)
    assert list(folder.iterdir()) == []


def test_a_missing_file_is_an_error(
    connection: Any, path: fluss.TablePath, lake_cluster: Any
) -> None:
    snapshot_files(lake_cluster, path)[0].unlink()
    with pytest.raises(StorageError, match="needs access to the cluster's remote storage"):
        count(connection, path)


@pytest.mark.parametrize("way", ["deleted", "cut short"])
def test_files_that_vanish_while_they_are_read(
    connection: Any, path: fluss.TablePath, lake_cluster: Any, way: str
) -> None:
    """Rows are all there or an error is raised: a read never ends early."""
    core = connection.core

    async def read() -> int:
        info = await core.backend.get_table_info(path)
        bucket = fluss.TableBucket(info.table_id, 0)
        reader = StateReader(core.backend, info, bucket, core.config, batch_rows=100)
        try:
            await reader.open()
            batches = reader.batches()
            rows = (await anext(batches)).num_rows
            for file in snapshot_files(lake_cluster, path):
                if way == "deleted":
                    file.unlink()
                else:
                    os.truncate(file, file.stat().st_size // 2)
            return rows + sum([batch.num_rows async for batch in batches])
        finally:
            await reader.close()

    if way == "deleted":  # RocksDB has them open.
        assert run_blocking(read()) == ROWS
    else:
        with pytest.raises(CorruptDataError, match="is damaged"):
            run_blocking(read())


def test_a_folder_that_cannot_be_made_is_an_error(
    connection: Any, path: fluss.TablePath, folder: Path
) -> None:
    folder.write_text("a file stands here")
    with pytest.raises(StorageError, match="cannot make a temporary folder"):
        count(connection, path)


def test_without_the_package_the_changelog_is_read(
    connection: Any, path: fluss.TablePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "fluss_client.backend.cluster.kv_snapshots"
    monkeypatch.setattr(f"{module}.can_open_snapshots", lambda: False)
    core = connection.core

    async def source() -> str:
        info = await core.backend.get_table_info(path)
        bucket = fluss.TableBucket(info.table_id, 0)
        reader = await StateReader(core.backend, info, bucket, core.config).open()
        await reader.close()
        return reader.source.kind

    assert run_blocking(source()) == "log"


def crafted(monkeypatch: pytest.MonkeyPatch, folder: Path, values: dict[bytes, bytes]) -> None:
    """Let snapshots have these keys and values instead of their own."""
    rocksdict = pytest.importorskip("rocksdict")
    database = rocksdict.Rdict(str(folder), rocksdict.Options(raw_mode=True))
    for key, value in values.items():
        database[key] = value
    database.flush()
    database.close()
    files = [file for file in folder.iterdir() if file.name.startswith(("CURRENT", "MANIFEST"))]
    files += folder.glob("*.sst")

    async def crafted_files(self: SnapshotCursor) -> list[tuple[str, str]]:
        return [(str(file), file.name) for file in files]

    monkeypatch.setattr(SnapshotCursor, "_files", crafted_files)


@pytest.mark.parametrize(
    ("value", "error", "match"),
    [
        (b"\x63\x00row", SchemaNotExistError, "99"),
        (b"\x01", CorruptDataError, "no schema id"),
        (b"\x01\x00\xff", CorruptDataError, "row"),
    ],
    ids=["unknown schema", "no schema", "no row"],
)
def test_values_that_no_server_wrote_are_errors(
    connection: Any,
    path: fluss.TablePath,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    value: bytes,
    error: type[Exception],
    match: str,
) -> None:
    crafted(monkeypatch, tmp_path / "crafted", {b"key": value})
    with pytest.raises(error, match=match):
        count(connection, path)
    assert list(folder.iterdir()) == []


def test_cost_and_progress_are_logged(
    connection: Any, path: fluss.TablePath, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "fluss_client.aio.state.reader"):
        assert count(connection, path) == ROWS
    opened, ended = (record.getMessage() for record in caplog.records)
    assert f"exact at offset {ROWS}: from KV snapshot" in opened
    assert " s old) of offset" in opened
    assert f"{ROWS} rows in all" in ended


def test_snapshots_are_looked_up_once_for_all_buckets_of_a_partition(
    connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server looks up each bucket of a partition for each such request."""
    admin = connection.get_admin().result()
    path = fluss.TablePath("fluss", f"many_{os.getpid()}_{time.monotonic_ns()}")
    arrow = pa.schema([("id", pa.int64()), ("region", pa.string())])
    schema = fluss.Schema(arrow, primary_keys=["id", "region"])
    descriptor = fluss.TableDescriptor(schema, partition_keys=["region"], bucket_count=4)
    admin.create_table(path, descriptor).result()
    for region in ("a", "b"):
        admin.create_partition(path, {"region": region}).result()
    with connection.get_table(path).result().new_upsert().create_writer() as writer:
        rows = [{"id": key, "region": region} for key in range(100) for region in ("a", "b")]
        writer.write_arrow(pa.Table.from_pylist(rows, arrow))
    wait_until(
        "the snapshots",
        lambda: all(
            snapshot.snapshot_id is not None
            for region in ("a", "b")
            for snapshot in admin.list_kv_snapshots(path, region).result()
        ),
    )

    asked: list[str | None] = []
    backend = connection.core.backend
    ask = backend.list_kv_snapshots

    def counted(table: Any, partition: str | None) -> Any:
        asked.append(partition)
        return ask(table, partition)

    monkeypatch.setattr(backend, "list_kv_snapshots", counted)
    for times in (1, 2):
        assert read_table(connection, path).read_all().num_rows == 200
        assert Counter(asked) == {"a": times, "b": times}
    admin.drop_table(path).result()


@pytest.mark.parametrize("way", ["state", "log"])
def test_reads_keep_below_a_rate(
    settings: dict[str, str], connection: Any, path: fluss.TablePath, way: str
) -> None:
    def timed(more: dict[str, str]) -> float:
        with fluss.FlussConnection.create(fluss.Config(settings | more)).result() as limited:
            started = time.monotonic()
            if way == "state":
                assert count(limited, path) == ROWS
            else:
                table = limited.get_table(path).result()
                with table.new_scan().create_record_batch_log_scanner().result() as scanner:
                    scanner.subscribe_buckets({0: -2})
                    assert scanner.to_arrow().num_rows == ROWS
                # What the last answer costs, the next request would wait for.
                run_blocking(limited.core.backend.rate.ready())
            return time.monotonic() - started

    # About 85 bytes per row: 1.7 MB.
    free = timed({})
    assert timed({"scanner.bytes-per-second.max": "800kb"}) >= max(1.0, free / 2)


def test_a_remote_file_is_copied_with_its_time(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"x" * 300_000)
    os.utime(source, (1_000_000, 1_000_000))
    started = time.monotonic()
    copy_file(fs.LocalFileSystem(), str(source), target, RateLimit(1_000_000))
    assert time.monotonic() - started >= 0.3 - 0.01
    assert target.read_bytes() == source.read_bytes()
    assert target.stat().st_mtime == 1_000_000


def test_a_full_disk_is_not_called_damage(
    connection: Any, path: fluss.TablePath, folder: Path
) -> None:
    """The files are linked here, but opening them writes a little."""
    told = r"cannot open KV snapshot \d+ in .*: File too large .* Set scanner.state.folder"
    with full_disk(file_bytes_max=0), pytest.raises(StorageError, match=told):
        count(connection, path)
    assert list(folder.iterdir()) == []
    assert count(connection, path) == ROWS


def test_a_copy_on_a_full_disk(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"x" * 300_000)
    with full_disk(), pytest.raises(StorageError, match=rf"^cannot write {target}: File too large"):
        copy_file(fs.LocalFileSystem(), str(source), target, RateLimit(0))


STOPPED = """
import sys
import fluss_client as fluss
from fluss_client.engine import BlockingState, table_info
from fluss_client.errors import StorageError
connection = fluss.FlussConnection.create(fluss.Config({
    "bootstrap.servers": sys.argv[1], "scanner.state.folder": sys.argv[2],
    "scanner.state.lease": "10s",
})).result()
info = table_info(connection, sys.argv[3])
bucket = fluss.TableBucket(info.table_id, 0)
with BlockingState(connection.core, info, bucket, batch_rows=100) as state:
    batches = iter(state)
    next(batches)
    print("open", flush=True)
    sys.stdin.readline()
    try:
        for _ in batches: pass
        print("all rows")
    except StorageError as error:
        print(error)
"""


@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_process_that_outslept_its_lease_reads_no_further(
    path: fluss.TablePath, folder: Path, lake_cluster: Any
) -> None:
    arguments = [lake_cluster.info.bootstrap_servers, str(folder), str(path)]
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPED, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    process.send_signal(signal.SIGSTOP)
    let_pass(11, "longer than the lease")
    process.send_signal(signal.SIGCONT)
    told, _ = process.communicate("go on\n")
    assert "was not renewed in time" in told
    assert list(folder.iterdir()) == []


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_lease_of_a_killed_process_expires(make_cluster: Any, tmp_path: Path) -> None:
    settings = {"kv.snapshot.interval": "1s", "kv.snapshot.lease.expiration-check-interval": "1s"}
    cluster = make_cluster(config=settings)
    address = cluster.up().bootstrap_servers
    path = fluss.TablePath("fluss", "leased")
    with fluss.FlussConnection.create(
        fluss.Config({"bootstrap.servers": address})
    ).result() as connection:
        admin = connection.get_admin().result()
        schema = fluss.Schema(pa.schema([("id", pa.int64())]), primary_keys=["id"])
        admin.create_table(path, fluss.TableDescriptor(schema, bucket_count=1)).result()
        table = connection.get_table(path).result()

        def snapshot_after(number: int) -> None:
            """Write a row, and wait until a snapshot holds it."""
            with table.new_upsert().create_writer() as writer:
                writer.upsert({"id": number})
            wait_until(
                "a snapshot",
                lambda: (admin.list_kv_snapshots(path).result()[0].log_offset or 0) > number,
            )

        snapshot_after(0)
        # Later snapshots share its SST files; the others are its own.
        leased = {file for file in snapshot_files(cluster, path) if "/shared/" not in str(file)}
        process = subprocess.Popen(
            [sys.executable, "-c", STOPPED, address, str(tmp_path / "state"), str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        process.kill()
        process.communicate()
        for number in range(1, 5):
            snapshot_after(number)
        kept = leased & set(snapshot_files(cluster, path))
        assert kept, "the lease was not held at all"
        expiry = Deadline(60)
        number = 5
        while kept & set(snapshot_files(cluster, path)):
            expiry.check("the end of a lease of 10 s")
            snapshot_after(number)
            number += 1


KILLED = """
import os, sys, asyncio
import fluss_client as fluss
from fluss_client.engine import StateReader, run_blocking
connection = fluss.FlussConnection.create(
    fluss.Config({"bootstrap.servers": sys.argv[1], "scanner.state.folder": sys.argv[2]})
).result()
core = connection.core
async def read():
    info = await core.backend.get_table_info(fluss.TablePath.parse(sys.argv[3]))
    reader = StateReader(core.backend, info, fluss.TableBucket(info.table_id, 0), core.config)
    await reader.open()
    print("open", flush=True)
    await asyncio.sleep(60)
run_blocking(read())
"""


def test_the_folder_of_a_killed_process_goes_with_the_next_read(
    connection: Any, path: fluss.TablePath, folder: Path, lake_cluster: Any
) -> None:
    arguments = [lake_cluster.info.bootstrap_servers, str(folder), str(path)]
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, *arguments], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    [left] = folder.iterdir()
    assert left.name.startswith(FOLDER_PREFIX)
    assert count(connection, path) == ROWS
    assert list(folder.iterdir()) == []
