"""The rows of a key table at the exact offsets of a plan.

A plan of kind `state` names one offset per bucket. `read_state` returns the rows that each bucket
had at its offset, in key order, however often and however late it is called, as long as the
changelog from that offset on is kept. The buckets together are not one snapshot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from fluss_client import TableInfo
from fluss_client.aio import FlussConnection as AsyncConnection
from fluss_client.engine import BlockingState, StateSource, check_old_rows
from fluss_client.errors import LogOffsetOutOfRangeError, StateUnavailableError
from fluss_orchestrate.core.errors import RetentionPassedError
from fluss_orchestrate.core.incremental.planning.guards import UNKNOWN_END
from fluss_orchestrate.core.incremental.reading.columns import STATE_OFFSET, Rows
from fluss_orchestrate.core.plan import BucketRange, ScanPlan


@dataclass(slots=True)
class StateCost:
    """The cost of reading the state of some buckets.

    Attributes:
        sources: How many buckets came from a KV snapshot, the changelog alone, a limit scan or a
            local directory.
        bytes_fetched: Bytes of the snapshots' files.
        changes: Changes of the changelog that were laid over.
        snapshot_age_ms: The age of the oldest snapshot when it was opened, or None.
    """

    sources: Counter[str] = field(default_factory=Counter)
    bytes_fetched: int = 0
    changes: int = 0
    snapshot_age_ms: int | None = None

    def add(self, source: StateSource) -> None:
        """Add the cost of one bucket."""
        self.sources[source.kind] += 1
        self.bytes_fetched += source.bytes_fetched
        self.changes += source.changes
        if source.snapshot_age_ms is not None:
            self.snapshot_age_ms = max(source.snapshot_age_ms, self.snapshot_age_ms or 0)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values, for receipts."""
        return {
            "sources": dict(self.sources),
            "bytes_fetched": self.bytes_fetched,
            "changes": self.changes,
            "snapshot_age_ms": self.snapshot_age_ms,
        }


def read_state(
    core: AsyncConnection, plan: ScanPlan, table: TableInfo, cost: StateCost
) -> Iterator[tuple[Rows, BucketRange]]:
    """Return the rows of every range's bucket at the range's stop, one bucket after the other.

    Blocks. The last batch of a bucket has the whole range, those before it an empty one, so that
    progress adds up. What each bucket cost is added to `cost`.

    Raises:
        RetentionPassedError: The changelog after the wanted offset was deleted.
        StateUnavailableError: No snapshot can be read, and the bucket is too large to be scanned.
        UnsupportedError: The changelog of the table has no old rows, and the plan is recorded, or
            its offsets are earlier than those of the state that there is.
    """
    if plan.sequence >= 0:
        # Only a state that can be taken back is read alike by every attempt of a recorded plan.
        check_old_rows(table)
    for where in plan.ranges:
        with _opened(core, plan, table, where) as state:
            for batch in state:
                yield Rows(batch, None, STATE_OFFSET, STATE_OFFSET), _nothing_of(where)
            cost.add(state.source)
            yield Rows(state.no_rows(), None, STATE_OFFSET, STATE_OFFSET), where


def _opened(
    core: AsyncConnection, plan: ScanPlan, table: TableInfo, where: BucketRange
) -> BlockingState:
    bucket = where.table_bucket(table.table_id)
    try:
        return BlockingState(core, table, bucket, stop=where.stop, columns=plan.columns)
    except LogOffsetOutOfRangeError as error:
        lost = BucketRange(
            where.partition_id, where.partition, where.bucket, where.stop, UNKNOWN_END
        )
        hint = "the state at that offset cannot be read any more; `abandon` the plan"
        raise RetentionPassedError(plan.table, [lost], hint) from error
    except StateUnavailableError as error:
        if plan.sequence >= 0:
            error.message += f". The plan of '{plan.name}' stays pending"
        raise


def _nothing_of(where: BucketRange) -> BucketRange:
    return BucketRange(where.partition_id, where.partition, where.bucket, where.start, where.start)
