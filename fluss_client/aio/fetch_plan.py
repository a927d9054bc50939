"""Which buckets the next fetch of a node asks for, and for how much.

What was fetched and not yet handed out has a bound: `PREFETCH_FACTOR` times the bytes of a fetch,
shared evenly by the nodes, and within a node by the buckets that have something to read; a bucket
that holds its share is left out. (An urgent bucket may hold as much as a whole node, so that the
bound is twice as high where there is one.) The bytes of a fetch are `scanner.log.fetch.max-bytes`,
or less where a process has many scans: together they hold `PROCESS_BYTES_MAX` at most.

A server keeps a fetch waiting until one of its buckets has something. Therefore buckets at their
end are not asked for while another one of the node is left out for being full: its turn would
have to wait for them.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from fluss_client.aio.fetch_state import BucketState
from fluss_client.backend.contract import FetchPosition, FetchRequest
from fluss_client.config import Config
from fluss_client.model.table import TableInfo

PREFETCH_FACTOR = 2
PROCESS_BYTES_MAX = 256 << 20
"""What all scans of a process may hold ahead of their readers."""
FETCH_BYTES_MIN = 64 << 10
"""The least that a fetch asks for, however many nodes share the bound."""
FIRST_FETCH_BYTES = 1 << 20
"""What the first fetch of a node asks for; each one after it asks for twice as much, up to the
bound. So decoding starts early, and what it has to do lasts until the next answer is there."""


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """What to ask a node for now, and when to look again because of a bucket that failed."""

    chosen: list[BucketState]
    bytes_max: int
    waits: bool
    """Whether the server may wait for something to arrive."""
    look_again_at: float


def fetch_bytes_max(config: Config, scans: int) -> int:
    """The most that one fetch asks for, while so many scans share the process."""
    fair = PROCESS_BYTES_MAX // PREFETCH_FACTOR // max(1, scans)
    return min(config.scanner_log_fetch_max_bytes, max(fair, FETCH_BYTES_MIN))


def plan_fetch(
    states: Collection[BucketState],
    fetch_max: int,
    *,
    nodes: int,
    now: float,
    wanted: bool,
    urgent: BucketState | None,
    bytes_max: int | None = None,
) -> FetchPlan:
    """The next fetch of a node with these buckets; `wanted` says whether someone waits for rows.

    While nobody waits, only buckets that are known to have more are fetched ahead. `bytes_max`
    bounds this fetch further.
    """
    share = max(PREFETCH_FACTOR * fetch_max // max(1, nodes), 2 * FETCH_BYTES_MIN)
    size = min(fetch_max, share // 2)
    room = sum(state.buffered for state in states) + size <= share
    reading = sum(1 for state in states if state.buffered or not state.at_end)
    bucket_share = share // max(1, reading)
    look_again_at = math.inf
    chosen = []
    left_out = False
    for state in states:
        if state.busy or state.error is not None or state.fetched_all:
            continue
        if state.retry_at > now:
            look_again_at = min(look_again_at, state.retry_at)
        elif (room and state.buffered < bucket_share) or (
            state is urgent and state.buffered + size <= share
        ):
            chosen.append(state)
        else:
            left_out = True
    if left_out or not wanted:
        chosen = [s for s in chosen if not s.at_end or (s is urgent and wanted)]
    asked = size if bytes_max is None else min(size, bytes_max)
    return FetchPlan(chosen, asked, not left_out or urgent in chosen, look_again_at)


def make_request(
    plan: FetchPlan, table: TableInfo, columns: tuple[int, ...] | None, config: Config
) -> FetchRequest:
    """The plan as a request. Unless set by the user, few buckets may give more bytes each."""
    bucket_bytes = config.scanner_log_fetch_max_bytes_for_bucket
    if Config.scanner_log_fetch_max_bytes_for_bucket.key not in config.to_dict():
        reading = sum(1 for state in plan.chosen if not state.at_end)
        bucket_bytes = max(bucket_bytes, plan.bytes_max // max(1, reading))
    return FetchRequest(
        table=table,
        positions=[FetchPosition(s.bucket, s.offset, bucket_bytes) for s in plan.chosen],
        columns=columns,
        bytes_max=plan.bytes_max,
        bytes_min=config.scanner_log_fetch_min_bytes,
        wait_ms=config.scanner_log_fetch_wait_max_time_ms if plan.waits else 0,
    )
