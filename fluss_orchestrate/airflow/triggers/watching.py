"""Triggers for `AssetWatcher`: new rows, and new lake snapshots.

They run on Airflow's shared streams in ack mode: the cursor, kept in the asset's state store,
moves only after the event is in Airflow's database. A triggerer that dies in between gives the
event again, so an event may come twice and is never lost. Events carry ranges, never rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Hashable
from typing import TYPE_CHECKING, Any

from airflow.sdk import conf
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from fluss_orchestrate.airflow.assets import CONFIG_SECTION
from fluss_orchestrate.airflow.hooks import FlussHook
from fluss_orchestrate.airflow.triggers.waiting import event_of

if TYPE_CHECKING:
    from airflow.sdk.execution_time.context import AssetStateStoreAccessors
    from airflow.triggers.shared_stream import SharedStreamProducer

    from fluss_orchestrate.airflow.triggers.producing import WatchProducer

STARTS = ("latest", "earliest")


def default_poll_interval() -> float:
    """`[fluss] poll_interval`, in seconds."""
    return float(conf.getfloat(CONFIG_SECTION, "poll_interval", fallback=5.0))


class FlussWatchTrigger(BaseEventTrigger):
    """What both triggers share.

    The cursor is kept with the watched asset, whatever its name is. `asset` is needed only where
    several assets are watched with equal arguments, for which Airflow runs one trigger: the name
    of the one that keeps the cursor. `cluster` is the alias that the connection must have.
    `start` says where to begin without a cursor.
    """

    def __init__(
        self,
        *,
        table: str,
        fluss_conn_id: str = FlussHook.default_conn_name,
        cluster: str | None = None,
        asset: str | None = None,
        start: str = "latest",
        poll_interval: float | None = None,
        store: AssetStateStoreAccessors | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        if start not in STARTS:
            raise ValueError(f"start is one of {', '.join(STARTS)}, not '{start}'")
        self.table = table
        self.fluss_conn_id = fluss_conn_id
        self.asset = asset
        self.cluster = cluster
        self.start = start
        self.poll_interval = default_poll_interval() if poll_interval is None else poll_interval
        self.asset_state_store = store

    def arguments(self) -> dict[str, Any]:
        """The arguments as plain values, always in the same order: Airflow compares them."""
        return {
            "asset": self.asset,
            "cluster": self.cluster,
            "fluss_conn_id": self.fluss_conn_id,
            "poll_interval": self.poll_interval,
            "start": self.start,
            "table": self.table,
        }

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class, and its arguments.

        In a triggerer also the state of the watched assets: Airflow makes the stream from these
        arguments, and gives the state to the trigger alone.
        """
        arguments = self.arguments()
        if self.asset_state_store is not None:
            arguments["store"] = self.asset_state_store
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments

    def shared_stream_key(self) -> Hashable | None:
        """One stream per trigger: Airflow keeps one of each class and arguments."""
        return (type(self).__qualname__, *self.arguments().values())

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        """The stream of one asset."""
        return cls(**kwargs).producer()

    @abstractmethod
    def producer(self) -> WatchProducer:
        """The stream that these settings describe."""

    async def filter_shared_stream(
        self, shared_stream: AsyncIterator[Any]
    ) -> AsyncIterator[TriggerEvent]:
        """Every event of the stream is this trigger's."""
        async for payload in shared_stream:
            yield event_of(payload)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """The same without Airflow's shared streams, for triggers that are run by hand."""
        async for payload, _ in self.producer().open_stream():
            yield event_of(payload)


class FlussOffsetTrigger(FlussWatchTrigger):
    """Fires when at least `rows` new rows have come to a table.

    `start="latest"` begins with rows that come after the watcher, `earliest` with the first ones.
    """

    def __init__(self, *, rows: int = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rows = rows

    def arguments(self) -> dict[str, Any]:
        """The arguments as plain values."""
        return {**super().arguments(), "rows": self.rows}

    def producer(self) -> WatchProducer:
        """The stream of new rows."""
        from fluss_orchestrate.airflow.triggers.producing import RowsProducer

        return RowsProducer(self, self.rows)


class FlussLakeSnapshotTrigger(FlussWatchTrigger):
    """Fires for every new lake snapshot of a table that is seen.

    `start="latest"` begins after the snapshot that is there, `earliest` with it.
    """

    def producer(self) -> WatchProducer:
        """The stream of new snapshots."""
        from fluss_orchestrate.airflow.triggers.producing import SnapshotsProducer

        return SnapshotsProducer(self)
