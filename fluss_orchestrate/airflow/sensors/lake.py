"""Waiting for the lake."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from fluss_orchestrate.airflow.scans import until_of
from fluss_orchestrate.airflow.sensors.base import FlussSensor

if TYPE_CHECKING:
    from airflow.sdk import Context

    from fluss_client import FlussConnection
    from fluss_orchestrate.core.conditions import Condition

DATA_INTERVAL_END = "data_interval_end"


class FlussLakeSnapshotSensor(FlussSensor):
    """Waits for the lake of a table.

    Without arguments it waits for a snapshot that is newer than the one at the first look.

    Args:
        covers: Wait until the lake holds everything up to `latest` (the end of the log at the
            first look), a time, `data_interval_end`, offsets by bucket, or another task's receipt.
        fresher_than: Wait until the oldest row that the lake lacks is younger than this: a
            `timedelta`, or seconds.
        after: Wait for a snapshot other than the one with this id.
        **kwargs: The arguments of `FlussSensor`: `table`, `fluss_conn_id`, `deferrable`,
            `poll_interval`, and those of Airflow's `BaseSensorOperator`.

    Raises:
        ValueError: If more than one of `covers`, `fresher_than` and `after` is given.
    """

    template_fields = ("fluss_conn_id", "table", "covers", "after")

    def __init__(
        self,
        *,
        covers: Any = None,
        fresher_than: timedelta | float | None = None,
        after: int | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if sum(given is not None for given in (covers, fresher_than, after)) > 1:
            raise ValueError("give one of covers, fresher_than and after")
        self.covers = covers
        self.fresher_than = fresher_than
        self.after = after

    def condition(self, client: FlussConnection, context: Context) -> Condition:
        """Return the condition of the snapshot, with its target resolved.

        Args:
            client: The connection to the cluster.
            context: The context of the Airflow task.
        """
        from fluss_client import TablePath
        from fluss_orchestrate.core.conditions import LakeFresh, NewSnapshot

        path = TablePath.parse(self.table)
        if self.fresher_than is not None:
            bound = self.fresher_than
            seconds = bound.total_seconds() if isinstance(bound, timedelta) else float(bound)
            return LakeFresh(path, int(seconds * 1000))
        if self.covers is not None:
            return self._covering(client, context)
        if self.after is not None:
            return NewSnapshot(path, int(self.after))
        from fluss_orchestrate.core.lake import lake_status

        return NewSnapshot(path, lake_status(client, path, times=False).snapshot_id)

    def _covering(self, client: FlussConnection, context: Context) -> Condition:
        from fluss_client import TablePath
        from fluss_client.errors import ConfigError
        from fluss_orchestrate.core.conditions import LakeCovers
        from fluss_orchestrate.core.lake import freeze_target
        from fluss_orchestrate.core.times import as_time_ms

        path = TablePath.parse(self.table)
        wanted = self.covers
        if wanted == DATA_INTERVAL_END:
            wanted = context.get(DATA_INTERVAL_END)
            if wanted is None:
                raise ConfigError(f"run {context['ti'].run_id} has no data interval to wait for")
        wanted = until_of(wanted, client)
        moment = as_time_ms(wanted)
        if moment is not None:
            # A time is exact once it is past and settled; the waiting sees to that.
            return LakeCovers(path, moment)
        return LakeCovers(path, freeze_target(client, path, wanted))
