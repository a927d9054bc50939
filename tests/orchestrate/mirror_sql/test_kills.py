"""Mirrors through kills at every stage, resets and racing runs: equal to the model every time."""

from __future__ import annotations

import collections
import itertools
import random
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from fluss_client import FlussConnection
from fluss_orchestrate.core.checkpoints.fluss_store import FlussCheckpointStore
from fluss_orchestrate.core.mirror.table import mirror_scan
from fluss_orchestrate.core.sinks import SqlSink
from tests.contract.tables import Tables
from tests.faults.recording import FaultRecorder
from tests.orchestrate.incremental.test_crashes import KILLED, Crashers
from tests.orchestrate.mirror_sql.keyed_model import KeyedModel, sorted_rows
from tests.orchestrate.mirror_sql.mirror_crasher import SQL_STAGES

SEED = 20261118
KILLS, KILLS_LONG = 12, 50
"""Per database and kind of source: 200 in the long form."""
RACERS, RUNS_EACH, RUNS_EACH_LONG = 8, 1, 6


def combinations(*default: str) -> list[Any]:
    """All pairs of a source and a database; all but one belong to the long form."""
    pairs = itertools.product(("embedded", "cluster"), ("sqlite", "postgres"))
    return [
        pytest.param(*pair, marks=() if pair == default else pytest.mark.long) for pair in pairs
    ]


@pytest.fixture
def crashers() -> Iterator[Crashers]:
    made = Crashers("tests.orchestrate.mirror_sql.mirror_crasher")
    yield made
    made.close()


def check_sql(sink: SqlSink, url: str, model: KeyedModel) -> bool:
    """Compare the mirror with the model at its position; False while it has none."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    if sink.position("kills") is None:
        return False
    there = {column["name"] for column in sa.inspect(engine).get_columns("Copy")}
    arrow = model.table.arrow_schema
    held = pa.schema([field for field in arrow if field.name in there])
    with sink.read_mirror("kills", held) as found:
        assert found is not None
        position, rows = found.position, found.rows.read_all().to_pylist()
    given = [dict.fromkeys(arrow.names) | row for row in rows]
    assert sorted_rows([tuple(row[n] for n in arrow.names) for row in given]) == (
        model.expected(position)
    )
    return True


def stages(rng: random.Random, known: tuple[str, ...]) -> Iterator[str]:
    yield from known
    while True:
        yield rng.choice(known)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("fluss_kind", "sql_url"), combinations("cluster", "postgres"), indirect=True
)
def test_equal_after_every_kill(
    tables: Tables,
    source: FlussConnection,
    fluss_address: str,
    fluss_kind: str,
    sql_url: str,
    crashers: Crashers,
    long_form: bool,
    record_fault: FaultRecorder,
) -> None:
    rng = random.Random(SEED)
    model = KeyedModel(tables, rng, partitioned=True)
    sink = SqlSink(sql_url, "Copy", form="mirror")
    spec = {
        "config": {"bootstrap.servers": fluss_address},
        "table": model.path,
        "database": tables.database,
        "name": "kills",
        "sink": sql_url,
        "form": "mirror",
    }
    store = FlussCheckpointStore(source, tables.database, "kills", replicas=1)
    kills: collections.Counter[str] = collections.Counter()
    number = compared = 0
    for stage in stages(rng, SQL_STAGES):
        if sum(kills.values()) >= (KILLS_LONG if long_form else KILLS):
            break
        head = store.head("kills")
        # A plan that is pending reads the partitions that it names.
        model.keeps_days = head is not None and head.state.pending is not None
        for _ in range(rng.randrange(1, 4)):
            model.step()
        number += rng.random() < 0.7
        run = spec | {"run_key": f"run-{number}", "stage": stage, "seed": rng.random()}
        if rng.random() < 0.3:
            run["max_offsets"] = rng.randrange(1, 12)
        code = crashers.run(run)
        assert code in (0, KILLED), stage
        kills[stage] += code == KILLED
        compared += check_sql(sink, sql_url, model)
        if rng.random() < 0.1:
            reset(source, store, model)
    assert crashers.run(spec | {"run_key": "last", "stage": "", "seed": 0}) == 0
    assert check_sql(sink, sql_url, model)
    kind = "postgres" if sql_url.startswith("postgresql") else "sqlite"
    record_fault(
        f"kill -9 of SQL mirrors ({kind}, {fluss_kind})",
        sum(kills.values()),
        lost=0,
        doubled=0,
        seed=SEED,
        stages=kills,
    )
    assert compared > 0


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
    sink = SqlSink(sql_url, "Copy", form="mirror")
    spec = {
        "config": {"bootstrap.servers": fluss_address},
        "table": model.path,
        "database": tables.database,
        "name": "kills",
        "sink": sql_url,
        "form": "mirror",
    }
    codes: list[int] = []

    def work(who: int) -> None:
        rng = random.Random(SEED + who)
        for number in range(RUNS_EACH_LONG if long_form else RUNS_EACH):
            stage = rng.choice(SQL_STAGES) if rng.random() < 0.4 else ""
            run = {"run_key": f"{who}/{number}", "stage": stage, "seed": rng.random()}
            codes.append(crashers.run(spec | run))

    model.upsert(8)
    racers = [threading.Thread(target=work, args=(who,)) for who in range(RACERS)]
    for racer in racers:
        racer.start()
    while any(racer.is_alive() for racer in racers):
        model.upsert(3)
        model.delete(1)
        check_sql(sink, sql_url, model)
    for racer in racers:
        racer.join()
    assert crashers.run(spec | {"run_key": "last", "stage": "", "seed": 0}) == 0
    assert set(codes) <= {0, KILLED}
    assert check_sql(sink, sql_url, model)
