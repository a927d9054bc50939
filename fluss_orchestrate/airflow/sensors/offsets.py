"""Waiting for rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fluss_orchestrate.airflow.scans import until_of
from fluss_orchestrate.airflow.sensors.base import FlussSensor

if TYPE_CHECKING:
    from airflow.sdk import Context

    from fluss_client import FlussConnection
    from fluss_client.model.table import TablePath
    from fluss_orchestrate.core.conditions import Condition


class FlussOffsetSensor(FlussSensor):
    """Waits until `rows` new rows have come, or until the log has reached `offsets`.

    New rows are counted from where `checkpoint` stands, or from `since`: `now` (the sensor's
    first look), `earliest`, a time, offsets by bucket, or another task's receipt. A checkpoint
    that has not begun counts from the beginning.
    """

    template_fields = ("fluss_conn_id", "table", "rows", "checkpoint", "since", "offsets")

    def __init__(
        self,
        *,
        rows: int | str = 1,
        checkpoint: str | None = None,
        since: Any = None,
        offsets: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if sum(given is not None for given in (checkpoint, since, offsets)) > 1:
            raise ValueError("give one of checkpoint, since and offsets")
        self.rows = rows
        self.checkpoint = checkpoint
        self.since = since
        self.offsets = offsets

    def condition(self, client: FlussConnection, context: Context) -> Condition:
        """The rows or offsets, from a position that is found now."""
        from fluss_client.model.table import TablePath
        from fluss_orchestrate.core.conditions import OffsetsReached, RowsCame
        from fluss_orchestrate.core.lake import freeze_target

        path = TablePath.parse(self.table)
        if self.offsets is not None:
            target = freeze_target(client, path, until_of(self.offsets))
            return OffsetsReached(path, target.offsets, target.table.table_id)
        if self.checkpoint is not None:
            return self._after_checkpoint(client, path, self.checkpoint)
        if self.since == "earliest":
            return RowsCame(path, {}, None, int(self.rows))
        since = "latest" if self.since in (None, "now") else until_of(self.since)
        target = freeze_target(client, path, since)
        return RowsCame(path, target.offsets, target.table.table_id, int(self.rows))

    def _after_checkpoint(self, client: FlussConnection, path: TablePath, name: str) -> Condition:
        from fluss_orchestrate.core.checkpoints import FlussCheckpointStore
        from fluss_orchestrate.core.conditions import RowsCame

        head = FlussCheckpointStore(client).head(name)
        position = None if head is None else head.state.position
        if position is None:
            return RowsCame(path, {}, None, int(self.rows))
        return RowsCame(path, position.offsets, position.table.table_id, int(self.rows))
