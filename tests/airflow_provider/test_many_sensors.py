"""Many sensors on one triggerer: one client, one poller, little CPU, and a loop that is free."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fluss_client import FlussConnection
from fluss_client.errors import LakeTableAlreadyExistError, TableNotReadyError
from fluss_client.testing import LocalCluster
from fluss_orchestrate.core.conditions import NewSnapshot, RowsCame
from fluss_orchestrate.core.provisioning import TableSpec, apply_tables
from tests.airflow_provider.components import until
from tests.airflow_provider.conftest import add_connection
from tests.airflow_provider.places import connect, drop, load, tier_now, triggers
from tests.airflow_provider.rows import numbers_spec
from tests.airflow_provider.triggerer import Triggerer, defer, woken
from tests.fix_proxy import FaultyLines
from tests.waiting import let_pass, let_pass_async, scaled

pytestmark = [pytest.mark.usefixtures("airflow_home"), pytest.mark.timeout(1800)]
BLOCKED_MS_MAX = 50
POLL_INTERVAL_S = 2.0
DEFAULT_POLL_INTERVAL_S = 5.0
EACH = 10
CPU_OF_A_CORE_MAX = 0.1
CPU_WATCHED_S = 60
AIRFLOW_HANDLES_S = 5.0
"""What Airflow itself may need from a trigger's event to the task's new state."""


@pytest.fixture
def tables(
    cluster_conn_id: str, long_form: bool
) -> Iterator[tuple[FlussConnection, list[TableSpec]]]:
    """Tables on the real cluster: 200 in the long form, 20 in the short one."""
    database = f"af_many_{os.getpid()}"
    client = connect(cluster_conn_id)
    specs = [numbers_spec(database, f"t{n}", buckets=1) for n in range(200 if long_form else 20)]
    try:
        apply_tables(client, specs)
        yield client, specs
    finally:
        drop(client, database)


def test_no_trigger_blocks_the_loop_and_all_share_one_poller(
    cluster_conn_id: str, tables: tuple[FlussConnection, list[TableSpec]]
) -> None:
    """Each step of the loop is timed by its own CPU: other processes do not count."""
    client, specs = tables
    slow: list[str] = []
    longest_ms = 0.0
    run_step = asyncio.events.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        nonlocal longest_ms
        started = time.thread_time()
        run_step(handle)
        spent_ms = (time.thread_time() - started) * 1000
        # The client's I/O thread has a loop of its own, which no other trigger waits for.
        if threading.current_thread() is threading.main_thread():
            longest_ms = max(longest_ms, spent_ms)
            if spent_ms > BLOCKED_MS_MAX:
                slow.append(f"{spent_ms:.0f} ms: {handle!r}")

    async def scenario() -> tuple[float, int]:
        from fluss_orchestrate.airflow import FlussHook
        from fluss_orchestrate.core.polling import Poller, on_its_loop, poller_of

        async def first(trigger: Any) -> Any:
            async for event in trigger.run():
                return event.payload

        # Airflow's own first look for a connection is Airflow's.
        await FlussHook.aget_connection(cluster_conn_id)
        conditions = [RowsCame(spec.path, {}, None, 1) for spec in specs for _ in range(EACH)]
        made = triggers(cluster_conn_id, conditions, POLL_INTERVAL_S)
        asyncio.events.Handle._run = timed  # type: ignore[method-assign]
        waiting = [asyncio.create_task(first(trigger)) for trigger in made]
        await let_pass_async(2 * POLL_INTERVAL_S, "all have looked once")
        shared = await FlussHook(cluster_conn_id).aget_client()

        async def poller(core: Any) -> Poller:
            return poller_of(core)

        found = await on_its_loop(shared, poller)
        before, began = found.requests, time.monotonic()
        await let_pass_async(2 * POLL_INTERVAL_S, "requests are counted per interval")
        per_interval = (found.requests - before) * POLL_INTERVAL_S / (time.monotonic() - began)
        await asyncio.to_thread(load, client, specs[0], 0, 1)
        before = found.requests
        done = await asyncio.gather(*waiting[:EACH])
        # A look may have been under way when the row came; the next one is an interval later.
        assert found.requests - before <= 3 * len(specs)
        assert {event["status"] for event in done} == {"success"}
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return per_interval, len(waiting)

    # What a whole test run has left in memory would be looked through in one of the steps.
    gc.collect()
    gc.freeze()
    try:
        per_interval, sensors = asyncio.run(scenario())
    finally:
        gc.unfreeze()
        asyncio.events.Handle._run = run_step  # type: ignore[method-assign]
    print(f"{sensors} sensors: the longest step of the loop took {longest_ms:.1f} ms")
    assert sensors == EACH * len(specs)
    # One question per table and interval, however many wait; one began before the two intervals.
    assert per_interval <= 1.5 * len(specs)
    assert slow == []


@pytest.mark.airflow_has("sqlalchemy_2")
@pytest.mark.long
def test_one_triggerer_with_two_thousand_sensors(
    lake_cluster: LocalCluster, make_lines: Callable[..., FaultyLines], tmp_path: Path
) -> None:
    """Ten wait for each of 200 tables with lakes: half for rows, half for a snapshot."""
    lines = make_lines(str(lake_cluster.info.bootstrap_servers))
    conn_id = add_connection("fluss_counted_lake", host=lines.bootstrap_servers)
    database = f"af_lakes_{os.getpid()}"
    client = connect(add_connection("fluss_lake", host=str(lake_cluster.info.bootstrap_servers)))
    try:
        specs = [_lake_table(client, database, f"t{n}") for n in range(200)]
        _two_thousand(conn_id, client, specs, lines, tmp_path)
    finally:
        drop(client, database)


def _lake_table(client: FlussConnection, database: str, name: str) -> TableSpec:
    """A table with a lake; under another name when the server trips over its own retry."""
    spec = numbers_spec(database, name, buckets=1, lake=True)
    try:
        apply_tables(client, [spec])
    except (LakeTableAlreadyExistError, TableNotReadyError):
        return _lake_table(client, database, f"{name}_again")
    return spec


def _two_thousand(
    conn_id: str,
    client: FlussConnection,
    specs: list[TableSpec],
    lines: FaultyLines,
    tmp_path: Path,
) -> None:
    from airflow.sdk import DAG

    from fluss_orchestrate.airflow import FlussOffsetSensor

    with DAG("many_sensors") as dag:
        FlussOffsetSensor(task_id="wait", table=specs[0].table, fluss_conn_id=conn_id)
    half = EACH // 2
    conditions = [
        condition
        for spec in specs
        for condition in [RowsCame(spec.path, {}, None, 1), NewSnapshot(spec.path)] * half
    ]
    run_id = defer(dag, "wait", triggers(conn_id, conditions, DEFAULT_POLL_INTERVAL_S))

    def awake() -> int:
        return len(woken(dag.dag_id, run_id))

    with Triggerer(tmp_path / "triggerer.log", capacity=2500) as triggerer:
        started = time.monotonic()
        # The last table's sensors wake: all are running.
        load(client, specs[-1], 0, 1)
        tier_now(client, specs[-1])
        until("the last sensors wake", lambda: awake() == EACH, triggerer, 900)
        started_s = time.monotonic() - started
        runner = triggerer.runner()
        before, asked = sum(runner.cpu_times()[:2]), _asked(lines)
        let_pass(CPU_WATCHED_S, "CPU time is measured per second")
        core = (sum(runner.cpu_times()[:2]) - before) / CPU_WATCHED_S
        per_interval = (_asked(lines) - asked) * DEFAULT_POLL_INTERVAL_S / CPU_WATCHED_S
        load(client, specs[0], 0, 1)
        tier_now(client, specs[0])
        tiered = time.monotonic()
        until("the first sensors wake", lambda: awake() == 2 * EACH, triggerer)
        woke_s = time.monotonic() - tiered
        blocked = triggerer.said().count("blocked")
        print(
            f"{len(conditions)} sensors ran after {started_s:.0f} s and use {core:.3f} of a core, "
            f"on {lines.open_lines} lines with {per_interval:.0f} requests per interval; a "
            f"snapshot's sensors were awake after {woke_s:.1f} s; the triggerer spoke of "
            f"{blocked} blocks"
        )
    # One server and the coordinator, and at most two lines to each, for all triggers.
    assert lines.open_lines <= 4
    # A snapshot is one request, the end of a log two.
    assert per_interval <= 1.2 * 3 * len(specs)
    assert woke_s < DEFAULT_POLL_INTERVAL_S + scaled(AIRFLOW_HANDLES_S)
    assert core < CPU_OF_A_CORE_MAX


def _asked(lines: FaultyLines) -> int:
    return sum(len(calls) for calls in lines.histories)
