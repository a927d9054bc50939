"""What the processes of the many-process tests do. Forks of a server do it, see `tests.forked`."""

from __future__ import annotations

import itertools
import os
import sqlite3
import threading
from pathlib import Path

import pyarrow as pa

from fluss_client.backend.contract import Backend
from fluss_client.model.table import TableInfo, TablePath
from tests.embedded.helpers import append, make_table, on_loop, opened, read_rows, upsert
from tests.waiting import wait_until_async

LOG = pa.schema([("worker", pa.int32()), ("seq", pa.int32()), ("n", pa.int32())])
KEYS = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        ("worker", pa.int32()),
        ("seq", pa.int32()),
        ("pad", pa.string()),
    ]
)
KEYS_PER_WORKER = 20

# Arrow imports pandas with the first value it makes; once in the fork server is enough.
pa.array([0])


def batch_size(seq: int) -> int:
    """How many rows a worker's batch has."""
    return 1 + seq % 5


async def make_tables(path: Path) -> None:
    """The tables that the workers write to."""
    async with opened(path) as backend:
        await make_table(backend, "log", LOG)
        await make_table(backend, "keys", KEYS, ["k"])


async def tables(backend: Backend) -> tuple[TableInfo, TableInfo]:
    """Both tables."""
    log = await backend.get_table_info(TablePath("fluss", "log"))
    return log, await backend.get_table_info(TablePath("fluss", "keys"))


def write(path: str, worker: int, acks: str, rounds: int | None) -> None:
    """Append and upsert, for ever or so often; each acknowledged round is a line in `acks`."""
    on_loop(_write(Path(path), worker, acks, rounds))


async def _write(path: Path, worker: int, acks: str, rounds: int | None) -> None:
    told = os.open(acks, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    # The full setting: a kill is not a power cut, but the code path is the one that users have.
    async with opened(path, embedded__synchronous="full") as backend:
        log, keys = await tables(backend)
        writer = await backend.init_writer([log.table_path])
        for seq in itertools.count() if rounds is None else range(rounds):
            rows = [{"worker": worker, "seq": seq, "n": n} for n in range(batch_size(seq))]
            ack = await append(backend, log, rows, writer_id=writer, sequence=seq)
            assert ack.error is None, ack.error
            os.write(told, f"log {worker} {seq}\n".encode())
            numbers = [(seq + n) % KEYS_PER_WORKER for n in range(batch_size(seq))]
            changed = [
                {"k": worker * 1000 + n, "worker": worker, "seq": seq, "pad": "x" * 50}
                for n in numbers
            ]
            deletes = [seq % 7 == 0 and n % 3 == 0 for n in numbers]
            ack = await upsert(backend, keys, changed, deletes, writer_id=writer, sequence=seq)
            assert ack.error is None, ack.error
            os.write(told, f"keys {worker} {seq}\n".encode())
    os.close(told)


def read_until(path: str, rows_wanted: int) -> None:
    """Follow the log until it has so many rows; every look must show whole batches."""
    on_loop(_read_until(Path(path), rows_wanted))


async def _read_until(path: Path, rows_wanted: int) -> None:
    async with opened(path) as backend:
        log, _ = await tables(backend)

        async def is_whole() -> bool:
            rows = await read_rows(backend, log)
            counts: dict[tuple[int, int], int] = {}
            for row in rows:
                place = (row["worker"], row["seq"])
                counts[place] = counts.get(place, 0) + 1
            assert all(count == batch_size(seq) for (_, seq), count in counts.items())
            return len(rows) >= rows_wanted

        await wait_until_async("all rows", is_whole, 300, pause_s=0.01)


def open_only(path: str) -> None:
    """Open the directory, and close it."""

    async def run() -> None:
        async with opened(Path(path)) as backend:
            assert await backend.list_databases() == ["fluss"]

    on_loop(run())


def hold_lock(path: str, mark: str) -> None:
    """Write something, do not commit it, and wait to be killed."""

    async def run() -> None:
        async with opened(Path(path)) as backend:

            def hold(connection: sqlite3.Connection) -> None:
                connection.execute("DELETE FROM tbl")
                Path(mark).touch()
                threading.Event().wait()

            await backend._write(hold)

    on_loop(run())
