"""The calls of watchers into the core. Imported when a watcher runs: it imports the client."""

from __future__ import annotations

from typing import Any

from fluss_client import FlussConnection, TablePath
from fluss_client.aio import FlussConnection as AsyncConnection
from fluss_orchestrate.core.checkpoints import SchedulerState
from fluss_orchestrate.core.conditions import NewSnapshot, RowsCame, wait_until
from fluss_orchestrate.core.conditions.tables import position_from_json, position_to_json
from fluss_orchestrate.core.errors import TableIdentityChangedError
from fluss_orchestrate.core.identity import table_uri
from fluss_orchestrate.core.incremental.planning.observation import TableView, observe_table
from fluss_orchestrate.core.lake.covers import awaited_snapshot
from fluss_orchestrate.core.polling import on_its_loop


async def stored_cursor(client: FlussConnection, name: str) -> Any:
    """Return the cursor that the cluster keeps under a name, or None."""
    return await on_its_loop(client, lambda core: SchedulerState(core).get(name))


async def store_cursor(client: FlussConnection, name: str, cursor: dict[str, Any]) -> None:
    """Keep a cursor in the cluster under a name."""
    await on_its_loop(client, lambda core: SchedulerState(core).set(name, cursor))


async def rows_cursor(client: FlussConnection, table: str, start: str) -> dict[str, Any]:
    """Return a cursor at the end of the table's logs, or at their begin."""

    async def look(core: AsyncConnection) -> TableView:
        return await observe_table(core, TablePath.parse(table))

    view = await on_its_loop(client, look)
    position = position_to_json(view.latest) if start == "latest" else []
    return {"table_id": view.info.table_id, "position": position}


async def next_rows(
    client: FlussConnection, table: str, cursor: dict[str, Any], rows: int, interval_s: float
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Wait for rows after a cursor; return the event and the cursor after it."""
    path = TablePath.parse(table)
    since = position_from_json(cursor["position"])
    try:
        condition = RowsCame(path, since, int(cursor["table_id"]), rows)
        outcome = await wait_until(client, condition, poll_interval_s=interval_s)
    except TableIdentityChangedError as error:
        if error.found is None:
            raise
        since = {}
        condition = RowsCame(path, since, error.found.table_id, rows)
        outcome = await wait_until(client, condition, poll_interval_s=interval_s)
    ends = {**since, **{(p, b): stop for p, _, b, _, stop in outcome["ranges"]}}
    after = {"table_id": outcome["table"]["table_id"], "position": position_to_json(ends)}
    return outcome, after


async def snapshot_cursor(client: FlussConnection, table: str, start: str) -> dict[str, Any]:
    """Return a cursor after the current snapshot, or before it."""
    path = TablePath.parse(table)
    found = await on_its_loop(client, lambda core: awaited_snapshot(core, path))
    if start == "earliest":
        return {"snapshot_id": None}
    return {"snapshot_id": None if found is None else found.snapshot_id}


async def next_snapshot(
    client: FlussConnection, table: str, cursor: dict[str, Any], interval_s: float
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Wait for a snapshot other than the cursor's; return the event and the cursor after it."""
    path = TablePath.parse(table)
    known = cursor["snapshot_id"]
    outcome = await wait_until(client, NewSnapshot(path, known), poll_interval_s=interval_s)
    uri = table_uri(client.config.resolved_alias(), path)
    event = {**outcome, "uri": uri, "previous_snapshot_id": known}
    return event, {"snapshot_id": outcome["snapshot_id"]}
