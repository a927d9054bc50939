"""Assigns lake-enabled tables to tiering workers: the state machine of the coordinator.

    scheduled --freshness has passed--> pending --requested--> tiering --finished--> scheduled
                                           ^                      |
                                           +--failed, or silent for two minutes--+

The epoch of a table increases each time it becomes pending, so that reports of earlier workers are
refused. The server has timers; here the states advance at each heartbeat.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence

from fluss_client.backend.embedded.store import options
from fluss_client.backend.embedded.store.catalog import (
    Catalog,
    Stored,
    end_statements,
    now_ms,
    take_number,
)
from fluss_client.backend.embedded.store.validation import is_lake_enabled
from fluss_client.errors import (
    FencedTieringEpochError,
    FlussError,
    InvalidCoordinatorError,
    TableNotExistError,
    UnknownServerError,
)
from fluss_client.model.cluster import HeartbeatResult, TieringTable

COORDINATOR_EPOCH = 0
WORKER_TIMEOUT_MS = 120_000
SCHEDULED, PENDING, TIERING = "scheduled", "pending", "tiering"


def heartbeat(
    connection: sqlite3.Connection,
    catalog: Catalog,
    tiering: Sequence[TieringTable],
    finished: Sequence[TieringTable],
    failed: Sequence[TieringTable],
    request_table: bool,
    force_finished: Sequence[int],
) -> HeartbeatResult:
    """Handle the reports of a worker, in the server's order, and assign a table if requested."""
    now = now_ms()
    _advance(connection, catalog, now)
    errors: dict[int, FlussError] = {}
    forced = set(force_finished)

    def each(tables: Iterable[TieringTable], handle: Callable[[TieringTable], None]) -> None:
        for table in tables:
            try:
                _check(connection, table)
                handle(table)
            except FlussError as error:
                end_statements(error)
                errors[table.table_id] = error

    each(failed, lambda t: _to_pending(connection, t.table_id))
    each(tiering, lambda t: _renew(connection, t.table_id, now))
    each(finished, lambda t: _finish(connection, t.table_id, now, forced=t.table_id in forced))
    assigned = _assign(connection, catalog, now) if request_table else None
    return HeartbeatResult(COORDINATOR_EPOCH, assigned, errors)


def _advance(connection: sqlite3.Connection, catalog: Catalog, now: int) -> None:
    """Advance the states by the time that has passed since the last heartbeat."""
    tables = _lake_tables(connection, catalog)
    known = {table.info.table_id for table in tables}
    rows = connection.execute("SELECT table_id, state, last_tiered, heartbeat FROM lake_tiering")
    states = {row[0]: row[1:] for row in rows.fetchall()}
    for gone in states.keys() - known:
        connection.execute("DELETE FROM lake_tiering WHERE table_id = ?", (gone,))
    for table in tables:
        table_id = table.info.table_id
        if table_id not in states:
            created = table.info.created_time
            connection.execute(
                "INSERT INTO lake_tiering VALUES (?, ?, 0, ?, 0, 0)",
                (table_id, SCHEDULED, created),
            )
            states[table_id] = (SCHEDULED, created, 0)
        state, last_tiered, beat = states[table_id]
        freshness = options.option(table.descriptor.properties, options.LAKE_FRESHNESS)
        waited = state == SCHEDULED and now - last_tiered >= freshness
        silent = state == TIERING and now - beat >= WORKER_TIMEOUT_MS
        if waited or silent:
            _to_pending(connection, table_id)


def _lake_tables(connection: sqlite3.Connection, catalog: Catalog) -> list[Stored]:
    rows = connection.execute("SELECT id FROM tbl ORDER BY id").fetchall()
    tables = [catalog.by_id(connection, table_id) for (table_id,) in rows]
    return [table for table in tables if is_lake_enabled(table.descriptor.properties)]


def _check(connection: sqlite3.Connection, table: TieringTable) -> None:
    if table.coordinator_epoch != COORDINATOR_EPOCH:
        raise InvalidCoordinatorError(
            f"the coordinator's epoch is {COORDINATOR_EPOCH}, not {table.coordinator_epoch}"
        )
    row = connection.execute(
        "SELECT epoch FROM lake_tiering WHERE table_id = ?", (table.table_id,)
    ).fetchone()
    if row is None:
        raise TableNotExistError(f"there is no lake table with id {table.table_id}")
    if row[0] != table.tiering_epoch:
        raise FencedTieringEpochError(
            f"table {table.table_id} is in its round {row[0]}, not {table.tiering_epoch}"
        )


def _state(connection: sqlite3.Connection, table_id: int) -> str:
    (state,) = connection.execute(
        "SELECT state FROM lake_tiering WHERE table_id = ?", (table_id,)
    ).fetchone()
    return str(state)


def _to_pending(connection: sqlite3.Connection, table_id: int) -> None:
    if _state(connection, table_id) == PENDING:
        return
    connection.execute(
        "UPDATE lake_tiering SET state = ?, epoch = epoch + 1, queued = ? WHERE table_id = ?",
        (PENDING, take_number(connection, "next_in_queue"), table_id),
    )


def _renew(connection: sqlite3.Connection, table_id: int, now: int) -> None:
    if _state(connection, table_id) != TIERING:
        raise UnknownServerError(f"table {table_id} is not being tiered")
    connection.execute("UPDATE lake_tiering SET heartbeat = ? WHERE table_id = ?", (now, table_id))


def _finish(connection: sqlite3.Connection, table_id: int, now: int, *, forced: bool) -> None:
    if _state(connection, table_id) != TIERING:
        return
    connection.execute(
        "UPDATE lake_tiering SET state = ?, last_tiered = ? WHERE table_id = ?",
        (SCHEDULED, now, table_id),
    )
    if forced:
        _to_pending(connection, table_id)


def _assign(connection: sqlite3.Connection, catalog: Catalog, now: int) -> TieringTable | None:
    row = connection.execute(
        "SELECT table_id, epoch FROM lake_tiering WHERE state = ? ORDER BY queued LIMIT 1",
        (PENDING,),
    ).fetchone()
    if row is None:
        return None
    table_id, epoch = row
    connection.execute(
        "UPDATE lake_tiering SET state = ?, heartbeat = ? WHERE table_id = ?",
        (TIERING, now, table_id),
    )
    path = catalog.by_id(connection, table_id).info.table_path
    return TieringTable(table_id, epoch, COORDINATOR_EPOCH, path)
