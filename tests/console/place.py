"""What the pages are looked at with: tables, checkpoints in every state, a lake and loads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Thread

import httpx
import pyarrow as pa
import uvicorn
from starlette.types import ASGIApp

from fluss_client import FlussConnection, TablePath
from fluss_orchestrate import (
    FunctionSink,
    IncrementalScan,
    IntervalScan,
    TableSpec,
    apply_tables,
    load_rows,
    tier_table,
)
from fluss_orchestrate.console.access import LocalAccess
from fluss_orchestrate.console.app import create_app
from fluss_orchestrate.console.service import Console, Settings
from fluss_orchestrate.core.checkpoints import FlussCheckpointStore
from fluss_orchestrate.core.checkpoints.events import now_ms
from fluss_orchestrate.core.job import run_interval
from fluss_orchestrate.core.overview.samples import Samples
from tests.waiting import scaled, wait_until

HOSTILE = "<script>document.title='taken'</script>"
USER = "maria"
END_S = 30.0
HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Place:
    """Where a console is, and what it shows."""

    url: str
    console: Console
    connection: FlussConnection
    database: str
    store: FlussCheckpointStore

    def name(self, checkpoint: str) -> str:
        """The name of a checkpoint of this place: clusters are shared."""
        return f"{self.database}/{checkpoint}"


def rows(count: int, first: int = 0) -> pa.Table:
    """Rows of the events."""
    ids = pa.array(range(first, first + count), pa.int64())
    return pa.table({"id": ids, "item": [f"item {n}" for n in range(first, first + count)]})


def fill(
    connection: FlussConnection,
    database: str,
    store: FlussCheckpointStore,
    hostile: str = HOSTILE,
) -> None:
    """Make tables, and checkpoints that are behind, pending, retired, and hostile by name."""
    columns = {"id": "bigint", "item": "string"}
    events = {"table": f"{database}.events", "columns": columns, "buckets": 2, "lake": True}
    days = {
        "table": f"{database}.days",
        "columns": {"id": "bigint", "day": "string not null"},
        "partition_keys": ["day"],
        "buckets": 1,
        "properties": {"table.log.ttl": "20 h"},
    }
    customers = {
        "table": f"{database}.customers",
        "columns": {"id": "bigint not null", "name": "string"},
        "primary_key": ["id"],
        "buckets": 2,
    }
    apply_tables(connection, [TableSpec.from_mapping(each) for each in (events, days, customers)])
    admin = connection.get_admin().result()
    began = now_ms()
    today = f"{datetime.now(UTC):%Y%m%d}"
    for day in ("20200101", today):
        admin.create_partition(TablePath(database, "days"), {"day": day}).result()
    load_rows(connection, f"{database}.events", rows(300), "first")
    tier_table(connection, f"{database}.events", allow_tiering=True)
    for name in ("to-files", hostile, "retired"):
        scan = IncrementalScan(connection, f"{database}.events", f"{database}/{name}", store)
        with scan.run(f"airflow/hourly/{name}/run 1") as run:
            run.to_arrow()
    store.retire(f"{database}/retired", "it is not needed any more")
    middle = now_ms()
    load_rows(connection, f"{database}.events", rows(40, 300), "second")
    fill_intervals(connection, database, store, began, middle)
    loaded = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "day": ["20200101", today, today]})
    load_rows(connection, f"{database}.days", loaded, "days")
    scan = IncrementalScan(connection, f"{database}.days", f"{database}/to-sql", store)
    assert scan.plan("dagster/run 7/days").offsets == 3
    named = pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["ann", HOSTILE]})
    load_rows(connection, f"{database}.customers", named, "customers")


def fill_intervals(
    connection: FlussConnection, database: str, store: FlussCheckpointStore, since: int, until: int
) -> None:
    """A scan by intervals with a time that was not read and a pending plan, and one backfill."""
    table = f"{database}.events"
    scan = IntervalScan(connection, table, f"{database}/hourly", store, settle_ms=0)
    sink = FunctionSink(lambda reader: reader.read_all(), identity="report")
    early = since - 3 * HOUR_MS
    run_interval(scan, sink, "airflow/hourly/report/run 1", early, early + HOUR_MS)
    run_interval(scan, sink, "airflow/hourly/report/run 3", since, until)
    scan.plan("airflow/hourly/report/run 4", until, now_ms(), sink=sink)
    backfill = IntervalScan(connection, table, f"{database}/to-files", store, settle_ms=0)
    with backfill.run("airflow/hourly/to-files/backfill", since, until) as run:
        run.to_arrow()


def visitor(url: str) -> httpx.Client:
    """A client of a console, which waits for an answer as long as the test lasts."""
    return httpx.Client(base_url=url, trust_env=False, timeout=None)


@contextmanager
def served(console: Console, *, may_act: bool = True) -> Iterator[str]:
    """A console on loopback by a real server; where it is."""
    app = LocalAccess(create_app(console), "127.0.0.1", None, may_act=may_act, user=USER)
    with served_app(app) as url:
        yield url


@contextmanager
def served_app(app: ASGIApp) -> Iterator[str]:
    """Any application on loopback."""
    config = uvicorn.Config(app, port=0, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    thread = Thread(target=server.run, daemon=True)
    thread.start()
    try:
        wait_until("the start", lambda: server.started or not thread.is_alive(), pause_s=0.01)
        assert thread.is_alive()
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(scaled(END_S))


def console_of(
    connection: FlussConnection,
    store: FlussCheckpointStore | None = None,
    samples: Samples | None = None,
    *,
    interval_s: float = 1.0,
) -> Console:
    """A console that may act."""
    return Console(connection, store, samples, Settings(interval_s=interval_s, actions=True))
