"""A real triggerer wakes sensors and watchers, of rows and of lakes, and goes on after a kill."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fluss_client.testing import LocalCluster
from tests.airflow_provider.capabilities import has
from tests.airflow_provider.components import until
from tests.airflow_provider.conftest import add_connection
from tests.airflow_provider.places import (
    LakePlace,
    RowsPlace,
    covered,
    drop,
    load,
    newest,
    tier_now,
    triggers,
)
from tests.airflow_provider.running import register
from tests.airflow_provider.triggerer import Triggerer, asset_events, defer, woken
from tests.faults.recording import FaultRecorder
from tests.fix_proxy import FaultyLines
from tests.waiting import let_pass

pytestmark = [pytest.mark.usefixtures("airflow_home"), pytest.mark.timeout(400)]
TABLES = 3
SENSORS_PER_TABLE = 10
POLL_INTERVAL_S = 0.5
WATCHED_S = 4.0
REQUESTS_PER_QUESTION = 2
SERVERS = 4


@pytest.fixture
def lines(plain_cluster: LocalCluster, make_lines: Callable[..., FaultyLines]) -> FaultyLines:
    """The way to the real cluster, on which what servers are asked can be counted."""
    return make_lines(str(plain_cluster.info.bootstrap_servers))


@pytest.fixture
def places(embedded_conn_id: str, lines: FaultyLines) -> Iterator[list[RowsPlace]]:
    counted = add_connection("fluss_counted", host=lines.bootstrap_servers)
    databases = [f"af_trig_{os.getpid()}_{n}" for n in range(2)]
    conn_ids = (embedded_conn_id, counted)
    made = [RowsPlace.make(c, d, TABLES) for c, d in zip(conn_ids, databases, strict=True)]
    yield made
    for place, database in zip(made, databases, strict=True):
        drop(place.client, database)


@pytest.fixture
def lakes(embedded_conn_id: str, lake_cluster: LocalCluster) -> Iterator[list[LakePlace]]:
    """None where SQLAlchemy 2, and so PyIceberg's SQL catalog, cannot be installed."""
    real = add_connection("fluss_lake", host=str(lake_cluster.info.bootstrap_servers))
    conn_ids = (embedded_conn_id, real) if has("sqlalchemy_2") else ()
    databases = [f"af_lake_{os.getpid()}_{n}" for n in range(len(conn_ids))]
    made = [LakePlace.make(c, d) for c, d in zip(conn_ids, databases, strict=True)]
    yield made
    for place, database in zip(made, databases, strict=True):
        drop(place.client, database)


def test_sensors_and_watchers_across_a_restart(
    places: list[RowsPlace],
    lakes: list[LakePlace],
    lines: FaultyLines,
    tmp_path: Path,
    record_fault: FaultRecorder,
) -> None:
    """Rows and snapshots come before, while and after the triggerer is killed."""
    from airflow.sdk import DAG

    from fluss_orchestrate.airflow import FlussOffsetSensor

    rows_assets = [place.watching(POLL_INTERVAL_S) for place in places]
    lake_assets = [lake.watching(POLL_INTERVAL_S) for lake in lakes]
    assets = [*rows_assets, *lake_assets]
    with DAG("watching", schedule=assets, is_paused_upon_creation=False) as watching:
        pass
    register(watching)
    with DAG("waiting") as waiting:
        FlussOffsetSensor(task_id="wait", table=places[0].watched.table)
    made: list[Any] = []
    for place in places:
        conditions = place.conditions(10, SENSORS_PER_TABLE)
        made += triggers(place.conn_id, conditions, POLL_INTERVAL_S)
    for lake in lakes:
        conditions = [lake.condition(), lake.condition(covers={0: 35})]
        made += triggers(lake.conn_id, conditions, POLL_INTERVAL_S)
    run_id = defer(waiting, "wait", made)
    first_ones = SENSORS_PER_TABLE * len(places) + len(lakes)

    def awake() -> dict[int, Any]:
        return woken(waiting.dag_id, run_id)

    def told(rows: int, snapshots: list[int]) -> bool:
        found = [newest(asset_events(asset.name)) for asset in lake_assets]
        return found == snapshots and all(
            covered(asset_events(asset.name)) >= rows for asset in rows_assets
        )

    def come(start: int, stop: int) -> list[int]:
        """Rows for all that are watched, and snapshots with them; the snapshots."""
        for place in (*places, *lakes):
            load(place.client, place.watched, start, stop)
        return [tier_now(lake.client, lake.watched) for lake in lakes]

    log = tmp_path / "triggerer.log"
    with Triggerer(log) as first:
        for place in places:
            load(place.client, place.specs[0], 0, 10)
        snapshots = come(0, 10)
        until("the first sensors wake", lambda: len(awake()) == first_ones, first)
        until("the first events", lambda: told(10, snapshots), first)
        come(10, 20)
        # Killed somewhere around the second event, before or after it was stored.
    snapshots = come(20, 35)
    for place in places:
        for spec in place.specs[1:]:
            load(place.client, spec, 0, 9)
    with Triggerer(log) as second:
        until("all events", lambda: told(35, snapshots), second)
        lakes_too = first_ones + len(lakes)
        until("the lake's sensors wake", lambda: len(awake()) == lakes_too, second)
        _one_poller(lines)
        assert len(awake()) == lakes_too, "nine rows are not ten"
        for place in places:
            for spec in place.specs[1:]:
                load(place.client, spec, 9, 10)
        until("all sensors wake", lambda: len(awake()) == len(made), second)
    for asset in assets:
        events = asset_events(asset.name)
        assert {(event["schema_version"], event["uri"]) for event in events} == {(1, asset.uri)}
        assert len(events) <= 4, "one restart gives at most one event again"
    outcomes = [str(kwargs) for kwargs in awake().values()]
    record_fault("kill of the Airflow triggerer", 1, lost=len(made) - len(outcomes))
    assert all("success" in outcome for outcome in outcomes), outcomes


def _one_poller(lines: FaultyLines) -> None:
    """Each table is asked for once per interval, on one client, however many wait for it."""
    asked, lines_before, began = requests(lines), lines.open_lines, time.monotonic()
    let_pass(WATCHED_S, "requests are counted per interval")
    spent = requests(lines) - asked
    intervals = (time.monotonic() - began) / POLL_INTERVAL_S + 1
    # The test's own client has lines of its own, and asks nothing meanwhile.
    assert lines_before <= 2 * 2 * SERVERS
    assert 0 < spent <= intervals * TABLES * REQUESTS_PER_QUESTION, spent


def requests(lines: FaultyLines) -> int:
    """How much the servers were asked so far."""
    return sum(len(calls) for calls in lines.histories)
