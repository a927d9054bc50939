"""What Fluss knows of a table's lake, and telling it of a snapshot.

A snapshot of tiering carries the path of its offsets in its summary. A crash between the commit to
Iceberg and the one to Fluss leaves a snapshot that Fluss does not know. Whoever commits next makes
it known first; only then are Fluss's offsets the end of the lake.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fluss_client import BucketCommit, FlussConnection, TableBucket, TableInfo
from fluss_client.engine import backend_of, run_blocking
from fluss_client.errors import LakeSnapshotNotExistError
from fluss_orchestrate.core.lake.errors import LakeError, LakeRangeError
from fluss_orchestrate.core.plan import Place

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

log = logging.getLogger(__name__)
COMMIT_USER_KEY, COMMIT_USER = "commit-user", "__fluss_lake_tiering"
OFFSETS_KEY = "fluss-offsets"
KEEP_ALL_SNAPSHOTS = -1
SNAPSHOTS_KEPT = 10
"""How many snapshots Fluss keeps the offsets of."""


@dataclass(frozen=True, slots=True)
class Known:
    """What Fluss knows of a table's lake: a snapshot (None before the first) and its offsets."""

    snapshot_id: int | None
    offsets: Mapping[Place, int]


@dataclass(frozen=True, slots=True)
class KnownLake:
    """The lake of one table as Fluss knows it.

    Attributes:
        connection: The connection.
        info: The table.
        confirm: Called right before each commit to Fluss; it raises to stop the commit.
    """

    connection: FlussConnection
    info: TableInfo
    confirm: Callable[[], None] = lambda: None

    def known(self, snapshot_id: int | None = None) -> Known:
        """Ask Fluss for the newest snapshot, or for one of an id; `Known(None, {})` without one."""
        backend = backend_of(self.connection)
        try:
            found = run_blocking(
                backend.get_lake_snapshot(self.info.table_path, snapshot_id, False)
            )
        except LakeSnapshotNotExistError:
            return Known(None, {})
        offsets = {
            (b.partition_id, b.bucket_id): offset
            for b, offset in found.table_buckets_offset.items()
        }
        return Known(found.snapshot_id, offsets)

    def is_current(self, table: Table, known: Known) -> bool:
        """Whether Fluss has the newest snapshot of tiering; after a crash it is committed now.

        Raises:
            LakeError: Iceberg does not have the snapshot that Fluss knows, or a snapshot of tiering
                does not say which offsets it holds.
        """
        newest = newest_tiered(table)
        if known.snapshot_id == (None if newest is None else newest.snapshot_id):
            return True
        if known.snapshot_id is not None:
            last = table.refresh().snapshot_by_id(known.snapshot_id)
            if last is None:
                raise LakeError(
                    self.info.table_path,
                    f"Fluss knows lake snapshot {known.snapshot_id}, the Iceberg table does not: "
                    "it was rolled back, or expired though it was in use; put it back first",
                )
            if newest is None or (last.sequence_number or 0) >= (newest.sequence_number or 0):
                # Another worker has committed since the table was loaded.
                return False
        assert newest is not None
        log.warning(
            "%s: telling Fluss of lake snapshot %s, which it does not know",
            self.info.table_path,
            newest.snapshot_id,
        )
        # Tablet servers get the offsets with the next commit, which names every bucket.
        path = self.offsets_path(newest)
        self.tell(known, newest.snapshot_id, path, [], KEEP_ALL_SNAPSHOTS)
        return False

    def offsets_path(self, snapshot: Snapshot) -> str:
        """Return where the offsets of a snapshot of tiering are stored."""
        path = None if snapshot.summary is None else snapshot.summary[OFFSETS_KEY]
        if path is None:
            raise LakeError(
                self.info.table_path,
                f"Iceberg snapshot {snapshot.snapshot_id} does not say which offsets it holds",
            )
        return str(path)

    def prepare(self, ends: Mapping[Place, int]) -> str:
        """Store offsets for a snapshot, and return their path.

        All offsets, not only those that moved: what the lake holds then depends on nothing that
        another worker tells Fluss meanwhile. Every snapshot has a path of its own, because Fluss
        deletes the file when it forgets a snapshot.
        """
        self.confirm()
        table_id = self.info.table_id
        offsets = {TableBucket(table_id, b, partition_id=p): end for (p, b), end in ends.items()}
        return run_blocking(
            backend_of(self.connection).prepare_lake_snapshot(
                self.info, offsets, ignore_previous=True
            )
        )

    def tell(
        self,
        known: Known,
        snapshot_id: int,
        path: str,
        buckets: Sequence[BucketCommit],
        oldest_to_keep: int,
    ) -> None:
        """Commit a snapshot to Fluss, unless Fluss knows another one than `known` by now."""
        self.confirm()
        if self.known().snapshot_id != known.snapshot_id:
            # Another worker has committed it to Fluss already, and may have committed more since.
            return
        run_blocking(
            backend_of(self.connection).commit_lake_snapshot(
                self.info, snapshot_id, path, buckets, oldest_to_keep
            )
        )


@contextmanager
def reading(info: TableInfo, table: Table, snapshot_id: int) -> Iterator[None]:
    """Tell a file that is missing because the snapshot was expired from one that is lost.

    Raises:
        LakeRangeError: The snapshot was expired while it was read.
    """
    try:
        yield
    except FileNotFoundError as error:
        if table.refresh().snapshot_by_id(snapshot_id) is not None:
            raise
        raise LakeRangeError(
            info.table_path,
            f"lake snapshot {snapshot_id} was expired while it was read: read again, pin the lake "
            "while you read (pin_lake), or let maintenance keep snapshots for longer "
            "(snapshot_age_ms)",
        ) from error


def tiered_snapshots(table: Table) -> list[Snapshot]:
    """The snapshots of the table's main line that tiering made, the newest first."""
    found = []
    at = table.current_snapshot()
    while at is not None:
        if at.summary is not None and at.summary[COMMIT_USER_KEY] == COMMIT_USER:
            found.append(at)
        at = None if at.parent_snapshot_id is None else table.snapshot_by_id(at.parent_snapshot_id)
    return found


def newest_tiered(table: Table) -> Snapshot | None:
    """The newest snapshot that tiering made."""
    return next(iter(tiered_snapshots(table)), None)


def oldest_to_keep(table: Table) -> int:
    """The oldest snapshot whose offsets Fluss shall keep."""
    made = tiered_snapshots(table)
    if len(made) < SNAPSHOTS_KEPT:
        return KEEP_ALL_SNAPSHOTS
    oldest: int = made[SNAPSHOTS_KEPT - 1].snapshot_id
    return oldest
