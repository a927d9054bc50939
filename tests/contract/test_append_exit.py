"""Programs that end without a flush."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.contract.tables import Tables

PROGRAM = """
import json, sys
import fluss_client as fluss
settings, path, count = json.loads(sys.argv[1])
connection = fluss.FlussConnection.create(fluss.Config(settings)).result(60)
table = connection.get_table(fluss.TablePath(*path)).result(60)
writer = table.new_append().create_writer()
for at in range(count):
    writer.append((at,))
"""


def test_rows_are_written_when_the_program_ends(tables: Tables, settings: dict[str, Any]) -> None:
    table = tables.create({"id": pa.int64()})
    path = table.get_table_path()
    arguments = [settings, [path.database_name, path.table_name], 10_000]
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, json.dumps(arguments)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert tables.log(table)["id"].to_pylist() == list(range(10_000))
