"""The streams behind the watchers' triggers."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from fluss_orchestrate.airflow.assets import asset_uri, check_alias
from fluss_orchestrate.airflow.hooks import loaded
from fluss_orchestrate.airflow.receipts import small
from fluss_orchestrate.airflow.triggers.waiting import Retries, reachable_client
from fluss_orchestrate.airflow.version_compat import (
    CAPABILITIES,
    AdvanceItem,
    SharedStreamProducer,
)

if TYPE_CHECKING:
    from fluss_client import FlussConnection
    from fluss_orchestrate.airflow.triggers.watching import FlussWatchTrigger

SCHEMA_VERSION = 1
CORE = "fluss_orchestrate.airflow.triggers.watched"
ADVANCE_DELAY_S = 5.0
"""How long after an event the cursor moves where Airflow does not say that it has stored it. The
triggerer stores events about every second."""
Cursor = dict[str, Any]
Event = dict[str, Any]


class CursorStore(Protocol):
    """Keeps the cursor of a watcher by a key."""

    async def aget(self, key: str) -> Any:
        """Return the cursor, or None."""

    async def aset(self, key: str, value: Any) -> None:
        """Keep the cursor."""


class ClusterCursors:
    """The cursors of one asset in the cluster itself, where Airflow has no state of assets.

    Args:
        conn_id: The Airflow connection of the cluster.
        asset: The name of the asset.
    """

    def __init__(self, conn_id: str, asset: str) -> None:
        self._conn_id = conn_id
        self._asset = asset

    async def aget(self, key: str) -> Any:
        """Return the cursor, or None."""
        core = await loaded(CORE)
        client = await reachable_client(self._conn_id)
        return await core.stored_cursor(client, f"watch/{self._asset}#{key}")

    async def aset(self, key: str, value: Any) -> None:
        """Keep the cursor."""
        core = await loaded(CORE)
        client = await reachable_client(self._conn_id)
        await core.store_cursor(client, f"watch/{self._asset}#{key}", value)


def cursor_store(trigger: FlussWatchTrigger) -> CursorStore:
    """Return where the cursor of a trigger is kept: in the state of the watched asset.

    Outside of a triggerer that is the state of the asset that the trigger names, or that
    `fluss_table_asset` makes for the table. Before Airflow 3.3 it is a table of the cluster.
    """
    name = trigger.asset or asset_uri(trigger.table, trigger.cluster_alias)
    if not CAPABILITIES.asset_state:
        return ClusterCursors(trigger.fluss_conn_id, name)
    from airflow.sdk.definitions.asset import AssetNameRef
    from airflow.sdk.execution_time.context import AssetStateStoreAccessor

    watched: Any = trigger.asset_state_store
    if watched is None:
        watched = AssetStateStoreAccessor(name=name)
    elif trigger.asset is not None:
        watched = watched[AssetNameRef(trigger.asset)]
    found: CursorStore = watched
    return found


class EventNotStoredError(RuntimeError):
    """Airflow did not store an event; the stream begins again at its cursor."""


class WatchProducer(SharedStreamProducer):
    """Waits without end for what follows a cursor."""

    kind: str

    def __init__(self, trigger: FlussWatchTrigger) -> None:
        self._trigger = trigger
        self._store = cursor_store(trigger)
        self._key = f"fluss:{self.kind}:{trigger.table}"

    async def open_stream(self) -> AsyncIterator[tuple[Event, Cursor]]:
        """Yield events, each with the cursor that follows it."""
        client = await reachable_client(self._trigger.fluss_conn_id)
        errors = await loaded("fluss_client.errors")
        cursor: Cursor | None = None
        retries = Retries()
        while True:
            try:
                self._check_cluster(client)
                cursor = cursor or await self._stored()
                if cursor is None:
                    cursor = await self.first_cursor(client)
                    # A triggerer that dies now must not begin later than this.
                    await self._keep(cursor)
                event, cursor = await self.next_event(client, cursor)
            except errors.FlussError as error:
                # A table or a cluster that is away comes back; Airflow would restart at once.
                await retries.pause(error, f"watching {self._trigger.table}")
                continue
            retries.reset()
            yield {"schema_version": SCHEMA_VERSION, "kind": self.kind, **small(event)}, cursor
            # What comes meanwhile goes into the next event together.
            await asyncio.sleep(self._trigger.poll_interval)

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Keep the cursor after the last event that Airflow has stored."""
        for item in batch:
            if not item.outcome.is_clean:
                raise EventNotStoredError(
                    f"an event of {self._trigger.table} was not stored by Airflow; it comes again"
                )
        await self._keep(batch[-1].broker_payload)

    async def events(self) -> AsyncIterator[Event]:
        """Yield events without acknowledgements; the cursor moves some seconds after each."""
        async for event, cursor in self.open_stream():
            yield event
            await asyncio.sleep(ADVANCE_DELAY_S)
            await self._keep(cursor)

    def _check_cluster(self, client: FlussConnection) -> None:
        """Check that the cluster is the asset's, because the event has the URI of the table."""
        wanted, table = self._trigger.cluster_alias, self._trigger.table
        if wanted is not None:
            check_alias(f"the watcher of {table}", wanted, table, client.config.resolved_alias())

    async def _stored(self) -> Cursor | None:
        try:
            found = await self._store.aget(self._key)
        except ValueError as error:
            raise await self._several_assets() from error
        return found if isinstance(found, dict) else None

    async def _several_assets(self) -> Exception:
        errors = await loaded("fluss_client.errors")
        found: Exception = errors.ConfigError(
            "several assets are watched with equal arguments, and Airflow runs one trigger for "
            "them: give the trigger asset='name' of the one that shall keep its cursor"
        )
        return found

    async def _keep(self, cursor: Cursor) -> None:
        await self._store.aset(self._key, cursor)

    @abstractmethod
    async def first_cursor(self, client: FlussConnection) -> Cursor:
        """Return the cursor to begin at."""

    @abstractmethod
    async def next_event(self, client: FlussConnection, cursor: Cursor) -> tuple[Event, Cursor]:
        """Wait for what follows a cursor."""


class RowsProducer(WatchProducer):
    """Yields new rows as ranges of offsets; the cursor is a position of one table."""

    kind = "rows"

    def __init__(self, trigger: FlussWatchTrigger, rows: int) -> None:
        super().__init__(trigger)
        self._rows = rows

    async def first_cursor(self, client: FlussConnection) -> Cursor:
        """Return the end, or the begin, of the table's logs."""
        core = await loaded(CORE)
        found: Cursor = await core.rows_cursor(client, self._trigger.table, self._trigger.start)
        return found

    async def next_event(self, client: FlussConnection, cursor: Cursor) -> tuple[Event, Cursor]:
        """Return the ranges after the cursor. A table that was created again begins at 0."""
        core = await loaded(CORE)
        found: tuple[Event, Cursor] = await core.next_rows(
            client, self._trigger.table, cursor, self._rows, self._trigger.poll_interval
        )
        return found


class SnapshotsProducer(WatchProducer):
    """Yields new lake snapshots; the cursor is the id of the last one."""

    kind = "lake_snapshot"

    async def first_cursor(self, client: FlussConnection) -> Cursor:
        """Return the id of the current snapshot, if there is one."""
        core = await loaded(CORE)
        found: Cursor = await core.snapshot_cursor(client, self._trigger.table, self._trigger.start)
        return found

    async def next_event(self, client: FlussConnection, cursor: Cursor) -> tuple[Event, Cursor]:
        """Return the next snapshot that is seen."""
        core = await loaded(CORE)
        found: tuple[Event, Cursor] = await core.next_snapshot(
            client, self._trigger.table, cursor, self._trigger.poll_interval
        )
        return found
