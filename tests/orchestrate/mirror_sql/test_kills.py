"""Mirrors through kills at every stage, resets and racing runs: equal to the model every time."""

from __future__ import annotations

import collections
import itertools
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fluss_client import FlussConnection, TablePath
from fluss_orchestrate.core.checkpoints.fluss_store import FlussCheckpointStore
from fluss_orchestrate.core.mirror.table import mirror_scan
from tests.contract.tables import Tables
from tests.faults.recording import KILLS_PER_PART, FaultRecorder, parts_of
from tests.orchestrate.incremental.test_crashes import KILLED, Crashers
from tests.orchestrate.mirror_sql.keyed_model import BUCKETS_MAX, KeyedModel
from tests.orchestrate.mirror_sql.mirror_crasher import FLUSS_STAGES, SQL_STAGES
from tests.orchestrate.mirror_sql.mirrors import (
    MirrorSinks,
    check_mirror,
    fluss_mirror,
    sql_mirror,
)

SEED = 20261118
KILLS = 12
SQL_KILLS, FLUSS_KILLS = 100, 200
"""In the long form: per database and kind of source, so that SQL has 200 on each kind of source."""
RUNS_PER_KILL_MAX = 20
EMBEDDED_FIRST = ("embedded", pytest.param("cluster", marks=pytest.mark.long))
RACERS, TURNS, TURNS_LONG = 8, 2, 6


def combinations(*default: str) -> list[Any]:
    """All pairs of a source and a database; all but one belong to the long form."""
    pairs = itertools.product(("embedded", "cluster"), ("sqlite", "postgres"))
    return [
        pytest.param(*pair, marks=() if pair == default else pytest.mark.long) for pair in pairs
    ]


@pytest.fixture(scope="module")
def crashers() -> Iterator[Crashers]:
    made = Crashers("tests.orchestrate.mirror_sql.mirror_crasher")
    yield made
    made.close()


class Killing:
    """Runs of one mirror that are killed, while its table is changed in between."""

    def __init__(
        self, tables: Tables, address: str, crashers: Crashers, long_form: bool, part: int
    ) -> None:
        self.seed = SEED + part
        self.rng = random.Random(self.seed)
        self.model = KeyedModel(tables, self.rng, partitioned=True)
        self.store = FlussCheckpointStore(tables.connection, tables.database, "kills", replicas=1)
        self.tables = tables
        self.crashers = crashers
        self.spec = {
            "config": {"bootstrap.servers": address},
            "table": self.model.path,
            "database": tables.database,
            "name": "kills",
        }
        self.wanted = KILLS_PER_PART if long_form else KILLS
        self.kills: collections.Counter[str] = collections.Counter()

    def rescale(self, place: str) -> None:
        """Let the next partitions of a mirror in Fluss have another count, where that works."""
        if "://" not in place and self.tables.connection.backend.capabilities.rescaling:
            self.tables.admin.alter_table(
                TablePath.parse(place), bucket_count=self.rng.randrange(1, BUCKETS_MAX + 1)
            ).result()

    def run(self, sink: MirrorSinks, known: tuple[str, ...], place: str) -> None:
        """Kill runs until there were enough; the mirror equals the model after each."""
        rng, model, number = self.rng, self.model, 0
        spec = self.spec | {"sink": place, "form": "mirror"}
        runs_left = self.wanted * RUNS_PER_KILL_MAX
        while sum(self.kills.values()) < self.wanted or not all(self.kills[s] for s in known):
            runs_left -= 1
            assert runs_left > 0, f"some stages were never reached: {self.kills}"
            # A run whose plan was made before does not reach every stage.
            stage = rng.choice([s for s in known if not self.kills[s]] or known)
            head = self.store.head("kills")
            # A plan that is pending reads the partitions that it names.
            model.keeps_days = head is not None and head.state.pending is not None
            for _ in range(rng.randrange(1, 4)):
                model.step()
            number += rng.random() < 0.7
            run = spec | {"run_key": f"run-{number}", "stage": stage, "seed": rng.random()}
            if rng.random() < 0.3:
                run["max_offsets"] = rng.randrange(1, 12)
            code = self.crashers.run(run)
            assert code in (0, KILLED), stage
            self.kills[stage] += code == KILLED
            check_mirror(sink, "kills", model)
            self.rescale(place)
            if rng.random() < 0.1:
                reset(self.tables.connection, self.store, model)
        assert self.crashers.run(spec | {"run_key": "last", "stage": "", "seed": 0}) == 0
        assert check_mirror(sink, "kills", model)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", parts_of(SQL_KILLS))
@pytest.mark.parametrize(
    ("fluss_kind", "sql_url"), combinations("cluster", "postgres"), indirect=True
)
def test_sql_equal_after_every_kill(
    tables: Tables,
    fluss_address: str,
    fluss_kind: str,
    sql_url: str,
    crashers: Crashers,
    long_form: bool,
    part: int,
    record_fault: FaultRecorder,
) -> None:
    killing = Killing(tables, fluss_address, crashers, long_form, part)
    killing.run(sql_mirror(sql_url), SQL_STAGES, sql_url)
    kind = sql_url.partition(":")[0].partition("+")[0]
    record(record_fault, f"SQL mirrors ({kind}, {fluss_kind})", killing)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", parts_of(FLUSS_KILLS))
@pytest.mark.parametrize("fluss_kind", EMBEDDED_FIRST, indirect=True)
def test_fluss_equal_after_every_kill(
    tables: Tables,
    fluss_address: str,
    fluss_kind: str,
    crashers: Crashers,
    long_form: bool,
    part: int,
    record_fault: FaultRecorder,
) -> None:
    killing = Killing(tables, fluss_address, crashers, long_form, part)
    sink = fluss_mirror(tables, killing.model, 3)
    killing.run(sink, FLUSS_STAGES, sink.identity.rpartition("/")[2])
    record(record_fault, f"Fluss mirrors ({fluss_kind})", killing)


def record(record_fault: FaultRecorder, what: str, killing: Killing) -> None:
    record_fault(
        f"kill -9 of {what}",
        sum(killing.kills.values()),
        lost=0,
        doubled=0,
        seed=killing.seed,
        stages=killing.kills,
    )


def reset(source: FlussConnection, store: FlussCheckpointStore, model: KeyedModel) -> None:
    scan = mirror_scan(source, model.path, "kills", store=store)
    if store.head("kills") is not None:
        scan.reset("start", "a test", abandon_pending=True)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("fluss_kind", "sql_url"), combinations("embedded", "sqlite"), indirect=True
)
def test_eight_runs_at_once(
    tables: Tables,
    fluss_address: str,
    fluss_kind: str,
    sql_url: str,
    crashers: Crashers,
    long_form: bool,
) -> None:
    model = KeyedModel(tables, random.Random(SEED))
    race(tables, fluss_address, crashers, model, sql_mirror(sql_url), sql_url, long_form)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("fluss_kind", EMBEDDED_FIRST, indirect=True)
def test_eight_runs_at_once_into_fluss(
    tables: Tables, fluss_address: str, fluss_kind: str, crashers: Crashers, long_form: bool
) -> None:
    model = KeyedModel(tables, random.Random(SEED))
    sink = fluss_mirror(tables, model, 3)
    place = sink.identity.rpartition("/")[2]
    race(tables, fluss_address, crashers, model, sink, place, long_form)


def race(
    tables: Tables,
    address: str,
    crashers: Crashers,
    model: KeyedModel,
    sink: MirrorSinks,
    place: str,
    long_form: bool,
) -> None:
    """Let runs race, of which some are killed, while the table changes; rebuild between turns."""
    store = FlussCheckpointStore(tables.connection, tables.database, "kills", replicas=1)
    spec = {
        "config": {"bootstrap.servers": address},
        "table": model.path,
        "database": tables.database,
        "name": "kills",
        "sink": place,
        "form": "mirror",
    }
    stages = SQL_STAGES if "://" in place else FLUSS_STAGES
    chance = random.Random(SEED)
    for turn in range(TURNS_LONG if long_form else TURNS):
        model.upsert(8)
        if turn:
            reset(tables.connection, store, model)
        runs = [
            {
                "run_key": f"{turn}/{who}",
                "stage": chance.choice(stages) if chance.random() < 0.4 else "",
                "seed": chance.random(),
            }
            for who in range(RACERS)
        ]
        with ThreadPoolExecutor(RACERS) as pool:
            racing = [pool.submit(crashers.run, spec | run) for run in runs]
            while not all(one.done() for one in racing):
                model.upsert(3)
                model.delete(1)
                check_mirror(sink, "kills", model)
        assert {one.result() for one in racing} <= {0, KILLED}
        last = spec | {"run_key": f"{turn}/last", "stage": "", "seed": 0}
        assert crashers.run(last) == 0
        assert check_mirror(sink, "kills", model)
