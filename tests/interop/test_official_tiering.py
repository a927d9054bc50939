"""Key tables that Fluss's own Java lake writer and this project tier by turns: read row by row.

The Java program writes with `IcebergLakeTieringFactory` and commits with the official committer, as
the Flink tiering service does in each round. (Flink itself is not started.) Fluss is told of these
rounds by this project's next one, which finds a snapshot that Fluss does not know.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fluss_client import Config, FlussConnection
from fluss_client.engine import async_connection, run_blocking, table_info
from fluss_client.testing.artifacts import ensure_jars
from fluss_client.testing.jars import FLUSS_VERSION, ICEBERG_JARS, SERVER_JARS
from fluss_client.testing.java import find_java
from fluss_orchestrate.core.incremental.planning.observation import observe_table
from fluss_orchestrate.core.lake import MaintenanceSettings, maintain_lake
from fluss_orchestrate.core.lake.known_lake import (
    COMMIT_USER,
    COMMIT_USER_KEY,
    OFFSETS_KEY,
    KnownLake,
)
from tests.fix_either import own_database
from tests.interop.java_peer import CLIENT_JARS
from tests.orchestrate.lake.key_programs import FIRST_ROW, KeyTable, make_key_table

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

SOURCE = Path(__file__).parent / "java" / "OfficialTiering.java"
SEED = 20261118
LAKE_PREFIX = "table.datalake.iceberg."
NOW = MaintenanceSettings(snapshot_age_ms=0, keep_snapshots=1)
Tier = Callable[[KeyTable], None]


@pytest.fixture
def connection(lake_cluster: Any) -> Iterator[FlussConnection]:
    config = Config({"bootstrap.servers": lake_cluster.info.bootstrap_servers})
    with FlussConnection.create(config).result() as made:
        yield made


@pytest.fixture
def tier_officially(connection: FlussConnection, lake_cluster: Any) -> Tier:
    """One round by the official classes."""
    java = find_java()
    jars = ensure_jars([CLIENT_JARS[FLUSS_VERSION], *ICEBERG_JARS, *SERVER_JARS[1:]], java)

    def tier(table: KeyTable) -> None:
        info = table_info(connection, table.path)
        view = run_blocking(observe_table(async_connection(connection), table.path))
        lake = KnownLake(connection, info)
        known = lake.known()
        starts = {place: max(0, known.offsets.get(place, 0)) for place in view.latest}
        asked = {
            "bootstrap": lake_cluster.info.bootstrap_servers,
            "database": table.path.database_name,
            "table": table.path.table_name,
            "lake": {
                key.removeprefix(LAKE_PREFIX): value
                for key, value in info.properties.items()
                if key.startswith(LAKE_PREFIX)
            },
            "ranges": [
                [partition, view.partitions.get(partition), bucket, starts[partition, bucket], stop]
                for (partition, bucket), stop in view.latest.items()
                if stop > starts[partition, bucket]
            ],
            "summary": {COMMIT_USER_KEY: COMMIT_USER, OFFSETS_KEY: lake.prepare(view.latest)},
        }
        done = subprocess.run(
            java.command(
                "-Xmx512m",
                "--add-opens=java.base/java.nio=ALL-UNNAMED",
                "-cp",
                os.pathsep.join(map(str, jars)),
                str(SOURCE),
                json.dumps(asked),
            ),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-6000:]
        table.in_lake = dict(table.model)

    return tier


@pytest.mark.parametrize(
    "options",
    [{}, {"partitioned": True}, {"properties": FIRST_ROW}],
    ids=["plain", "partitioned", "first_row"],
)
def test_rounds_by_turns(
    connection: FlussConnection, tier_officially: Tier, options: dict[str, Any]
) -> None:
    """Official, ours, official, a compaction, ours: right after every round."""
    chance = random.Random(SEED)
    with own_database(connection, "official") as database:
        table = make_key_table(connection, database, **options)

        def change() -> None:
            table.upsert([chance.randrange(24) for _ in range(15)])
            table.delete(sorted({chance.randrange(24) for _ in range(4)}))
            table.upsert([chance.randrange(24) for _ in range(5)])

        for who in ("official", "ours", "official", "compaction", "ours"):
            print("round", who, flush=True)
            if who == "compaction":
                table.tier()  # Fluss is told of the official round first
                maintain_lake(connection, table.path, settings=NOW)
            else:
                change()
                if who == "ours":
                    table.tier()
                    table.check()
                else:
                    tier_officially(table)
            table_now = table.iceberg()
            assert table_now.current_snapshot() is not None
            table.check_lake_files()
            if who == "official":
                table.tier()  # finds the snapshot, and has nothing to add
                table.check()
