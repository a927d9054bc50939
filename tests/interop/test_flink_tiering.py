"""Fluss's tiering service on Flink and this project's worker share a cluster: read row by row.

Both ask the coordinator for tables, which gives each round to one of them. So rounds of one follow
those of the other, in an order that nobody chooses, with maintenance in between and beside them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fluss_client import Config, FlussConnection
from fluss_client.engine import table_info
from fluss_orchestrate.core.lake import (
    MaintenanceSettings,
    TieringWorker,
    lake_status,
    maintain_lake,
)
from fluss_orchestrate.core.lake.known_lake import newest_tiered
from tests.fix_either import own_database
from tests.interop.flink_service import FlinkService
from tests.orchestrate.lake.key_programs import FIRST_ROW, KeyTable, make_key_table
from tests.waiting import Deadline, let_pass

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800), pytest.mark.usefixtures("only_tierer")]

SEED = 20261119
ROUNDS = 4
"""How many rounds each of the two makes at least."""
ROUNDS_MAX = 80
NEW_KEYS = 40
"""So many keys of each round have no row before; more than enough for one in each bucket."""
MAINTAIN_EVERY = 3
TIER_DEADLINE_S = 180.0
"""The coordinator gives a table to another worker two minutes after the last heartbeat."""
NOW = MaintenanceSettings(snapshot_age_ms=0, keep_snapshots=1)
LAKE_PREFIX = "table.datalake.iceberg."
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "partitioned": {"partitioned": True},
    "first_row": {"properties": FIRST_ROW},
}


@pytest.fixture
def connection(lake_cluster: Any) -> Iterator[FlussConnection]:
    config = Config({"bootstrap.servers": lake_cluster.info.bootstrap_servers})
    with FlussConnection.create(config).result() as made:
        yield made


def flink_service(table: KeyTable, bootstrap_servers: str, folder: Path) -> FlinkService:
    properties = table_info(table.connection, table.path).properties
    lake = {
        name.removeprefix("table."): value
        for name, value in properties.items()
        if name.startswith(LAKE_PREFIX)
    }
    return FlinkService(bootstrap_servers, lake, folder)


def author(table: KeyTable) -> str:
    """Who made the newest snapshot of tiering."""
    newest = newest_tiered(table.iceberg())
    assert newest is not None
    assert newest.summary is not None
    # Iceberg's Java says its version in every snapshot.
    return "ours" if newest.summary["iceberg-version"] is None else "flink"


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_both_services_at_once(
    connection: FlussConnection, lake_cluster: Any, tmp_path: Path, variant: str
) -> None:
    chance = random.Random(SEED)
    servers = lake_cluster.info.bootstrap_servers
    with own_database(connection, "flink") as database:
        table = make_key_table(connection, database, freshness="1s", **VARIANTS[variant])
        worker = TieringWorker(connection, allow_tiering=True)
        rounds: Counter[str] = Counter()
        with flink_service(table, servers, tmp_path).running() as check_service:
            for number in range(ROUNDS_MAX):
                table.upsert([chance.randrange(24) for _ in range(15)])
                table.delete(sorted({chance.randrange(24) for _ in range(4)}))
                # Flink waits for a record at the end of a range. A batch that changes nothing has
                # none, so that each bucket gets keys that are new.
                table.upsert(list(range(24 + NEW_KEYS * number, 24 + NEW_KEYS * (number + 1))))
                if number % MAINTAIN_EVERY == MAINTAIN_EVERY - 1:
                    maintain_lake(connection, table.path, settings=NOW)
                deadline = Deadline(TIER_DEADLINE_S)
                while lake_status(connection, table.path).lag_offsets:
                    check_service()
                    deadline.check("the table in the lake")
                    # Flink begins slowly, and has the first round to itself.
                    if number and worker.run_once() is None:
                        let_pass(0.1, "nothing is due for us yet")
                table.in_lake = dict(table.model)
                rounds[author(table)] += 1
                table.check_lake_files()
                table.check()
                if min(rounds["flink"], rounds["ours"]) >= ROUNDS:
                    break
        print("seed", SEED, "rounds", dict(rounds))
        assert min(rounds["flink"], rounds["ours"]) >= ROUNDS, rounds
        table.tier()
        maintain_lake(connection, table.path, settings=NOW)
        table.check()
