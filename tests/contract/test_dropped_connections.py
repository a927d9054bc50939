"""Connections that nobody closed: their sockets, files and threads go with their last user."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

import fluss_client as fluss
from tests.contract.tables import Tables

PROGRAM = """
import asyncio, gc, json, os, sys, threading, time
import fluss_client as fluss
from fluss_client import aio

ROUNDS = 2
settings, path = json.loads(sys.argv[1])
PATH = fluss.TablePath(*path)


def held():
    # (SQLite keeps files open while another connection of this process has the same one.)
    # Pools belong to the process and grow by chance.
    names = [thread.name for thread in threading.enumerate()]
    own = [name for name in names if not name.startswith(("asyncio_", "fluss-codec"))]
    return len(os.listdir("/proc/self/fd")), len(own)


def connect():
    return fluss.FlussConnection.create(fluss.Config(settings)).result()


def idle():
    connect()


def used():
    table = connect().get_table(PATH).result()
    for _ in range(2):  # the second one has another connection to the server
        writer = table.new_upsert().create_writer()
        writer.upsert((1, "a")).wait().result()
    assert table.new_lookup().create_lookuper().lookup((1,)).result() is not None
    scanner = table.new_scan().create_log_scanner().result()
    scanner.subscribe(0, -2)
    assert scanner.poll(30_000).count()
    scanner.poll(1)


async def on_a_loop():
    connection = await aio.FlussConnection.create(fluss.Config(settings))
    table = await connection.get_table(PATH)
    writer = table.new_upsert().create_writer()
    writer.upsert((2, "b"))
    await writer.flush()
    scanner = await table.new_scan().create_log_scanner()
    scanner.subscribe(0, -2)
    assert (await scanner.poll(30_000)).count()


def drop(use):
    use()  # what stays for the process is there now
    gc.collect()
    before = held()
    for _ in range(ROUNDS):
        use()
    give_up_at = time.monotonic() + 30
    while any(now > then for now, then in zip(held(), before)):
        assert time.monotonic() < give_up_at, (use, before, held())
        time.sleep(0.02)
        gc.collect()


# The first use of each kind makes the threads that the process keeps.
for use in (used, lambda: asyncio.run(on_a_loop())):
    use()
for use in (idle, used, lambda: asyncio.run(on_a_loop())):
    drop(use)

table = connect().get_table(PATH).result()
writer = table.new_upsert().create_writer()
del table
gc.collect()
writer.upsert((3, "its connection is gone")).wait().result()

orphan = [connect()]
mine = os.fork()
if mine == 0:
    orphan.clear()
    gc.collect()
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(mine, 0)[1]) == 0
assert orphan[0].get_table(PATH).result().has_primary_key()
writer.upsert((4, "after the fork")).wait().result()
writer.close()
print("done")
"""


def test_what_nobody_uses_any_more_is_given_back(tables: Tables, settings: dict[str, Any]) -> None:
    schema = fluss.Schema(pa.schema([("id", pa.int32()), ("v", pa.string())]), primary_keys=["id"])
    table = tables.create(schema)
    path = table.get_table_path()
    arguments = json.dumps([settings, [path.database_name, path.table_name]])
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, arguments],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stderr, ended.stdout) == (0, "", "done\n")
    for key, value in ((3, "its connection is gone"), (4, "after the fork")):
        assert tables.lookup(table, (key,)) == {"id": key, "v": value}
