"""Setting a checkpoint by hand: where `earliest`, `latest`, a time or offsets are right now."""

from __future__ import annotations

from fluss_client.errors import ConfigError
from fluss_client.facade.connection import FlussConnection
from fluss_client.runtime import runtime
from fluss_orchestrate.core.checkpoints.position import TablePosition
from fluss_orchestrate.core.incremental.observe import observe
from fluss_orchestrate.core.incremental.settings import ScanSettings, Start
from fluss_orchestrate.core.incremental.until import first_starts


def reset_position(connection: FlussConnection, settings: ScanSettings, to: Start) -> TablePosition:
    """The position of the table as it is now; places that offsets do not name begin at 0."""
    if to == "state":
        raise ConfigError(
            "a checkpoint cannot be reset to 'state': plan with start='state' under a new name"
        )
    core = connection.core

    async def find() -> TablePosition:
        view = await observe(core.backend, core.config.resolved_alias(), settings.path)
        starts = await first_starts(core.backend, core.config, view, to, settings)
        return TablePosition(view.identity, starts, {}, view.partitions)

    return runtime().call(find())
