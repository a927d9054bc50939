"""How many offsets make so many bytes, by a sample of the log.

Servers tell rows, not bytes, so a few batches are fetched and weighed in Arrow's form, which is
what a reader has to hold. What comes of it is an estimate: a limit in bytes is a hint, one in
offsets is exact.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from fluss_client.errors import LogOffsetOutOfRangeError
from fluss_orchestrate.core.incremental.probe import Prober
from fluss_orchestrate.core.plan import Place

SAMPLED_PLACES_MAX = 8
SAMPLE_BYTES = 64 << 10
DEFAULT_ROW_BYTES = 100.0
"""Of rows that cannot be looked at, because only the lake has them."""


async def row_bytes(
    prober: Prober, starts: Mapping[Place, int], stops: Mapping[Place, int]
) -> float:
    """Bytes of a row in these ranges, by the start and the middle of the largest ones."""
    backlogs = {place: stop - starts.get(place, 0) for place, stop in stops.items()}
    largest = sorted(backlogs, key=lambda place: -backlogs[place])[:SAMPLED_PLACES_MAX]
    probes = [
        (place, starts.get(place, 0) + within)
        for place in largest
        if backlogs[place] > 0
        for within in dict.fromkeys((0, backlogs[place] // 2))
    ]

    async def one(place: Place, offset: int) -> tuple[int, int]:
        try:
            return await prober.sizes(place, offset, SAMPLE_BYTES)
        except LogOffsetOutOfRangeError:
            return 0, 0

    found = await asyncio.gather(*(one(place, offset) for place, offset in probes))
    rows, size = (sum(column) for column in zip(*found, strict=True)) if found else (0, 0)
    return size / rows if rows else DEFAULT_ROW_BYTES


async def offsets_of_bytes(
    prober: Prober, starts: Mapping[Place, int], stops: Mapping[Place, int], bytes_max: int
) -> int:
    """About how many offsets of these ranges take `bytes_max`; at least one."""
    return max(1, int(bytes_max / await row_bytes(prober, starts, stops)))
