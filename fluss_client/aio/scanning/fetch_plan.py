"""Which buckets the next fetch from a server asks for, and for how many bytes.

Rows that were fetched and not yet returned to the user have a bound: `PREFETCH_FACTOR` times the
bytes of a fetch. The servers share it evenly, and so do the buckets of a server that have something
to read. A bucket that holds its share is left out of the fetch. The urgent bucket, which an ordered
read waits for, may hold the share of a whole server. The bytes of a fetch are
`scanner.log.fetch.max-bytes`, or less if a process has many scans: all scans together hold at most
`PROCESS_BYTES_MAX`.

A read that ends at an offset asks for about the bytes that are left up to there, as soon as it
knows how many bytes an offset has: what lies beyond would be thrown away.

A server delays the answer to a fetch until one of its buckets has rows. So buckets at the end of
their log are not asked for while another bucket is left out because it is full: when that bucket
has room again, it would have to wait for them.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from fluss_client.aio.scanning.bucket_state import BucketState
from fluss_client.backend.contract import FetchPosition, FetchRequest
from fluss_client.config import Config
from fluss_client.model.predicate import Predicate
from fluss_client.model.table import TableInfo

PREFETCH_FACTOR = 2
PROCESS_BYTES_MAX = 256 << 20
"""The bytes that all scans of a process may hold ahead of their readers."""
FETCH_BYTES_MIN = 64 << 10
"""The least bytes that a fetch asks for, however many servers share the bound."""
FIRST_FETCH_BYTES = 1 << 20
"""The bytes that the first fetch from a server asks for. Each fetch after it asks for twice as
many, up to the bound. So decoding starts early, and lasts until the next answer arrives."""


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """The next fetch from a server, and when to plan again because a failed bucket is retried."""

    chosen: list[BucketState]
    bytes_max: int
    waits: bool
    """Whether the server may delay its answer until rows arrive."""
    look_again_at: float


def fetch_bytes_max(config: Config, scans: int) -> int:
    """Return the most bytes that one fetch asks for, if the process has so many scans."""
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
    """Return the next fetch from a server.

    Args:
        states: The buckets that the server leads.
        fetch_max: The most bytes of a fetch.
        nodes: How many servers share the bound.
        now: The time of the event loop.
        wanted: Whether a caller waits for rows. If not, only buckets that are known to have more
            rows are fetched ahead.
        urgent: The bucket that an ordered read waits for.
        bytes_max: A further bound of this fetch.
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
    plan: FetchPlan,
    table: TableInfo,
    columns: tuple[int, ...] | None,
    config: Config,
    predicate: Predicate | None = None,
) -> FetchRequest:
    """Return the request of a plan.

    Unless the user has set the bytes of a bucket, the buckets of the fetch share all of its bytes.
    """
    bucket_bytes = config.scanner_log_fetch_max_bytes_for_bucket
    if Config.scanner_log_fetch_max_bytes_for_bucket.key not in config.to_dict():
        reading = sum(1 for state in plan.chosen if not state.at_end)
        bucket_bytes = max(bucket_bytes, plan.bytes_max // max(1, reading))
    return FetchRequest(
        table=table,
        positions=[
            FetchPosition(s.bucket, s.offset, _within(s.bytes_left, bucket_bytes))
            for s in plan.chosen
        ],
        columns=columns,
        bytes_max=plan.bytes_max,
        bytes_min=config.scanner_log_fetch_min_bytes,
        wait_ms=config.scanner_log_fetch_wait_max_time_ms if plan.waits else 0,
        predicate=predicate,
        remote_first=config.scanner_log_read_preference == "remote_first",
    )


def _within(left: int | None, bytes_max: int) -> int:
    """Return the bytes to ask for of a bucket of which so many are left."""
    return bytes_max if left is None else min(bytes_max, left)
