"""Eight processes under one name: one winner for each sequence, nothing skipped, nothing twice."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fluss_client import Config, FlussConnection
from fluss_client.model.table import TableBucket
from fluss_client.runtime import runtime
from fluss_client.testing import LocalCluster
from fluss_orchestrate.core.checkpoints import CheckpointStore, EventKind, FlussCheckpointStore
from tests.fix_cluster import REPLICATES_SOON
from tests.orchestrate.checkpoints.test_state_machine import check_history
from tests.waiting import let_pass, wait_until

PROCESSES = 8
ROOT = Path(__file__).parents[3]


def race(spec: dict[str, Any], name: str, rounds: int, seed: int) -> list[list[list[Any]]]:
    """Let the racers go at once, and collect what each has committed."""
    racer = "tests.orchestrate.checkpoints.racer"
    command = [sys.executable, "-m", racer, json.dumps(spec), name, str(PROCESSES)]
    ended = subprocess.run(
        [*command, str(rounds), str(seed)], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    results: list[list[list[Any]]] = json.loads(ended.stdout)
    return results


def check(store: CheckpointStore, name: str, results: list[list[list[Any]]], rounds: int) -> None:
    events = list(store.history(name, 100_000))[::-1]
    check_history(events)
    plans = {e.sequence: e.state.pending for e in events if e.kind is EventKind.PLAN}
    commits = [e.plan_id for e in events if e.kind is EventKind.COMMIT]
    run_keys = [p.run_key for p in plans.values() if p is not None]
    assert len(set(run_keys)) == len(run_keys), "a run key was given two plans"
    for of_one in results:
        for sequence, plan_id, run_key in of_one:
            known = plans[sequence]
            assert known is not None
            assert (known.plan_id, known.run_key) == (plan_id, run_key)
            assert plan_id in commits
    head = events[-1]
    for sequence, made in plans.items():
        assert made is not None
        expected = head.state.pending if sequence == max(plans) and head.state.pending else made
        assert store.plan_of(name, made.run_key, head) == expected
    assert len(plans) >= rounds


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "store_kind", ["sqlite", "postgres", "embedded", "plain"], indirect=True, scope="session"
)
def test_eight_processes_race(
    request: pytest.FixtureRequest,
    store_kind: str,
    store_config: dict[str, Any],
    store_path: tuple[str, str],
    open_store: Callable[[], CheckpointStore],
    tmp_path: Path,
    name: str,
    long_form: bool,
) -> None:
    store = open_store()
    spec: dict[str, Any] = {
        "config": store_config,
        "database": store_path[0],
        "table": store_path[1],
    }
    if store_kind == "sqlite":
        spec = {"url": f"sqlite:///{tmp_path / 'checkpoints.db'}"}
    if store_kind == "postgres":
        spec = {"url": request.getfixturevalue("postgres_url"), "table": store_path[0]}
    rounds = 100 if long_form else 6
    results = race(spec, name, rounds, seed=1)
    check(store, name, results, rounds)


@pytest.mark.cluster
@pytest.mark.timeout(400)
def test_the_stores_server_dies_in_the_middle(
    make_cluster: Callable[..., LocalCluster], long_form: bool
) -> None:
    """With three replicas, the leader of the store is killed while all race, and comes back."""
    cluster = make_cluster(tablet_servers=3, config=REPLICATES_SOON)
    info = cluster.up()
    spec = {
        "config": {"bootstrap.servers": info.bootstrap_servers},
        "database": "checkpoints",
        "table": "events",
        "replicas": 3,
    }
    with FlussConnection.create(Config(spec["config"])).result() as connection:
        store = FlussCheckpointStore(connection, "checkpoints", "events")
        assert store.head("race") is None
        kills: list[str] = []
        seen = 0
        over = threading.Event()

        def has_grown() -> bool:
            """Whether the race has gone on since this was asked before."""
            nonlocal seen
            before, head = seen, store.head("race")
            seen = head.sequence if head is not None else 0
            return seen > max(before, 1)

        def kill_leaders() -> None:
            for _ in range(4 if long_form else 1):
                wait_until("more events", lambda: over.is_set() or has_grown())
                if over.is_set():
                    return
                server = f"tablet-{_leader(connection, store)}"
                cluster.kill(server)
                kills.append(server)
                let_pass(1, "how long the server is down")
                cluster.start(server)

        killer = threading.Thread(target=kill_leaders)
        killer.start()
        rounds = 60 if long_form else 8
        try:
            results = race(spec, "race", rounds, seed=7)
        finally:
            over.set()
            killer.join()
        assert kills, "the race was over before a server died"
        check(store, "race", results, rounds)


def _leader(connection: FlussConnection, store: FlussCheckpointStore) -> int:
    backend = connection.backend

    async def find() -> int:
        info = await backend.get_table_info(store.path)
        bucket = TableBucket(info.table_id, 0)
        await backend.forget_location(info, bucket)
        return await backend.locate(info, bucket)

    return runtime().call(find())
