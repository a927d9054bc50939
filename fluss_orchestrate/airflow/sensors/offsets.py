"""Waiting for rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fluss_orchestrate.airflow.scans import until_of
from fluss_orchestrate.airflow.sensors.base import FlussSensor
from fluss_orchestrate.deprecated import accepts_old_parameters

if TYPE_CHECKING:
    from airflow.sdk import Context

    from fluss_client import FlussConnection, TablePath
    from fluss_orchestrate.core.conditions import Condition


class FlussOffsetSensor(FlussSensor):
    """Waits until enough new offsets have come, or until the log has reached some offsets.

    Args:
        min_offsets: How many new offsets to wait for.
        checkpoint: Count from the position of this checkpoint; from the beginning, if there is no
            such checkpoint yet.
        start: Count from `latest` (the end at the first look, the default), `earliest`, a time,
            offsets by bucket, or another task's receipt.
        offsets: Wait until the log has reached these offsets by bucket, the end of a receipt, or
            a time.
        **kwargs: The arguments of `FlussSensor`: `table`, `fluss_conn_id`, `deferrable`,
            `poll_interval`, and those of Airflow's `BaseSensorOperator`.

    Raises:
        ValueError: If more than one of `checkpoint`, `start` and `offsets` is given.
    """

    template_fields = ("fluss_conn_id", "table", "min_offsets", "checkpoint", "start", "offsets")

    @accepts_old_parameters("FlussOffsetSensor")
    def __init__(
        self,
        *,
        min_offsets: int | str = 1,
        checkpoint: str | None = None,
        start: Any = None,
        offsets: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if sum(given is not None for given in (checkpoint, start, offsets)) > 1:
            raise ValueError("give one of checkpoint, start and offsets")
        self.min_offsets = min_offsets
        self.checkpoint = checkpoint
        self.start = start
        self.offsets = offsets

    def condition(self, client: FlussConnection, context: Context) -> Condition:
        """Return the condition, from a position that is found now.

        Args:
            client: The connection to the cluster.
            context: The context of the Airflow task.
        """
        from fluss_client import TablePath
        from fluss_orchestrate.core.conditions import OffsetsReached, RowsCame
        from fluss_orchestrate.core.lake import freeze_target

        path = TablePath.parse(self.table)
        if self.offsets is not None:
            target = freeze_target(client, path, until_of(self.offsets, client))
            return OffsetsReached(path, target.offsets, target.table.table_id)
        if self.checkpoint is not None:
            return self._after_checkpoint(client, path, self.checkpoint)
        if self.start == "earliest":
            return RowsCame(path, {}, None, int(self.min_offsets))
        start = "latest" if self.start in (None, "now") else until_of(self.start, client)
        target = freeze_target(client, path, start)
        return RowsCame(path, target.offsets, target.table.table_id, int(self.min_offsets))

    def _after_checkpoint(self, client: FlussConnection, path: TablePath, name: str) -> Condition:
        from fluss_orchestrate.core.checkpoints import FlussCheckpointStore
        from fluss_orchestrate.core.conditions import RowsCame

        head = FlussCheckpointStore(client).head(name)
        position = None if head is None else head.state.position
        if position is None:
            return RowsCame(path, {}, None, int(self.min_offsets))
        return RowsCame(path, position.offsets, position.table.table_id, int(self.min_offsets))
