"""A coordinator that dies while a key table is tiered or its lake maintained.

It stores the offsets of a lake snapshot, takes the commit after Iceberg's, and gives tables to
workers; another one that starts knows nothing of a worker's lease. Whenever it dies, the lake
equals the table at the offsets that Fluss knows, and the next round goes on.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fluss_client import Config, FlussConnection
from fluss_client.errors import FlussError
from fluss_client.testing import LocalCluster
from fluss_orchestrate.core.lake import (
    MaintenanceSettings,
    TieringWorker,
    lake_status,
    maintain_lake,
    tier_table,
)
from fluss_orchestrate.core.lake.known_lake import KnownLake
from tests.faults.recording import FaultRecorder
from tests.fix_either import own_database
from tests.orchestrate.lake.key_programs import VARIANTS, KeyTable, make_key_table
from tests.waiting import Deadline, let_pass

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

STAGES = ("preparing", "prepared", "between", "committing", "told")
"""When it dies: before or after it stored the offsets, after Iceberg's commit, while it takes the
commit to Fluss, and after that."""
WORKS = ("tier", "maintain", "worker")
COORDINATOR = "coordinator"
COMMIT_S_MAX = 0.02
"""About how long a commit to Fluss takes."""
PATIENT = {"retry-timeout": "120s", "request-timeout": "20s"}
IMPATIENT = {"retry-timeout": "2s", "request-timeout": "2s"}
WORKER_DEADLINE_S = 60.0
NOW = MaintenanceSettings(snapshot_age_ms=0, keep_snapshots=1)


class Death:
    """Kills the coordinator once, at a stage of a round."""

    def __init__(self, cluster: LocalCluster, stage: str, comes_back: bool, chance: Any) -> None:
        self._cluster = cluster
        self._stage = stage
        self._comes_back = comes_back
        self._chance = chance
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self.struck = False

    def _strike(self) -> None:
        with self._lock:
            if self.struck:
                return
            self.struck = True
        self._cluster.kill(COORDINATOR)
        if self._comes_back:
            self._begin(lambda: self._cluster.start(COORDINATOR))

    def _strike_soon(self) -> None:
        def strike() -> None:
            let_pass(self._chance.uniform(0, COMMIT_S_MAX), "it may die at any moment")
            self._strike()

        self._begin(strike)

    def _begin(self, work: Callable[[], object]) -> None:
        thread = threading.Thread(target=work)
        self._threads.append(thread)
        thread.start()

    @contextmanager
    def waiting(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """The coordinator dies at its stage inside this block, and is there again after it."""
        name = "prepare" if self._stage in ("preparing", "prepared") else "tell"
        real = getattr(KnownLake, name)

        def call(*arguments: Any) -> Any:
            if self._stage in ("preparing", "between"):
                self._strike()
            elif self._stage == "committing":
                self._strike_soon()
            answer = real(*arguments)
            if self._stage in ("prepared", "told"):
                self._strike()
            return answer

        try:
            with monkeypatch.context() as patched:
                patched.setattr(KnownLake, name, call)
                yield
        finally:
            for thread in self._threads:  # one that strikes appends the one that starts it again
                thread.join()
            self._cluster.start(COORDINATOR)


def work_on(connection: FlussConnection, table: KeyTable, work: str, death: Death) -> None:
    """Do what the coordinator dies in."""
    if work == "tier":
        tier_table(connection, table.path, allow_tiering=True)
    elif work == "maintain":
        maintain_lake(connection, table.path, settings=NOW)
    else:
        worker = TieringWorker(connection, allow_tiering=True)
        give_up = Deadline(WORKER_DEADLINE_S)
        while not death.struck and not give_up.has_passed:
            if worker.run_once() is None:
                let_pass(0.1, "nothing is due, and a worker does not storm the coordinator")


def check(table: KeyTable, before: dict[Any, Any]) -> int:
    """Return how many reads are wrong after a death, and after the next round."""
    if lake_status(table.connection, table.path).lag_offsets:
        wrong = table.rows(read="lake") != before
    else:
        wrong = table.rows(read="lake") != table.model
    wrong += table.rows(read="union") != table.model
    table.upsert([len(table.rounds) % 24])
    table.tier()
    wrong += table.rows(read="lake") != table.model
    wrong += table.rows() != table.model
    return int(wrong)


def test_the_coordinator_dies(
    make_cluster: Callable[..., LocalCluster],
    monkeypatch: pytest.MonkeyPatch,
    record_fault: FaultRecorder,
    fault_seed: int,
) -> None:
    cluster = make_cluster(tablet_servers=1, lake="iceberg", config={"kv.snapshot.interval": "1s"})
    servers = cluster.up().bootstrap_servers
    chance = random.Random(fault_seed)
    deaths: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    wrong = 0

    def connected(**more: str) -> FlussConnection:
        return FlussConnection.create(Config({"bootstrap.servers": servers, **more})).result()

    with (
        connected(**PATIENT) as connection,
        connected(**IMPATIENT) as impatient,
        own_database(connection, "deaths") as database,
    ):
        # Made before the first death: a new coordinator and this process share a file of SQLite,
        # which refuses a server's table when both write.
        tables = {
            freshness: itertools.cycle(
                [
                    make_key_table(
                        connection,
                        database,
                        name + freshness,
                        freshness=freshness,
                        **VARIANTS[name],
                    )
                    for name in ("plain", "partitioned", "wal")
                ]
            )
            for freshness in ("1d", "1s")
        }
        for work, stage, comes_back in itertools.product(WORKS, STAGES, (True, False)):
            table = next(tables["1s" if work == "worker" else "1d"])
            table.upsert([chance.randrange(24) for _ in range(12)])
            table.tier()
            table.upsert([chance.randrange(24) for _ in range(12)])
            table.delete(sorted({chance.randrange(24) for _ in range(3)}))
            if work == "maintain":
                table.tier()
            before = dict(table.in_lake)
            death = Death(cluster, stage, comes_back, chance)
            with death.waiting(monkeypatch):
                try:
                    work_on(connection if comes_back else impatient, table, work, death)
                except FlussError as error:
                    refused[type(error).__name__] += 1
            deaths[f"{work}, {stage}"] += death.struck
            failed = check(table, before)
            if failed:
                print("wrong after", work, stage, comes_back, "seed", fault_seed)
            wrong += failed
    print("seed", fault_seed, dict(deaths), "refused", dict(refused))
    record_fault(
        "kill -9 of the coordinator while a key table is tiered or maintained",
        deaths.total(),
        lost=wrong,
        seed=fault_seed,
        stages=deaths,
    )
