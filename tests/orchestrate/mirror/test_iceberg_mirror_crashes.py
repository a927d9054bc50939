"""Mirrors in Iceberg whose runs are killed at every stage, or race: always equal to the table."""

from __future__ import annotations

import collections
import itertools
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fluss_client import Config, FlussConnection
from fluss_orchestrate.core.checkpoints.fluss_store import FlussCheckpointStore
from fluss_orchestrate.core.mirror.table import mirror_scan
from tests.faults.recording import KILLS_PER_PART, FaultRecorder, parts_of
from tests.fix_either import own_database
from tests.orchestrate.incremental.crasher import STAGES
from tests.orchestrate.incremental.test_crashes import KILLED, Crashers, stages
from tests.orchestrate.mirror.iceberg_source import Duck, Source, mirror_sink, without_nulls

SEED = 20261118
KILLS_SHORT, KILLS_LONG = 12, 200
RESCALES_SHORT = 4
COUNT_MAX, REGIONS_MAX = 6, 24
RACERS, TURNS, TURNS_LONG = 8, 2, 6
NAME = "crashes"
MODES = ("equality", "copy_on_write")


@pytest.fixture(scope="module")
def crashers() -> Iterator[Crashers]:
    made = Crashers("tests.orchestrate.mirror.iceberg_crasher")
    yield made
    made.close()


@pytest.fixture(scope="session")
def source_connection(fluss_address: str) -> Iterator[FlussConnection]:
    with FlussConnection.create(Config({"bootstrap.servers": fluss_address})).result() as made:
        yield made


@pytest.fixture
def source(source_connection: FlussConnection) -> Iterator[Source]:
    with own_database(source_connection, "mirrors") as name:
        yield Source(source_connection, name, partitioned=False)


class Target:
    """A mirror that other processes write."""

    def __init__(self, source: Source, folder: Path, mode: str, address: str) -> None:
        self.source = source
        self.folder = folder
        self.sink = mirror_sink(folder, write_mode=mode)
        self.duck = Duck()
        self.spec: dict[str, Any] = {
            "config": {"bootstrap.servers": address},
            "table": str(source.path),
            "database": source.path.database_name,
            "store_table": NAME,
            "name": NAME,
            "sink": mode,
            "folder": str(folder),
        }

    def differences(self) -> tuple[int, int]:
        """How many keys are missing or other, and how many are too many, at its position."""
        position = self.sink.position(NAME)
        if position is None:
            return 0, 0
        wanted = without_nulls(self.source.at(dict(position.offsets)))
        found = self.duck.rows(self.folder)
        return sum(found.get(key) != row for key, row in wanted.items()), len(
            found.keys() - wanted.keys()
        )


def kill_runs(
    target: Target, crashers: Crashers, chance: random.Random, total: int, rescales: bool = False
) -> collections.Counter[str]:
    """Kill runs at every stage; the mirror equals the table after each of them."""
    source = target.source
    kills: collections.Counter[str] = collections.Counter()
    number, created = 0, itertools.count()
    for stage in stages(chance):
        if sum(kills.values()) >= total and (rescales or all(kills[one] for one in STAGES)):
            break
        source.change(chance, chance.randrange(1, 8))
        # A killed run is tried again under its key, or left to the next one to adopt.
        number += chance.random() < 0.6
        run = target.spec | {"run_key": f"run-{number}", "stage": stage, "seed": chance.random()}
        if chance.random() < 0.3:
            run["max_offsets"] = chance.randrange(1, 20)
        run["reset"] = number > 1 and chance.random() < 0.1
        code = crashers.run(run)
        assert code in (0, KILLED), stage
        kills[stage] += code == KILLED
        if rescales:
            # Between the kill and whoever adopts the plan and commits it.
            source.rescale(chance.randrange(1, COUNT_MAX))
            if len(source.there) < REGIONS_MAX:
                source.create(f"r{next(created)}")
        assert target.differences() == (0, 0), (stage, number)
    assert crashers.run(target.spec | {"run_key": "last", "stage": "", "seed": 0}) == 0
    return kills


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", parts_of(KILLS_LONG))
@pytest.mark.parametrize("mode", MODES)
def test_equal_through_kills_and_rebuilds(
    source: Source,
    crashers: Crashers,
    tmp_path: Path,
    fluss_address: str,
    fluss_kind: str,
    long_form: bool,
    mode: str,
    part: int,
    record_fault: FaultRecorder,
) -> None:
    seed = SEED + part
    print("seed", seed, mode)
    target = Target(source, tmp_path, mode, fluss_address)
    total = KILLS_PER_PART if long_form else KILLS_SHORT // 2
    kills = kill_runs(target, crashers, random.Random(seed), total)
    lost, doubled = target.differences()
    record_fault(
        f"kill -9 of mirrors in Iceberg ({mode}, {fluss_kind})",
        sum(kills.values()),
        lost=lost,
        doubled=doubled,
        seed=seed,
        stages=kills,
    )
    assert target.duck.rows(tmp_path) == without_nulls(source.model)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", parts_of(KILLS_LONG))
@pytest.mark.parametrize("fluss_kind", ["embedded"], indirect=True)
@pytest.mark.parametrize(
    "mode", ["equality", pytest.param("copy_on_write", marks=pytest.mark.long)]
)
def test_equal_through_kills_and_rescales(
    source_connection: FlussConnection,
    crashers: Crashers,
    tmp_path: Path,
    fluss_address: str,
    fluss_kind: str,
    long_form: bool,
    mode: str,
    part: int,
    record_fault: FaultRecorder,
) -> None:
    """Only the embedded engine can change the bucket count of a table."""
    with own_database(source_connection, "mirrors") as name:
        source = Source(source_connection, name, partitioned=True)
        target = Target(source, tmp_path, mode, fluss_address)
        total = KILLS_PER_PART if long_form else RESCALES_SHORT
        kills = kill_runs(target, crashers, random.Random(SEED + part), total, rescales=True)
        lost, doubled = target.differences()
        record_fault(
            f"kill -9 of mirrors in Iceberg through rescales ({mode})",
            sum(kills.values()),
            lost=lost,
            doubled=doubled,
            seed=SEED + part,
            stages=kills,
        )
        assert target.duck.rows(tmp_path) == without_nulls(source.model)
        listed = source.tables.admin.list_partition_infos(source.path).result()
        assert len({partition.bucket_count for partition in listed}) > 1


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", MODES)
def test_eight_racing_runs(
    source: Source,
    crashers: Crashers,
    tmp_path: Path,
    fluss_address: str,
    long_form: bool,
    mode: str,
) -> None:
    chance = random.Random(SEED)
    print("seed", SEED, mode)
    target = Target(source, tmp_path, mode, fluss_address)
    path = source.path
    store = FlussCheckpointStore(source.connection, path.database_name, NAME, replicas=1)
    for turn in range(TURNS_LONG if long_form else TURNS):
        source.change(chance, 12)
        if turn:
            scan = mirror_scan(source.connection, path, NAME, store=store)
            scan.reset("start", "a rebuild that the runs race for", abandon_pending=True)
        specs = [
            target.spec
            | {
                "run_key": f"{turn}/{who}",
                "stage": chance.choice(STAGES) if chance.random() < 0.2 else "",
                "seed": chance.random(),
            }
            for who in range(RACERS)
        ]
        with ThreadPoolExecutor(RACERS) as pool:
            codes = list(pool.map(crashers.run, specs))
        assert set(codes) <= {0, KILLED}
        assert target.differences() == (0, 0)
        last = target.spec | {"run_key": f"{turn}/last", "stage": "", "seed": 0}
        assert crashers.run(last) == 0
        assert target.differences() == (0, 0)
    assert crashers.run(target.spec | {"run_key": "last", "stage": "", "seed": 0}) == 0
    assert target.duck.rows(tmp_path) == without_nulls(source.model)
