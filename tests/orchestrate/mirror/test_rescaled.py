"""Mirrors of tables whose partitions have different bucket counts, and their verification."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from fluss_client import FlussConnection, TablePath
from fluss_orchestrate.core.mirror.table import mirror_table
from fluss_orchestrate.core.mirror.verification import verify_mirror
from fluss_orchestrate.core.sinks import FlussTableSink
from tests.orchestrate.mirror.memory_mirror import MemoryMirror
from tests.orchestrate.mirror.test_verification import make_table, row
from tests.orchestrate.rescaler import Rescaler

SEED = 20261118


def write(connection: FlussConnection, path: TablePath, days: list[str], turn: int) -> None:
    chance = random.Random(SEED + turn)
    table = connection.get_table(path).result()
    found = [row(n, turn, chance) | {"day": days[n % len(days)]} for n in range(90)]
    rows = pa.Table.from_pylist(found, schema=table.arrow_schema)
    with table.new_upsert().create_writer() as writer:
        writer.write_arrow(rows)
        writer.flush().result()


@pytest.mark.parametrize("target", ["memory", "fluss"])
def test_a_mirror_follows_a_rescaled_table(
    mirror_connection: FlussConnection, mirror_database: str, target: str
) -> None:
    path = TablePath(mirror_database, f"source_{target}")
    make_table(mirror_connection, path, partitioned=True)
    rescaler = Rescaler(mirror_connection, path, "20260101")
    sink: Any = MemoryMirror()
    if target == "fluss":
        sink = FlussTableSink(
            mirror_connection,
            TablePath(mirror_database, "target"),
            create_from=mirror_connection,
            create_partitions=True,
            ledger=TablePath(mirror_database, "ledger"),
            ledger_replicas=1,
            form="mirror",
        )
    days = ["20260101", "20260102"]
    for turn, count in enumerate((7, 1)):
        rescaler.rescale(count)
        days.append(f"2026020{turn + 1}")
        rescaler.add(days[-1])
        write(mirror_connection, path, days, turn)
        mirror_table(mirror_connection, path, sink, f"run {turn}", checkpoint=str(path))
        assert verify_mirror(mirror_connection, path, sink, str(path)).equal
