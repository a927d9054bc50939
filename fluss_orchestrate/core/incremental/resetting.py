"""Setting a checkpoint by hand: where `earliest`, `latest`, a time or offsets are right now."""

from __future__ import annotations

from collections.abc import Mapping

from fluss_client.errors import ConfigError
from fluss_client.facade.connection import FlussConnection
from fluss_client.runtime import runtime
from fluss_orchestrate.core.checkpoints.position import TablePosition
from fluss_orchestrate.core.errors import PositionUnknownError
from fluss_orchestrate.core.incremental.guards import check_identity
from fluss_orchestrate.core.incremental.observe import observe
from fluss_orchestrate.core.incremental.settings import ScanSettings, Start
from fluss_orchestrate.core.incremental.until import first_starts, known_offsets
from fluss_orchestrate.core.receipts import Receipt, whole_position


def reset_position(
    connection: FlussConnection, settings: ScanSettings, to: Start | Receipt
) -> TablePosition:
    """The position of the table as it is now.

    Raises:
        PositionUnknownError: if offsets, or a receipt, do not name every bucket: rows of the others
            would come again from the first one on.
    """
    if to == "state":
        raise ConfigError(
            "a checkpoint cannot be reset to 'state': plan with start='state' under a new name"
        )
    core = connection.core

    async def find() -> TablePosition:
        view = await observe(core.backend, core.config.resolved_alias(), settings.path)
        begin = to
        if isinstance(begin, Receipt):
            check_identity(begin.table, view.identity)
            position = whole_position(begin, view.latest)
            # Places that came after the receipt have not been read at all.
            begin = {place: position.get(place, 0) for place in view.latest}
        elif isinstance(begin, Mapping):
            given = known_offsets(view, begin)
            missing = [place for place in view.latest if place not in given]
            if missing:
                raise PositionUnknownError(view.identity, missing)
        starts = await first_starts(core.backend, core.config, view, begin, settings)
        return TablePosition(view.identity, starts, {}, view.partitions)

    return runtime().call(find())
