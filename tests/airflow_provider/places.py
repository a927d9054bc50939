"""Connections with tables that watchers watch and sensors wait for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fluss_client import FlussConnection
from fluss_orchestrate.core.conditions import RowsCame
from fluss_orchestrate.core.lake import tier_table
from fluss_orchestrate.core.loading import load_rows
from fluss_orchestrate.core.provisioning import TableSpec, apply_tables
from tests.airflow_provider.rows import numbered, numbers_spec

Event = dict[str, Any]


def connect(conn_id: str) -> FlussConnection:
    """A client of the test's own."""
    from fluss_orchestrate.airflow import FlussHook

    return FlussConnection.create(FlussHook(conn_id).get_config()).result()


def load(client: FlussConnection, spec: TableSpec, start: int, stop: int) -> None:
    """Rows with these numbers; a table gets each of them once."""
    load_rows(client, spec.table, numbered(start, stop), f"{start}")


def tier_now(client: FlussConnection, spec: TableSpec) -> int:
    """Bring what is there into the lake; the id of the snapshot."""
    found = tier_table(client, spec.table, allow_tiering=True).snapshot_id
    assert found is not None
    return found


@dataclass
class RowsPlace:
    """Tables of which one is watched, and the others are waited for."""

    conn_id: str
    client: FlussConnection
    watched: TableSpec
    specs: list[TableSpec]

    @classmethod
    def make(cls, conn_id: str, database: str, tables: int) -> RowsPlace:
        """The tables, in a database of their own."""
        client = connect(conn_id)
        specs = [numbers_spec(database, f"t{n}", buckets=1) for n in range(tables)]
        watched = numbers_spec(database, "watched", buckets=1)
        apply_tables(client, [*specs, watched])
        return cls(conn_id, client, watched, specs)

    def watching(self, interval_s: float) -> Any:
        """The watched asset, by Airflow's common trigger for queues."""
        from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger
        from airflow.sdk import AssetWatcher

        from fluss_orchestrate.airflow import fluss_table_asset

        trigger = MessageQueueTrigger(
            scheme="fluss",
            table=self.watched.table,
            fluss_conn_id=self.conn_id,
            start="earliest",
            poll_interval=interval_s,
        )
        return fluss_table_asset(self.watched.table, watchers=[AssetWatcher("new rows", trigger)])

    def conditions(self, rows: int, each: int) -> list[Any]:
        """So many conditions for each table: so many rows have come."""
        return [RowsCame(s.path, {}, None, rows) for s in self.specs for _ in range(each)]


@dataclass
class LakePlace:
    """One table with a lake."""

    conn_id: str
    client: FlussConnection
    watched: TableSpec

    @classmethod
    def make(cls, conn_id: str, database: str) -> LakePlace:
        """The table, in a database of its own."""
        client = connect(conn_id)
        watched = numbers_spec(database, "watched", buckets=1, lake=True)
        apply_tables(client, [watched])
        return cls(conn_id, client, watched)

    def watching(self, interval_s: float) -> Any:
        """The watched asset."""
        from airflow.sdk import AssetWatcher

        from fluss_orchestrate.airflow import FlussLakeSnapshotTrigger, fluss_table_asset

        trigger = FlussLakeSnapshotTrigger(
            table=self.watched.table,
            fluss_conn_id=self.conn_id,
            start="earliest",
            poll_interval=interval_s,
        )
        return fluss_table_asset(self.watched.table, watchers=[AssetWatcher("snapshots", trigger)])

    def condition(self, **arguments: Any) -> Any:
        """What a sensor with these arguments waits for."""
        from fluss_orchestrate.airflow import FlussLakeSnapshotSensor

        sensor = FlussLakeSnapshotSensor(
            task_id="wait", table=self.watched.table, fluss_conn_id=self.conn_id, **arguments
        )
        return sensor.condition(self.client, {})  # type: ignore[typeddict-item]


def triggers(conn_id: str, conditions: list[Any], interval_s: float) -> list[Any]:
    """The triggers that deferred sensors wait with."""
    from fluss_orchestrate.airflow import FlussConditionTrigger

    return [
        FlussConditionTrigger(
            fluss_conn_id=conn_id, condition=c.to_json(), poll_interval=interval_s
        )
        for c in conditions
    ]


def drop(client: FlussConnection, database: str) -> None:
    """Drop the database and close the client."""
    admin = client.get_admin().result()
    admin.drop_database(database, ignore_if_not_exists=True, cascade=True).result()
    client.close()


def covered(events: list[Event]) -> int:
    """Where the ranges of one bucket's events end; they must meet, and only repeat themselves."""
    stop = 0
    for event in events:
        for _, _, _, start, end in event["ranges"]:
            assert start <= stop, f"rows [{stop}, {start}) were told of by no event: {events}"
            stop = max(stop, end)
    return stop


def newest(events: list[Event]) -> int | None:
    """The snapshot of the last event; each event must go on from one before it."""
    seen: list[int | None] = [None]
    for event in events:
        assert event["previous_snapshot_id"] in seen[-2:], events
        seen.append(event["snapshot_id"])
    return seen[-1]
