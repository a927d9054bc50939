"""Programs that end without a flush."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.contract.tables import Tables

TOLD = """
import json, sys
import fluss_client as fluss
settings, path = json.loads(sys.argv[1])
connection = fluss.FlussConnection.create(fluss.Config(settings)).result()
table = connection.get_table(fluss.TablePath(*path)).result()
writer = table.new_append().create_writer()
connection.get_admin().result().drop_table(fluss.TablePath(*path)).result()
try:
    writer.append((1,)).wait().result()
except fluss.FlussError as error:
    print(type(error).__name__)
writer.flush().result()
writer.close()
"""

PROGRAM = """
import json, sys
import fluss_client as fluss
settings, path, count = json.loads(sys.argv[1])
connection = fluss.FlussConnection.create(fluss.Config(settings)).result()
table = connection.get_table(fluss.TablePath(*path)).result()
writer = table.new_append().create_writer()
for at in range(count):
    writer.append((at,))
"""


def test_rows_are_written_when_the_program_ends(tables: Tables, settings: dict[str, Any]) -> None:
    table = tables.create({"id": pa.int64()})
    path = table.get_table_path()
    arguments = [settings, [path.database_name, path.table_name], 10_000]
    ended = _run(PROGRAM, arguments)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert tables.log(table)["id"].to_pylist() == list(range(10_000))


def test_an_error_that_was_told_is_over(tables: Tables, settings: dict[str, Any]) -> None:
    """Neither `flush` nor `close` raises it again, and the process ends with status 0."""
    path = tables.create({"id": pa.int64()}).get_table_path()
    ended = _run(TOLD, [settings, [path.database_name, path.table_name]])
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "TableNotExistError\n"


def _run(program: str, arguments: list[Any]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program, json.dumps(arguments)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
