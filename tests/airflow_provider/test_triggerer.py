"""A real triggerer wakes sensors and watchers, and goes on after it was killed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fluss_client import FlussConnection
from fluss_orchestrate.core.conditions import RowsCame
from fluss_orchestrate.core.loading import load_rows
from fluss_orchestrate.core.provisioning import TableSpec, apply
from tests.airflow_provider.rows import numbered, numbers_spec
from tests.airflow_provider.running import register
from tests.airflow_provider.triggerer import Triggerer, asset_events, defer, until, woken

pytestmark = [pytest.mark.usefixtures("airflow_home"), pytest.mark.timeout(400)]
TABLES = 3
SENSORS_PER_TABLE = 4


def covered(events: list[dict[str, Any]]) -> int:
    """Where the ranges of one bucket's events end; they must meet, and only repeat themselves."""
    stop = 0
    for event in events:
        for _, _, _, start, end in event["ranges"]:
            assert start <= stop, f"rows [{stop}, {start}) were told of by no event: {events}"
            stop = max(stop, end)
    return stop


@dataclass
class Place:
    """A connection with tables: one that a watcher watches, others that sensors wait for."""

    conn_id: str
    client: FlussConnection
    watched: TableSpec
    specs: list[TableSpec]

    def load(self, spec: TableSpec, start: int, stop: int) -> None:
        load_rows(self.client, spec.table, numbered(start, stop), f"{start}")

    def watching(self) -> Any:
        """The watched asset."""
        from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger
        from airflow.sdk import AssetWatcher

        from fluss_orchestrate.airflow import fluss_table_asset

        trigger = MessageQueueTrigger(
            scheme="fluss", table=self.watched.table, fluss_conn_id=self.conn_id, start="earliest"
        )
        return fluss_table_asset(self.watched.table, watchers=[AssetWatcher("new rows", trigger)])

    def triggers(self) -> list[Any]:
        """Triggers that wait for ten rows."""
        from fluss_orchestrate.airflow import FlussConditionTrigger

        return [
            FlussConditionTrigger(
                fluss_conn_id=self.conn_id,
                condition=RowsCame(spec.path, {}, None, 10).to_json(),
                poll_interval=0.3,
            )
            for spec in self.specs
            for _ in range(SENSORS_PER_TABLE)
        ]


@pytest.fixture
def places(embedded_conn_id: str, cluster_conn_id: str) -> Iterator[list[Place]]:
    from fluss_orchestrate.airflow import FlussHook

    made = []
    for conn_id in (embedded_conn_id, cluster_conn_id):
        database = f"af_trig_{os.getpid()}_{conn_id}"
        client = FlussConnection.create(FlussHook(conn_id).get_config()).result(60)
        specs = [numbers_spec(database, f"t{n}", buckets=1) for n in range(TABLES)]
        watched = numbers_spec(database, "watched", buckets=1)
        apply(client, [*specs, watched])
        made.append(Place(conn_id, client, watched, specs))
    yield made
    for place in made:
        admin = place.client.get_admin().result()
        admin.drop_database(place.watched.path.database_name, cascade=True).result(30)
        place.client.close()


def test_sensors_and_watchers_across_a_restart(places: list[Place], tmp_path: Path) -> None:
    """Rows come before, while and after the triggerer is killed."""
    from airflow.sdk import DAG

    from fluss_orchestrate.airflow import FlussOffsetSensor

    assets = [place.watching() for place in places]
    with DAG("watching", schedule=assets, is_paused_upon_creation=False) as watching:
        pass
    register(watching)
    with DAG("waiting") as waiting:
        FlussOffsetSensor(task_id="wait", table=places[0].watched.table)
    triggers = [trigger for place in places for trigger in place.triggers()]
    run_id = defer(waiting, "wait", triggers)
    first_ones = SENSORS_PER_TABLE * len(places)

    def awake() -> dict[int, Any]:
        return woken(waiting.dag_id, run_id)

    def told(rows: int) -> bool:
        return all(covered(asset_events(asset.name)) >= rows for asset in assets)

    log = tmp_path / "triggerer.log"
    with Triggerer(log) as first:
        for place in places:
            place.load(place.specs[0], 0, 10)
            place.load(place.watched, 0, 10)
        until("the first sensors wake", lambda: len(awake()) == first_ones, first)
        until("the first events", lambda: told(10), first)
        for place in places:
            place.load(place.watched, 10, 20)
        # Killed somewhere around the second event, before or after it was stored.
    for place in places:
        place.load(place.watched, 20, 35)
        for spec in place.specs[1:]:
            place.load(spec, 0, 9)
    with Triggerer(log) as second:
        until("all events", lambda: told(35), second)
        assert len(awake()) == first_ones, "nine rows are not ten"
        for place in places:
            for spec in place.specs[1:]:
                place.load(spec, 9, 10)
        until("all sensors wake", lambda: len(awake()) == len(triggers), second)
    for asset in assets:
        events = asset_events(asset.name)
        assert {(event["schema_version"], event["uri"]) for event in events} == {(1, asset.uri)}
        assert len(events) <= 4, "one restart gives at most one event again"
    outcomes = [str(kwargs) for kwargs in awake().values()]
    assert all("success" in outcome for outcome in outcomes), outcomes
