"""What a commit stores beside offsets: when the last batch of each range was committed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from fluss_client.errors import FlussError
from fluss_client.facade.connection import FlussConnection
from fluss_client.runtime import runtime
from fluss_orchestrate.core.incremental.probe import Prober
from fluss_orchestrate.core.plan import BucketRange, Place, ScanPlan

PLACES_AT_ONCE_MAX = 32


def last_commit_times(
    connection: FlussConnection, plan: ScanPlan, known: Mapping[tuple[Place, int], int]
) -> dict[Place, int]:
    """Commit times of the batches that hold the last offset of each range.

    Those that the reader saw are `known`; the others, of a plan that was read elsewhere, are asked
    for. One that cannot be had is left out: the next plan then trusts the offsets alone.
    """
    ends = [(r, (r.place, r.stop)) for r in plan.ranges]
    missing = [r for r, end in ends if end not in known]
    times = {r.place: known[end] for r, end in ends if end in known}
    if missing:
        times |= runtime().call(_ask(connection, plan, missing))
    return times


async def _ask(
    connection: FlussConnection, plan: ScanPlan, ranges: list[BucketRange]
) -> dict[Place, int]:
    core = connection.core
    try:
        info = await core.backend.get_table_info(plan.table.path)
    except FlussError:
        return {}
    if info.table_id != plan.table.table_id:
        return {}
    prober = Prober(core.backend, core.config, info)
    gate = asyncio.Semaphore(PLACES_AT_ONCE_MAX)

    async def one(r: BucketRange) -> tuple[Place, int] | None:
        async with gate:
            try:
                mark = await prober.batch_at(r.place, r.stop - 1)
            except FlussError:
                return None
        return None if mark is None else (r.place, mark.commit_ms)

    found = await asyncio.gather(*(one(r) for r in ranges))
    return dict(pair for pair in found if pair is not None)
