"""Resolving a boundary of intervals, and noticing what retention has taken before it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from fluss_client.backend.contract import Backend
from fluss_client.config import Config
from fluss_client.model.cluster import OffsetSpec
from fluss_orchestrate.core.checkpoints.position import TablePosition
from fluss_orchestrate.core.errors import NotYetError
from fluss_orchestrate.core.incremental.observe import observe, offsets_of
from fluss_orchestrate.core.incremental.resolve import NOT_YET_RETRY_MS, resolve_timestamp
from fluss_orchestrate.core.incremental.settings import ScanSettings
from fluss_orchestrate.core.plan import Place

LOOKS_MAX = 5


@dataclass(frozen=True, slots=True)
class Boundary:
    """Where a time cuts every place of a table."""

    position: TablePosition
    lost: tuple[Place, ...]
    """Places where rows that were committed at or after the time may have been deleted."""


async def find_boundary(
    backend: Backend, config: Config, settings: ScanSettings, timestamp_ms: int
) -> Boundary:
    """The exact cut of a time; `NotYetError` while it is not final.

    Partitions that are created while it is looked for may hold rows from before the time, so
    the look is repeated. Those that come after the last listing cannot: the time had passed then.
    """
    alias = config.resolved_alias()
    view = await observe(backend, alias, settings.path)
    for _ in range(LOOKS_MAX):
        cuts, earliest = await asyncio.gather(
            resolve_timestamp(backend, config, view, timestamp_ms, settings.settle_ms),
            offsets_of(backend, view.info, view.partition_ids(), OffsetSpec.earliest()),
        )
        if not view.info.is_partitioned():
            break
        listed = await backend.list_partitions(settings.path, None)
        if all(partition.partition_id in view.partitions for partition in listed):
            break
        view = await observe(backend, alias, settings.path)
    else:
        raise NotYetError(
            f"{settings.path}: partitions kept being created while {timestamp_ms} was looked for; "
            "ask again soon",
            NOT_YET_RETRY_MS,
        )
    # A cut at the very beginning of what is left says nothing about what was before it.
    lost = tuple(p for p, cut in cuts.items() if 0 < earliest.get(p, 0) == cut)
    return Boundary(TablePosition(view.identity, cuts, {}, view.partitions), lost)
