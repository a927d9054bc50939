"""A coordinator that dies in the middle of a round of tiering a key table, on a real cluster.

The writer goes on while the coordinator is down. After each round, the lake holds exactly the rows
that the table had at the offsets which Fluss knows of the lake, whether the round failed or not.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from fluss_client import Config, FlussConnection
from fluss_client.errors import FlussError
from fluss_client.testing import LocalCluster
from fluss_orchestrate.core.lake import TieringWorker, data_files, lake_status, tiering
from fluss_orchestrate.core.lake.errors import LakeError, TieringFencedError
from fluss_orchestrate.core.lake.known_lake import KnownLake
from tests.faults.recording import FaultRecorder
from tests.orchestrate.lake.key_programs import KeyTable, Model, make_key_table

DEATHS_PER_STAGE = 3
DOWN_S = (0.2, 4.0)
ROUND_ATTEMPTS_MAX = 200
GO_ON_TIMEOUT_S = 120.0
STAGES: dict[str, tuple[tuple[Any, str], ...]] = {
    "files are written": ((data_files.DataFileWriter, "_flush"),),
    "before the offsets are stored": ((KnownLake, "prepare"),),
    "before Iceberg's commit": ((tiering, "commit_row_delta"), (tiering, "commit_rewrite")),
    "between the two commits": ((KnownLake, "tell"),),
}


class Watched:
    """A key table with one bucket per partition, and the rows of each at every end of its log."""

    def __init__(self, table: KeyTable, chance: random.Random) -> None:
        self.table = table
        self._chance = chance
        self._then: dict[tuple[str | None, int], Model] = {}
        self.remember()

    def write(self) -> None:
        """Upsert and delete some rows."""
        self.upsert()
        self.remember()
        self.table.delete(sorted({self._chance.randrange(24) for _ in range(3)}))
        self.remember()

    def upsert(self) -> None:
        """Upsert some rows; `remember` comes before the next write."""
        self.table.upsert([self._chance.randrange(24) for _ in range(10)])

    def remember(self) -> None:
        """Note which rows there are at the present ends of the log."""
        status = lake_status(self.table.connection, self.table.path, times=False)
        for bucket in status.buckets:
            self._then[bucket.partition, bucket.latest] = {
                key: row for key, row in self.table.model.items() if row[1] == bucket.partition
            }

    def check(self) -> bool:
        """Whether the lake holds the rows of its own offsets, and lake and changelog hold all."""
        self.remember()
        status = lake_status(self.table.connection, self.table.path, times=False)
        if self.table.rows(read="union") != self.table.model:
            return False
        if status.snapshot_id is None:
            return True
        wanted: Model = {}
        for bucket in status.buckets:
            wanted |= self._then[bucket.partition, bucket.lake_offset or 0]
        return self.table.rows(read="lake") == wanted


class Deaths:
    """Kills the coordinator at a stage of the next round; it comes back a moment later."""

    def __init__(self, cluster: LocalCluster, watched: Watched, chance: random.Random) -> None:
        self.struck: Counter[str] = Counter()
        self._cluster = cluster
        self._watched = watched
        self._chance = chance
        self._returning: threading.Thread | None = None

    def at(self, stage: str, patched: pytest.MonkeyPatch) -> None:
        """Let the next round meet the death of the coordinator at this stage."""
        for owner, name in STAGES[stage]:
            patched.setattr(owner, name, self._striking(getattr(owner, name), stage))

    def _striking(self, real: Callable[..., Any], stage: str) -> Callable[..., Any]:
        def strike(*args: Any, **more: Any) -> Any:
            if self._returning is None:
                self.strike(stage)
            return real(*args, **more)

        return strike

    def strike(self, stage: str) -> None:
        """Kill the coordinator, and begin to start it again."""
        self._cluster.kill("coordinator")
        self.struck[stage] += 1
        self._watched.upsert()
        down_s = self._chance.uniform(*DOWN_S)
        self._returning = threading.Thread(target=self._return, args=(down_s,))
        self._returning.start()

    def _return(self, down_s: float) -> None:
        time.sleep(down_s)
        self._cluster.up()

    def is_over(self) -> bool:
        """Wait until the coordinator is back; whether it was killed at all."""
        returning, self._returning = self._returning, None
        if returning is None:
            return False
        returning.join()
        return True


def until_done(step: Callable[[], Any]) -> None:
    """Repeat a round that failed because of the coordinator, or that had nothing to take."""
    deadline = time.monotonic() + GO_ON_TIMEOUT_S
    for _ in range(ROUND_ATTEMPTS_MAX):
        try:
            if step() is not None:
                return
        except FlussError as error:
            if isinstance(error, LakeError) and not isinstance(error, TieringFencedError):
                raise
            print("a round failed:", type(error).__name__, error)
        assert time.monotonic() < deadline, "tiering does not go on"
        time.sleep(0.2)
    raise AssertionError("tiering does not go on")


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("way", ["tier_table", "worker"])
def test_the_coordinator_dies_while_key_tables_are_tiered(
    make_cluster: Callable[..., LocalCluster], record_fault: FaultRecorder, way: str
) -> None:
    cluster = make_cluster(lake="iceberg", config={"kv.snapshot.interval": "1s"})
    address = cluster.up().bootstrap_servers
    chance = random.Random(2022)
    config = Config({"bootstrap.servers": address, "request-timeout": "10s"})
    wrong = 0
    with FlussConnection.create(config).result(60) as connection:
        table = make_key_table(connection, "fluss", partitioned=True, buckets=1, freshness="1s")
        watched = Watched(table, chance)
        deaths = Deaths(cluster, watched, chance)
        worker = TieringWorker(connection, allow_tiering=True)
        step = table.tier if way == "tier_table" else worker.run_once
        for number in range(DEATHS_PER_STAGE * len(STAGES)):
            stage = list(STAGES)[number % len(STAGES)]
            watched.write()
            with pytest.MonkeyPatch.context() as patched:
                deaths.at(stage, patched)
                until_done(step)
            assert deaths.is_over(), f"the round did not come to: {stage}"
            wrong += not watched.check()
            # Rows that come now are taken by a round that nothing disturbs.
            watched.write()
            until_done(lambda: _covered(table, step))
            wrong += not watched.check()
    record_fault(
        f"kill -9 of the coordinator while a key table is tiered ({way})",
        deaths.struck.total(),
        lost=wrong,
        seed=2022,
        stages=deaths.struck,
    )


def _covered(table: KeyTable, step: Callable[[], Any]) -> bool | None:
    """Make a round, and tell whether the lake has everything now."""
    step()
    covered = lake_status(table.connection, table.path).lag_offsets == 0
    return covered or None
