"""Many sensors on one triggerer: one client, one poller, little CPU, and a loop that is free."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from fluss_client import FlussConnection
from fluss_orchestrate.core.conditions import RowsCame
from fluss_orchestrate.core.loading import load_rows
from fluss_orchestrate.core.provisioning import TableSpec, apply
from tests.airflow_provider.rows import numbered, numbers_spec
from tests.airflow_provider.triggerer import Triggerer, defer, until, woken

pytestmark = [pytest.mark.usefixtures("airflow_home"), pytest.mark.timeout(900)]
BLOCKED_MS_MAX = 50
POLL_INTERVAL_S = 2.0
CPU_OF_A_CORE_MAX = 0.1


@pytest.fixture
def tables(
    cluster_conn_id: str, long_form: bool
) -> Iterator[tuple[FlussConnection, list[TableSpec]]]:
    """Tables on the real cluster: 200 in the long form, 20 in the short one."""
    from fluss_orchestrate.airflow import FlussHook

    database = f"af_many_{os.getpid()}"
    client = FlussConnection.create(FlussHook(cluster_conn_id).get_config()).result(60)
    specs = [numbers_spec(database, f"t{n}", buckets=1) for n in range(200 if long_form else 20)]
    try:
        apply(client, specs)
        yield client, specs
    finally:
        admin = client.get_admin().result()
        admin.drop_database(database, ignore_if_not_exists=True, cascade=True).result(120)
        client.close()


def triggers(conn_id: str, specs: list[TableSpec]) -> list[Any]:
    from fluss_orchestrate.airflow import FlussConditionTrigger

    return [
        FlussConditionTrigger(
            fluss_conn_id=conn_id,
            condition=RowsCame(spec.path, {}, None, 1).to_json(),
            poll_interval=POLL_INTERVAL_S,
        )
        for spec in specs
        for _ in range(10)
    ]


def test_no_trigger_blocks_the_loop_and_all_share_one_poller(
    cluster_conn_id: str, tables: tuple[FlussConnection, list[TableSpec]]
) -> None:
    """Each step of the loop is timed by its own CPU: other processes do not count."""
    client, specs = tables
    slow: list[str] = []
    run_step = asyncio.events.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        started = time.thread_time()
        run_step(handle)
        spent_ms = (time.thread_time() - started) * 1000
        # The client's I/O thread has a loop of its own, which no other trigger waits for.
        if threading.current_thread() is threading.main_thread() and spent_ms > BLOCKED_MS_MAX:
            slow.append(f"{spent_ms:.0f} ms: {handle!r}")

    async def scenario() -> tuple[int, int]:
        from fluss_orchestrate.airflow import FlussHook
        from fluss_orchestrate.core.polling import Poller, on_its_loop, poller_of

        async def first(trigger: Any) -> Any:
            async for event in trigger.run():
                return event.payload

        # Airflow's own first look for a connection is Airflow's.
        await FlussHook.aget_connection(cluster_conn_id)
        asyncio.events.Handle._run = timed  # type: ignore[method-assign]
        waiting = [asyncio.create_task(first(t)) for t in triggers(cluster_conn_id, specs)]
        await asyncio.sleep(3 * POLL_INTERVAL_S)
        shared = await FlussHook(cluster_conn_id).aget_client()

        async def poller(core: Any) -> Poller:
            return poller_of(core)

        found = await on_its_loop(shared, poller)
        before = found.requests
        await asyncio.sleep(5 * POLL_INTERVAL_S)
        asked = found.requests - before
        await asyncio.to_thread(load_rows, client, specs[0].table, numbered(0, 1), "one")
        load_started = time.monotonic()
        done = await asyncio.gather(*waiting[:10])
        assert time.monotonic() - load_started < 3 * POLL_INTERVAL_S
        assert {event["status"] for event in done} == {"success"}
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return asked, len(waiting)

    # What a whole test run has left in memory would be looked through in one of the steps.
    gc.collect()
    gc.freeze()
    try:
        asked, sensors = asyncio.run(scenario())
    finally:
        gc.unfreeze()
        asyncio.events.Handle._run = run_step  # type: ignore[method-assign]
    assert sensors == 10 * len(specs)
    # One question per table and interval, however many wait: five intervals, and one of grace.
    assert asked <= 6 * len(specs)
    assert slow == []


def test_one_triggerer_with_many_sensors(
    cluster_conn_id: str,
    tables: tuple[FlussConnection, list[TableSpec]],
    long_form: bool,
    tmp_path: Path,
    plain_cluster: Any,
) -> None:
    from airflow.sdk import DAG

    from fluss_orchestrate.airflow import FlussOffsetSensor

    client, specs = tables
    with DAG("many_sensors") as dag:
        FlussOffsetSensor(task_id="wait", table=specs[0].table, fluss_conn_id=cluster_conn_id)
    made = triggers(cluster_conn_id, specs)
    run_id = defer(dag, "wait", made)

    def awake() -> int:
        return len(woken(dag.dag_id, run_id))

    with Triggerer(tmp_path / "triggerer.log", capacity=2500) as triggerer:
        # The last sensor wakes: all are running.
        load_rows(client, specs[-1].table, numbered(0, 1), "last")
        until("the last sensors wake", lambda: awake() == 10, triggerer, 600 if long_form else 300)
        runner = triggerer.runner()
        ports = {int(a.rpartition(":")[2]) for a in _addresses(plain_cluster)}
        lines = [c for c in runner.net_connections("tcp") if c.raddr and c.raddr.port in ports]
        servers = {line.raddr for line in lines if line.status == psutil.CONN_ESTABLISHED}
        assert servers, "this is the process that polls"
        assert len(lines) <= 2 * len(servers), "one client for all triggers"
        watched_s = 60 if long_form else 10
        before = sum(runner.cpu_times()[:2])
        time.sleep(watched_s)
        core = (sum(runner.cpu_times()[:2]) - before) / watched_s
        print(f"{len(made)} sensors use {core:.3f} of a core")
        if long_form:
            assert core < CPU_OF_A_CORE_MAX
        load_rows(client, specs[0].table, numbered(0, 1), "first")
        until("the first sensors wake", lambda: awake() == 20, triggerer)


def _addresses(cluster: Any) -> list[str]:
    return str(cluster.info.sasl_bootstrap_servers).split(",")
