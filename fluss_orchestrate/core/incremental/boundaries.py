"""Resolving a boundary of intervals, and noticing what retention has taken before it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from fluss_client.backend.contract import Backend
from fluss_client.config import Config
from fluss_client.model.cluster import OffsetSpec
from fluss_orchestrate.core.checkpoints.position import TablePosition
from fluss_orchestrate.core.incremental.observe import observe, offsets_of
from fluss_orchestrate.core.incremental.resolve import resolve_timestamp
from fluss_orchestrate.core.incremental.settings import ScanSettings
from fluss_orchestrate.core.plan import Place


@dataclass(frozen=True, slots=True)
class Boundary:
    """Where a time cuts every place of a table."""

    position: TablePosition
    lost: tuple[Place, ...]
    """Places where rows that were committed at or after the time may have been deleted."""


async def find_boundary(
    backend: Backend, config: Config, settings: ScanSettings, timestamp_ms: int
) -> Boundary:
    """The exact cut of a time; `NotYetError` while it is not final."""
    view = await observe(backend, config.resolved_alias(), settings.path)
    cuts, earliest = await asyncio.gather(
        resolve_timestamp(backend, config, view, timestamp_ms, settings.settle_ms),
        offsets_of(backend, view.info, view.partition_ids(), OffsetSpec.earliest()),
    )
    # A cut at the very beginning of what is left says nothing about what was before it.
    lost = tuple(p for p, cut in cuts.items() if 0 < earliest.get(p, 0) == cut)
    return Boundary(TablePosition(view.identity, cuts, {}, view.partitions), lost)
