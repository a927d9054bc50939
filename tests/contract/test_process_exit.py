"""What becomes of rows that nobody flushed when the interpreter exits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pyarrow as pa

import fluss_client as fluss
from fluss_client.testing import LocalCluster
from fluss_client.wire import apis
from tests.contract.loopback import OneTable, is_silent, serving
from tests.contract.tables import Tables, done

PROGRAM = """
import json, sys
import fluss_client as fluss
settings, path, how, count = json.loads(sys.argv[1])
connection = fluss.FlussConnection.create(fluss.Config(settings)).result()
table = connection.get_table(fluss.TablePath(*path)).result()
writer = table.new_append().create_writer()
for i in range(count):
    writer.append((i,))
if how == "dropped":
    del writer, table, connection
elif how == "exit":
    sys.exit(3)
elif how == "async":
    import asyncio
    from fluss_client import aio
    async def main():
        own = await aio.FlussConnection.create(fluss.Config(settings))
        again = (await own.get_table(fluss.TablePath(*path))).new_append().create_writer()
        again.append((count,))
    asyncio.run(main())
print("the program is over")
"""


# How the program ends → its exit status, and how many rows are there afterwards.
ENDINGS = {
    "dropped": (0, 50),
    "exit": (3, 50),
    "async": (0, 51),
}


def _start(settings: dict[str, Any], path: fluss.TablePath, how: str, count: int = 50) -> Any:
    place = (path.database_name, path.table_name)
    request = json.dumps([settings, place, how, count])
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, request],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_rows_are_there_after_the_exit(plain_cluster: LocalCluster) -> None:
    settings = {"bootstrap.servers": plain_cluster.info.bootstrap_servers}
    with done(fluss.FlussConnection.create(fluss.Config(settings))) as connection:
        admin = done(connection.get_admin())
        database = f"exit_{os.getpid()}"
        done(admin.create_database(database))
        tables = Tables(connection, admin, database)
        made = {how: tables.create({"id": pa.int32()}) for how in ENDINGS}
        started = {how: _start(settings, made[how].get_table_path(), how) for how in ENDINGS}
        for how, process in started.items():
            output, complaints = process.communicate()
            status, rows = ENDINGS[how]
            assert process.returncode == status, complaints
            assert sorted(tables.log(made[how])["id"].to_pylist()) == list(range(rows)), how
            if status == 0:
                assert (output, complaints) == ("the program is over\n", ""), how
        done(admin.drop_database(database, cascade=True))


def test_rows_that_are_lost_are_counted_and_change_the_status() -> None:
    with serving(OneTable(apis.PRODUCE_LOG, is_silent)) as address:
        settings = {
            "bootstrap.servers": address,
            "request-timeout": "500ms",
            "retry-timeout": "500ms",
        }
        process = _start(settings, fluss.TablePath("db", "t"), "forgets", 7)
        output, complaints = process.communicate()
    assert process.returncode not in (0, 1), "a status that says so"
    assert output == "the program is over\n"
    assert "7 rows" in complaints
    assert "db.t" in complaints
    assert "lost" in complaints
