"""Triggers for `AssetWatcher`: new rows, and new lake snapshots.

They run on Airflow's shared streams in ack mode: the cursor, kept in the asset's state store,
moves only after the event is in Airflow's database. A triggerer that dies in between gives the
event again, so an event may come twice and is never lost. Events carry ranges, never rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Hashable
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from fluss_orchestrate.airflow.assets import CONFIG_SECTION
from fluss_orchestrate.airflow.hooks import FlussHook
from fluss_orchestrate.airflow.triggers.waiting import event_of
from fluss_orchestrate.airflow.version_compat import CAPABILITIES, conf
from fluss_orchestrate.deprecated import accepts_old_parameters

if TYPE_CHECKING:
    from airflow.sdk.execution_time.context import AssetStateStoreAccessors
    from airflow.triggers.shared_stream import SharedStreamProducer

    from fluss_orchestrate.airflow.triggers.producing import WatchProducer

STARTS = ("latest", "earliest")


def default_poll_interval() -> float:
    """`[fluss] poll_interval`, in seconds."""
    return float(conf.getfloat(CONFIG_SECTION, "poll_interval", fallback=5.0))


class FlussWatchTrigger(BaseEventTrigger):
    """A trigger for `AssetWatcher`, which goes on for ever.

    Its cursor is kept with the watched asset, whatever the name of that is.

    Args:
        table: The table, as `database.table`.
        fluss_conn_id: The Airflow connection of the cluster.
        cluster_alias: The alias that the connection must have; `fluss_table_asset` sets it.
        asset: The name of the asset that keeps the cursor. It is needed only if several assets
            are watched with equal arguments, for which Airflow runs one trigger.
        start: Where to begin without a cursor: `latest` or `earliest`.
        poll_interval: Seconds between two looks; `[fluss] poll_interval` by default.
        store: The state of the watched assets; Airflow sets it.

    Raises:
        ValueError: If `start` is neither.
    """

    def __init__(
        self,
        *,
        table: str,
        fluss_conn_id: str = FlussHook.default_conn_name,
        cluster_alias: str | None = None,
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
        self.cluster_alias = cluster_alias
        self.start = start
        self.poll_interval = default_poll_interval() if poll_interval is None else poll_interval
        self.asset_state_store = store

    def arguments(self) -> dict[str, Any]:
        """The arguments as plain values, always in the same order: Airflow compares them."""
        return {
            "asset": self.asset,
            "cluster_alias": self.cluster_alias,
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
        """Yield the events without Airflow's shared streams.

        Airflow before 3.3 runs the trigger like this, and keeps its cursor some seconds after each
        event. Later releases do so only for triggers that are run by hand, whose cursor is not
        kept.
        """
        if not CAPABILITIES.acknowledged_streams:
            async for event in self.producer().events():
                yield event_of(event)
        async for payload, _ in self.producer().open_stream():
            yield event_of(payload)


class FlussOffsetTrigger(FlussWatchTrigger):
    """Fires when enough new offsets have come to a table.

    Args:
        min_offsets: How many offsets one event needs at least.
        **kwargs: `table`, `fluss_conn_id`, `cluster_alias`, `asset`, `start` (`latest` begins with
            rows that come after the watcher, `earliest` with the first ones) and `poll_interval`.
    """

    @accepts_old_parameters("FlussOffsetTrigger")
    def __init__(self, *, min_offsets: int = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.min_offsets = min_offsets

    def arguments(self) -> dict[str, Any]:
        """Return the arguments as plain values."""
        return {**super().arguments(), "min_offsets": self.min_offsets}

    def producer(self) -> WatchProducer:
        """Return the stream of new rows."""
        from fluss_orchestrate.airflow.triggers.producing import RowsProducer

        return RowsProducer(self, self.min_offsets)


class FlussLakeSnapshotTrigger(FlussWatchTrigger):
    """Fires for every new lake snapshot of a table that is seen.

    Args:
        **kwargs: `table`, `fluss_conn_id`, `cluster_alias`, `asset`, `start` (`latest` begins after
            the present snapshot, `earliest` with it) and `poll_interval`.
    """

    @accepts_old_parameters("FlussLakeSnapshotTrigger")
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)

    def producer(self) -> WatchProducer:
        """Return the stream of new snapshots."""
        from fluss_orchestrate.airflow.triggers.producing import SnapshotsProducer

        return SnapshotsProducer(self)
