"""The tiering worker: takes what it is handed, keeps it alive, and stops when it is taken away."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from fluss_client import FlussConnection, TablePath
from fluss_client.errors import FencedTieringEpochError
from fluss_client.model.cluster import HeartbeatResult
from fluss_orchestrate.core.lake import (
    TieringFencedError,
    TieringNotAllowedError,
    TieringWorker,
    lake_covers,
    lake_status,
    read_with_deletes,
    tiering_worker,
)
from tests.orchestrate.lake.tables import (
    append,
    as_rows,
    full_scan,
    lake_rows,
    lake_table,
    upsert,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("only_tierer")
NewTable = Callable[..., TablePath]


def work_until(worker: TieringWorker, path: TablePath) -> Any:
    """Take tables until this one came; other tests' tables are tiered on the way."""

    def work() -> Any:
        while (receipt := worker.run_once()) is not None:
            if receipt.table.path == path and receipt.rows:
                return receipt
        return None

    return wait_until("the coordinator to hand the table out", work, pause_s=0.1)


def test_takes_what_the_coordinator_hands_out(
    connection: FlussConnection, new_table: NewTable
) -> None:
    path = new_table(freshness="1s")
    append(connection, path, 0, 100)
    worker = TieringWorker(connection, allow_tiering=True)
    assert work_until(worker, path).rows == 100
    append(connection, path, 100, 150)
    assert work_until(worker, path).rows == 50
    assert lake_rows(connection, path) == as_rows(full_scan(connection, path))


def test_two_workers_while_rows_come(connection: FlussConnection, new_table: NewTable) -> None:
    path = new_table(layout="keyed", freshness="1s")
    workers = [TieringWorker(connection, allow_tiering=True, idle_interval_s=0.1) for _ in range(2)]
    threads = [threading.Thread(target=worker.run) for worker in workers]
    for thread in threads:
        thread.start()
    try:
        for at in range(0, 300, 50):
            append(connection, path, at, at + 50)
        wait_until("the lake", lambda: lake_covers(connection, path, "latest"), pause_s=0.1)
    finally:
        for worker in workers:
            worker.stop()
        for thread in threads:
            thread.join()
    assert lake_rows(connection, path) == as_rows(full_scan(connection, path))
    assert lake_status(connection, path).lag_offsets == 0


@pytest.fixture
def heard(connection: FlussConnection, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was renewed; with `fenced` in it, the coordinator refuses to hear any more."""
    beats: list[Any] = []
    backend = connection.core.backend
    real = backend.lake_tiering_heartbeat

    async def beat(
        tiering: Any, finished: Any, failed: Any, request: bool, forced: Any
    ) -> HeartbeatResult:
        beats.extend(tiering)
        if tiering and "fenced" in beats:
            error = FencedTieringEpochError("another round has begun")
            return HeartbeatResult(0, None, {tiering[0].table_id: error})
        return await real(tiering, finished, failed, request, forced)

    monkeypatch.setattr(backend, "lake_tiering_heartbeat", beat)
    return beats


def test_nothing_is_committed_after_the_table_was_taken_away(
    connection: FlussConnection, new_table: NewTable, heard: list[Any]
) -> None:
    path = new_table(freshness="1s")
    append(connection, path, 0, 10)
    heard.append("fenced")
    worker = TieringWorker(connection, allow_tiering=True)

    def is_fenced() -> bool:
        try:
            worker.run_once()
        except TieringFencedError as error:
            return bool(error.table == path)
        return False

    wait_until("the error", is_fenced, pause_s=0.1)
    assert lake_table(connection, path).current_snapshot() is None
    assert lake_status(connection, path).snapshot_id is None


def test_renews_in_the_background(
    connection: FlussConnection,
    new_table: NewTable,
    heard: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = new_table(freshness="1s")
    append(connection, path, 0, 10)
    real = tiering_worker.TieringRound.run

    def slow(self: Any) -> Any:
        """Wait until the table was renewed three times."""
        renewed = len(heard)
        wait_until("three renewals", lambda: len(heard) >= renewed + 3, pause_s=0.02)
        return real(self)

    monkeypatch.setattr(tiering_worker.TieringRound, "run", slow)
    worker = TieringWorker(connection, allow_tiering=True, renew_interval_s=0.1)
    receipt = work_until(worker, path)
    mine = [t for t in heard if t.table_id == receipt.table.table_id]
    # Twice to confirm the commits, the others while it was slow.
    assert len(mine) >= 5


def test_off_unless_asked_for(connection: FlussConnection) -> None:
    with pytest.raises(TieringNotAllowedError):
        TieringWorker(connection)


def test_key_tables_are_handed_out_too(connection: FlussConnection, new_table: NewTable) -> None:
    path = new_table(primary_keys=["id"], freshness="1s")
    upsert(connection, path, 0, 40)
    worker = TieringWorker(connection, allow_tiering=True)
    assert work_until(worker, path).rows == 40
    upsert(connection, path, 20, 60)
    receipt = work_until(worker, path)
    assert receipt.details["rows_written"] == 40
    assert receipt.details["keys_deleted"] == 20
    found = read_with_deletes(lake_table(connection, path)).read_all()
    assert as_rows(found).column("id").to_pylist() == list(range(60))
