"""Tiering into Iceberg, without a Flink cluster.

A round takes what is in the log and not in the lake, writes it as files, and commits twice: to
Iceberg, against the snapshot it began with and never repeated, then to Fluss. Fluss may delete what
it is told is in the lake, so it is told only what was counted. Of a log table, rows = sum of
(end - start). Of a key table, all changes were read, and Iceberg has as many rows and deleted keys
as their last images are.

A crash between the commits leaves a snapshot that Fluss does not know. Every round first looks for
such a snapshot and commits it to Fluss; only then the offsets of Fluss are the end of the lake. So
each row is in the lake once, also if several workers try: of those that began with the same
snapshot, only one commits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from fluss_client import (
    BucketCommit,
    FlussConnection,
    OffsetSpec,
    TableBucket,
    TableInfo,
    TablePath,
)
from fluss_client.aio import FlussConnection as AsyncConnection
from fluss_client.engine import async_connection, backend_of, run_blocking, table_info
from fluss_orchestrate.core.checkpoints.events import now_ms
from fluss_orchestrate.core.checkpoints.position import place_order
from fluss_orchestrate.core.errors import RetentionPassedError
from fluss_orchestrate.core.identity import TableIdentity
from fluss_orchestrate.core.incremental.planning.observation import (
    TableView,
    observe_offsets,
    offsets_of,
)
from fluss_orchestrate.core.lake.catalog import (
    explained_by_catalog,
    explained_by_store,
    has_lake,
    load_lake_table,
)
from fluss_orchestrate.core.lake.commits import CONFLICT_PAUSE, commit_append, discard_files
from fluss_orchestrate.core.lake.data_files import delete_files
from fluss_orchestrate.core.lake.errors import (
    CommitConflictError,
    NoLakeError,
    TieringContendedError,
    TieringNotAllowedError,
    TieringVerifyError,
)
from fluss_orchestrate.core.lake.known_lake import (
    COMMIT_USER,
    COMMIT_USER_KEY,
    OFFSETS_KEY,
    Known,
    KnownLake,
    oldest_to_keep,
)
from fluss_orchestrate.core.lake.layout.partitioning import check_bucket_counts
from fluss_orchestrate.core.lake.rewrites import commit_rewrite
from fluss_orchestrate.core.lake.row_delta import RowDelta, commit_row_delta
from fluss_orchestrate.core.lake.tiering_files import (
    RangeWriter,
    TieredFiles,
    TieringProgressHook,
    evolved,
    write_log_ranges,
)
from fluss_orchestrate.core.lake.tiering_keys import write_key_ranges
from fluss_orchestrate.core.metrics import record_receipt
from fluss_orchestrate.core.plan import BucketRange, Place
from fluss_orchestrate.core.receipts import Receipt
from fluss_orchestrate.deprecated import accepts_old_parameters

if TYPE_CHECKING:
    from pyiceberg.table import Table

log = logging.getLogger(__name__)
ROUND_ATTEMPTS_MAX = 20


def write_ranges(
    core: AsyncConnection,
    info: TableInfo,
    table: Table,
    ranges: Sequence[BucketRange],
    progress: TieringProgressHook = lambda *_: None,
) -> TieredFiles:
    """Write the files of a round in this process; the `RangeWriter` that is used by default."""
    write = write_key_ranges if info.has_primary_key() else write_log_ranges
    return write(core, info, table, ranges, progress)


@accepts_old_parameters("tier_table")
def tier_table(
    connection: FlussConnection,
    table: TablePath | str,
    *,
    allow_tiering: bool = False,
    catalog: Mapping[str, str] | None = None,
    progress: TieringProgressHook = lambda *_: None,
    write: RangeWriter = write_ranges,
) -> Receipt:
    """Bring everything that is in a table now into its lake, once. Blocks.

    For tests, demos and small clusters, where no tiering service runs: it does not ask the
    coordinator for the table. Of a key table, a bucket that the lake does not have yet comes from
    its key state, and later rounds bring the last change of each key.

    Args:
        connection: The connection.
        table: The table.
        allow_tiering: Says that no other tiering service works on the table.
        catalog: Properties of the Iceberg catalog that differ from those of the table.
        progress: Called with the rows written so far and the rows of the round.
        write: Who writes the files; the commits are always made here.

    Returns:
        What this call added: rows of the log, or changes of a key table. It has no rows if the
        lake had everything.

    Raises:
        TieringNotAllowedError: `allow_tiering` is not set.
        NoLakeError: The table has no lake.
        RetentionPassedError: A part of the log was deleted before it came into the lake.
        StateUnavailableError: The state of a bucket of a key table cannot be read.
        RowDeltaError: The Iceberg table of a key table cannot take rows by its key.
        TieringVerifyError: What was written is not what the offsets say.
        TieringContendedError: Others kept committing to the Iceberg table.
        CatalogError: The catalog refuses it, or does not answer; the message says what to do.
        CommitUnknownError: A commit failed, and the catalog does not say whether it landed.
        StorageError: The store of the lake refuses a file, or failed; the message says why.
    """
    if not allow_tiering:
        raise TieringNotAllowedError
    path = TablePath.parse(table) if isinstance(table, str) else table
    info = table_info(connection, path)
    return TieringRound(connection, info, catalog, progress=progress, write=write).run()


class TieringRound:
    """Tiers one table once. `confirm` is called right before each commit, and raises to stop it."""

    def __init__(
        self,
        connection: FlussConnection,
        info: TableInfo,
        overrides: Mapping[str, str] | None = None,
        confirm: Callable[[], None] = lambda: None,
        progress: TieringProgressHook = lambda *_: None,
        write: RangeWriter = write_ranges,
    ) -> None:
        if not has_lake(info):
            raise NoLakeError(info.table_path)
        self._connection = connection
        self._backend = backend_of(connection)
        self._alias = connection.config.resolved_alias()
        self._info = info
        self._overrides = overrides
        self._lake = KnownLake(connection, info, confirm)
        self._progress = progress
        self._write = write

    def run(self) -> Receipt:
        """Copy the rows up to the end of the log; begin again if another commit came first.

        Raises:
            TieringContendedError: Other commits came first too often.
        """
        started = now_ms()
        for attempt in range(ROUND_ATTEMPTS_MAX):
            table = self._load()
            store = explained_by_store(table.location(), table.io.properties, "write")
            with explained_by_catalog(table.catalog), store:
                receipt = self._try(started, table)
            if receipt is not None:
                return receipt
            CONFLICT_PAUSE.pause_blocking(attempt)
        raise TieringContendedError(
            self._info.table_path,
            f"{ROUND_ATTEMPTS_MAX} rounds lost against other commits to its Iceberg table",
        )

    def _try(self, started: int, loaded: Table) -> Receipt | None:
        """Make one attempt; return None if it has to begin again."""
        # What the lake holds is what Fluss knows only if both are looked at in this order, and
        # the commit goes against just this table.
        table = evolved(loaded, self._info)
        if table is None:
            return None
        known = self._lake.known()
        if not self._lake.is_current(table, known):
            return None
        view = run_blocking(observe_offsets(self._backend, self._alias, self._info))
        if not self._has_newest_schema():
            return None
        check_bucket_counts(table, self._info, view.latest)
        ranges = self._ranges(view, known)
        if not ranges:
            return self._receipt(started, known.snapshot_id, None, view)
        files = self._write(
            async_connection(self._connection), self._info, table, ranges, self._progress
        )
        ends = {**known.offsets, **{r.place: r.stop for r in files.ranges}}
        try:
            path = self._prepare(files, ends)
        except BaseException:
            delete_files(table, files.paths)
            raise
        summary = {COMMIT_USER_KEY: COMMIT_USER, OFFSETS_KEY: path}
        try:
            snapshot_id = self._commit(table, files, summary)
        except CommitConflictError as error:
            log.info("%s: another commit came first: %s", self._info.table_path, error)
            discard_files([table], table, files.paths)
            return None
        self._verify(snapshot_id, files)
        buckets = [
            BucketCommit(self._bucket(place), end, files.newest_ms.get(place, -1))
            for place, end in ends.items()
            if place in view.latest
        ]
        self._tell_fluss(known, snapshot_id, path, buckets, oldest_to_keep(table))
        return record_receipt(self._receipt(started, snapshot_id, files, view))

    def _commit(self, table: Table, files: TieredFiles, summary: Mapping[str, str]) -> int:
        if files.replaced:
            return commit_rewrite(
                table, files.replaced, files.files, summary, added_deletes=files.deletes
            )
        if self._info.has_primary_key():
            return commit_row_delta(table, RowDelta(files.files, files.deletes), summary)
        return commit_append(table, files.files, summary)

    def _has_newest_schema(self) -> bool:
        """Return whether no row that existed when the offsets were read has other columns."""
        newest = run_blocking(self._backend.get_table_info(self._info.table_path))
        if newest.table_id == self._info.table_id and newest.schema_id != self._info.schema_id:
            self._info = newest
            return False
        return True

    def _load(self) -> Table:
        return load_lake_table(self._info, self._alias, self._overrides)

    def _tell_fluss(
        self,
        known: Known,
        snapshot_id: int,
        path: str,
        buckets: Sequence[BucketCommit],
        keep: int,
    ) -> None:
        self._lake.tell(known, snapshot_id, path, buckets, keep)

    def _ranges(self, view: TableView, known: Known) -> list[BucketRange]:
        if not view.latest:
            return []
        ids = view.partition_ids()
        earliest = run_blocking(offsets_of(self._backend, self._info, ids, OffsetSpec.earliest()))
        ranges, lost = [], []
        for place in sorted(view.latest, key=place_order):
            first = earliest.get(place, 0)
            # A bucket of a key table that was never tiered comes from its state, not from its log.
            unknown = 0 if self._info.has_primary_key() else first
            start = max(0, known.offsets.get(place, unknown))
            if start < first and not (start == 0 and self._info.has_primary_key()):
                lost.append(view.range_of(place, start, first))
            if start < view.latest[place]:
                ranges.append(view.range_of(place, start, view.latest[place]))
        if lost:
            identity = TableIdentity.of(self._alias, self._info)
            raise RetentionPassedError(identity, lost, "it never came into the lake")
        return ranges

    def _prepare(self, files: TieredFiles, ends: Mapping[Place, int]) -> str:
        expected = sum(r.count for r in files.ranges)
        # Changes of a key table are counted where they are read: empty batches use up offsets too.
        if files.rows != expected and not self._info.has_primary_key():
            raise TieringVerifyError(
                self._info.table_path,
                f"{files.rows} rows were read for {expected} offsets; nothing was committed",
            )
        return self._lake.prepare(ends)

    def _verify(self, snapshot_id: int, files: TieredFiles) -> None:
        """Compare with Iceberg's own count of rows before anything is committed to Fluss."""
        mine = self._load().snapshot_by_id(snapshot_id)
        is_log = not self._info.has_primary_key()
        rows = sum(r.count for r in files.ranges) if is_log else files.data_rows
        wanted = {"added-records": rows, "added-equality-deletes": files.deleted_keys}
        for name, expected in wanted.items():
            counted = None if mine is None or mine.summary is None else mine.summary[name]
            if mine is None or int(counted or 0) != expected:
                raise TieringVerifyError(
                    self._info.table_path,
                    f"Iceberg has {name}={counted} in snapshot {snapshot_id}, not {expected}; "
                    "nothing was committed to Fluss",
                )

    def _bucket(self, place: Place) -> TableBucket:
        return TableBucket(self._info.table_id, place[1], partition_id=place[0])

    def _receipt(
        self, started: int, snapshot_id: int | None, files: TieredFiles | None, view: TableView
    ) -> Receipt:
        # A bucket that comes from its key state may end behind what was looked at before.
        ends = {} if files is None else {r.place: r.stop for r in files.ranges}
        return Receipt(
            kind="tier",
            table=TableIdentity.of(self._alias, self._info),
            ranges=() if files is None else tuple(files.ranges),
            rows=0 if files is None else files.rows,
            bytes=0 if files is None else files.bytes,
            snapshot_id=snapshot_id,
            started_ms=started,
            finished_ms=now_ms(),
            details=_details(files),
            position={**view.latest, **ends},
        )


def _details(files: TieredFiles | None) -> dict[str, int]:
    if files is None:
        return {"files": 0}
    found = {"files": len(files.files)}
    if files.deletes or files.data_rows != files.rows:
        found |= {
            "delete_files": len(files.deletes),
            "rows_written": files.data_rows,
            "keys_deleted": files.deleted_keys,
        }
    return found
