"""Maintenance of a table's lake in one call: compact, expire, remove orphans.

Each step commits by itself, so a run that dies loses only the step that it was at, and the next run
goes on. A commit that loses a race against tiering is tried again. A compaction is a snapshot with
the same offsets as the one before it, and is committed to Fluss as a round of tiering is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from fluss_client import FlussConnection, TableInfo, TablePath
from fluss_client.engine import table_info
from fluss_client.errors import ConfigError, UnknownServerError
from fluss_orchestrate.core.checkpoints.events import now_ms
from fluss_orchestrate.core.lake.catalog import (
    catalog_properties,
    explained_by_catalog,
    explained_by_store,
    has_lake,
    load_lake_table,
)
from fluss_orchestrate.core.lake.commits import CONFLICT_PAUSE, discard_files
from fluss_orchestrate.core.lake.data_files import FILE_BYTES_MAX, delete_files
from fluss_orchestrate.core.lake.equality_deletes import live_files
from fluss_orchestrate.core.lake.errors import (
    CommitConflictError,
    LakeContendedError,
    LakeRangeError,
    NoLakeError,
)
from fluss_orchestrate.core.lake.known_lake import (
    COMMIT_USER,
    COMMIT_USER_KEY,
    OFFSETS_KEY,
    SNAPSHOTS_KEPT,
    KnownLake,
    oldest_to_keep,
)
from fluss_orchestrate.core.lake.maintenance import compaction, expiry
from fluss_orchestrate.core.lake.rewrites import commit_rewrite

if TYPE_CHECKING:
    from pyiceberg.table import Table

log = logging.getLogger(__name__)
ATTEMPTS_MAX = 20
HOUR_MS = 3_600_000
LOCAL = compaction.LocalGroupWriter()
ORPHAN_AGE_MIN_MS = HOUR_MS
"""Younger files may belong to a round of tiering that is not committed yet."""


@dataclass(frozen=True, slots=True)
class MaintenanceSettings:
    """What maintenance does.

    Attributes:
        compact: Whether to write small files, and files with deletes, as few files.
        expire: Whether to remove old snapshots and their files.
        remove_orphans: Whether to delete files that nothing refers to.
        target_file_bytes: The wanted size of a data file.
        keep_snapshots: How many of the newest snapshots stay. Those that Fluss knows, and those
            that a branch or a tag names, stay as well.
        snapshot_age_ms: Only snapshots older than this are removed. A reader that is slower than
            this needs a pin (`pin_lake`).
        orphan_age_ms: Only orphans older than this are deleted, at least one hour. It must be
            longer than any round of tiering.
    """

    compact: bool = True
    expire: bool = True
    remove_orphans: bool = True
    target_file_bytes: int = FILE_BYTES_MAX
    keep_snapshots: int = SNAPSHOTS_KEPT
    snapshot_age_ms: int = 5 * 24 * HOUR_MS
    orphan_age_ms: int = 3 * 24 * HOUR_MS

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> MaintenanceSettings:
        """Return settings from plain values.

        Args:
            values: The values by field. Text, as templates and commands give it, is converted.

        Raises:
            ConfigError: A name is unknown, or a value does not fit.
        """
        kinds = {f.name: type(f.default) for f in fields(cls)}
        found: dict[str, Any] = {}
        for name, value in values.items():
            if name not in kinds:
                raise ConfigError(f"maintenance has no setting '{name}'; it has {list(kinds)}")
            found[name] = _converted(name, value, kinds[name])
        return cls(**found)

    def __post_init__(self) -> None:
        if self.orphan_age_ms < ORPHAN_AGE_MIN_MS:
            raise ConfigError(
                f"orphan_age_ms must be at least {ORPHAN_AGE_MIN_MS}: younger files may belong to "
                f"a round of tiering that is not committed yet, not {self.orphan_age_ms}"
            )
        if self.target_file_bytes < 1 or self.keep_snapshots < 1 or self.snapshot_age_ms < 0:
            raise ConfigError(
                "target_file_bytes and keep_snapshots must be at least 1, snapshot_age_ms at least "
                "0"
            )


def _converted(name: str, value: Any, kind: type) -> Any:
    if kind is bool:
        text = str(value).lower()
        if text in ("true", "false"):
            return text == "true"
    else:
        try:
            return int(value)
        except (TypeError, ValueError):
            pass
    raise ConfigError(f"setting '{name}' takes {kind.__name__}, not {value!r}")


@dataclass(frozen=True, slots=True)
class LakeMaintenance:
    """What maintenance did, or would do.

    Attributes:
        table: The table, as `database.table`.
        dry_run: Whether nothing was changed.
        snapshot_id: The newest snapshot afterwards.
        files_before: Data files before.
        files_after: Data files afterwards; in a dry run, at least so many.
        files_rewritten: Data files that were written as others.
        deletes_removed: Delete files that are not needed any more.
        snapshots_expired: Snapshots that were removed.
        files_deleted: Files of expired snapshots that were deleted.
        orphans_deleted: Files that nothing referred to.
        orphan_bytes: The size of these.
    """

    table: str
    dry_run: bool = False
    snapshot_id: int | None = None
    files_before: int = 0
    files_after: int = 0
    files_rewritten: int = 0
    deletes_removed: int = 0
    snapshots_expired: int = 0
    files_deleted: int = 0
    orphans_deleted: int = 0
    orphan_bytes: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        would = "would be " if self.dry_run else ""
        return (
            f"{self.table}: {self.files_rewritten} data files {would}rewritten "
            f"({self.files_before} before, {self.files_after} after), "
            f"{self.deletes_removed} delete files, {self.snapshots_expired} snapshots with "
            f"{self.files_deleted} files and {self.orphans_deleted} orphans {would}removed"
        )


def maintain_lake(
    connection: FlussConnection,
    table: TablePath | str,
    *,
    settings: MaintenanceSettings | None = None,
    dry_run: bool = False,
    catalog: Mapping[str, str] | None = None,
    write: compaction.GroupWriter = LOCAL,
) -> LakeMaintenance:
    """Compact the lake of a table, expire its snapshots and remove orphans. Blocks.

    It may run beside tiering and readers. Rows do not change. Snapshots that Fluss knows, and those
    that a branch or a tag names, stay.

    Args:
        connection: The connection.
        table: The table: a log table or a key table.
        settings: What to do.
        dry_run: Only tell what would be done.
        catalog: Properties of the Iceberg catalog that differ from those of the table.
        write: Who writes the files of a compaction. By default, this process; for large tables,
            the executors of Spark (`fluss_orchestrate.spark.SparkGroupWriter`). This process alone
            commits them.

    Returns:
        What was done.

    Raises:
        NoLakeError: The table has no lake.
        EqualityDeleteError: Deletes cannot be applied, so files cannot be written anew.
        LakeContendedError: Others kept committing to the Iceberg table.
        CatalogError: The catalog refuses it, or does not answer; the message says what to do.
        StorageError: The store of the lake refuses a file, or failed; the message says why.
        UnsupportedError: The files of the table cannot be listed.
    """
    path = TablePath.parse(table) if isinstance(table, str) else table
    info = table_info(connection, path)
    if not has_lake(info):
        raise NoLakeError(path)
    work = _Maintenance(connection, info, settings or MaintenanceSettings(), catalog, write)
    lake = catalog_properties(info, connection.config.resolved_alias(), catalog)
    with explained_by_store(lake.get("warehouse", ""), lake, "read" if dry_run else "write"):
        return work.dry_run() if dry_run else work.run()


class _Maintenance:
    """One run of maintenance."""

    def __init__(
        self,
        connection: FlussConnection,
        info: TableInfo,
        settings: MaintenanceSettings,
        overrides: Mapping[str, str] | None,
        write: compaction.GroupWriter,
    ) -> None:
        self._info = info
        self._write = write
        self._settings = settings
        self._alias = connection.config.resolved_alias()
        self._overrides = overrides
        self._lake = KnownLake(connection, info)
        self._done = LakeMaintenance(str(info.table_path))

    def _load(self) -> Table:
        return load_lake_table(self._info, self._alias, self._overrides)

    def _plan(self, table: Table) -> list[compaction.Group]:
        keep_order = not self._info.has_primary_key()
        size = self._settings.target_file_bytes
        path = self._info.table_path
        return compaction.plan_compaction(table, path, size, keep_order=keep_order)

    def _is_known(self, snapshot_id: int) -> bool:
        try:
            return self._lake.known(snapshot_id).snapshot_id is not None
        except UnknownServerError as error:
            # The server forgets the snapshot just now, or lost its offsets: the next run asks.
            log.info("%s: snapshot %s stays: %s", self._info.table_path, snapshot_id, error)
            return True

    def _expirable(self, table: Table) -> list[Any]:
        settings = self._settings
        before_ms = now_ms() + 1 - settings.snapshot_age_ms
        return expiry.expirable(table, settings.keep_snapshots, before_ms, self._is_known)

    def dry_run(self) -> LakeMaintenance:
        """Return what each step would do now, independently of the other steps."""
        self._repeated("a dry run", self._count)
        return self._done

    def _count(self, table: Table) -> bool:
        settings = self._settings
        count = len(live_files(table))
        groups = self._plan(table) if settings.compact else []
        rewritten = sum(len(group.files) for group in groups)
        expired = self._expirable(table) if settings.expire else []
        gone = {snapshot.snapshot_id for snapshot in expired}
        kept = [s for s in table.metadata.snapshots if s.snapshot_id not in gone]
        unused = expiry.files_of(table, expired) - expiry.files_of(table, kept) if expired else ()
        orphans = list(self._orphans(table)) if settings.remove_orphans else []
        self._done = replace(
            self._done,
            dry_run=True,
            snapshot_id=_current_id(table),
            files_before=count,
            files_after=count - rewritten + sum(1 for group in groups if group.files),
            files_rewritten=rewritten,
            deletes_removed=sum(len(group.deletes) for group in groups),
            snapshots_expired=len(expired),
            files_deleted=len(unused),
            orphans_deleted=len(orphans),
            orphan_bytes=sum(orphan.size for orphan in orphans),
        )
        return True

    def run(self) -> LakeMaintenance:
        """Do each step, and try again what lost a race."""
        self._repeated("maintenance", self._look_before)
        if self._settings.compact:
            self._repeated("compaction", self._compact)
        if self._settings.expire:
            self._repeated("expiring snapshots", self._expire)
        if self._settings.remove_orphans:
            self._repeated("removing orphans", self._remove_orphans)
        self._repeated("maintenance", self._look_after)
        return self._done

    def _repeated(self, step: str, attempt: Callable[[Table], bool]) -> None:
        """Make attempts on the newest table until one returns True.

        An attempt begins again, too, if files of its table are gone, because another run of
        maintenance has expired the snapshot.
        """
        for number in range(ATTEMPTS_MAX):
            table = self._load()
            looked_at = table.metadata_location
            try:
                with explained_by_catalog(table.catalog):
                    if attempt(table):
                        return
            except FileNotFoundError as error:
                if self._load().metadata_location == looked_at:
                    raise
                log.info("%s: others maintain its lake too: %s", self._info.table_path, error)
            CONFLICT_PAUSE.pause_blocking(number)
        raise self._contended(step)

    def _look_before(self, table: Table) -> bool:
        self._done = replace(self._done, files_before=len(live_files(table)))
        return True

    def _look_after(self, table: Table) -> bool:
        count = len(live_files(table))
        self._done = replace(self._done, snapshot_id=_current_id(table), files_after=count)
        return True

    def _remove_orphans(self, table: Table) -> bool:
        count, size = expiry.delete_orphans(table, list(self._orphans(table)))
        self._done = replace(self._done, orphans_deleted=count, orphan_bytes=size)
        return True

    def _orphans(self, table: Table) -> Iterator[expiry.Orphan]:
        return expiry.orphans(table, now_ms() - self._settings.orphan_age_ms)

    def _compact(self, table: Table) -> bool:
        if table.current_snapshot() is None:
            return True
        groups = self._plan(table)
        # Every commit makes the plans of the later batches stand on another snapshot. They stay
        # right: files that were planned and are still there have the same rows.
        batches = compaction.batches_of(groups, self._write.commit_bytes)
        return all(self._replace(table, batch) for batch in batches)

    def _replace(self, table: Table, groups: list[compaction.Group]) -> bool:
        """Write the files of some groups anew and commit them; False if that has to begin again."""
        size = self._settings.target_file_bytes
        made = self._write(self._info, table, groups, size)
        paths = [file.file_path for file in made.added]
        tried: list[Table] = []
        try:
            for attempt in range(ATTEMPTS_MAX):
                now = self._load()
                if not made.still_fits(now):
                    break
                tried.append(now)
                if self._commit(now, made):
                    return True
                CONFLICT_PAUSE.pause_blocking(attempt)
        except BaseException:
            discard_files(tried, table, paths)
            raise
        discard_files(tried, table, paths)
        return False

    def _commit(self, table: Table, made: compaction.Compacted) -> bool:
        """Commit to Iceberg and to Fluss; False if another commit came first."""
        known = self._lake.known()
        if not self._lake.is_current(table, known):
            return False
        summary: dict[str, str] = {}
        if known.snapshot_id is not None:
            path = self._lake.prepare(known.offsets)
            summary = {COMMIT_USER_KEY: COMMIT_USER, OFFSETS_KEY: path}
        try:
            snapshot_id = commit_rewrite(
                table,
                made.removed,
                made.added,
                summary,
                data_sequence=made.sequence_number,
                data_sequences=made.sequence_numbers,
                is_same_data=True,
            )
        except CommitConflictError as error:
            log.info("%s: another commit came first: %s", self._info.table_path, error)
            return False
        self._done = replace(
            self._done,
            files_rewritten=self._done.files_rewritten + sum(len(g.files) for g in made.groups),
            deletes_removed=self._done.deletes_removed + sum(len(g.deletes) for g in made.groups),
        )
        if known.snapshot_id is not None:
            self._lake.tell(known, snapshot_id, path, [], oldest_to_keep(table))
        return True

    def _expire(self, table: Table) -> bool:
        expired = self._expirable(table)
        pins = expiry.outdated_pins(table, now_ms())
        if not expired and not pins:
            return True
        before = expiry.files_of(table, expired)
        try:
            expiry.remove_snapshots(table, expired, pins)
        except CommitConflictError as error:
            log.info("%s: another commit came first: %s", self._info.table_path, error)
            return False
        after = self._load()
        unused = before - expiry.files_of(after, after.metadata.snapshots)
        delete_files(after, unused)
        self._done = replace(self._done, snapshots_expired=len(expired), files_deleted=len(unused))
        return True

    def _contended(self, step: str) -> LakeContendedError:
        return LakeContendedError(
            self._info.table_path,
            f"{step} lost {ATTEMPTS_MAX} times against other commits to its Iceberg table; run it "
            "again when fewer rounds of tiering come",
        )


def _current_id(table: Table) -> int | None:
    current = table.current_snapshot()
    return None if current is None else current.snapshot_id


@contextmanager
def pin_lake(
    connection: FlussConnection,
    table: TablePath | str,
    *,
    keep_for_ms: int = 24 * HOUR_MS,
    catalog: Mapping[str, str] | None = None,
) -> Iterator[int]:
    """Keep the newest readable snapshot of a lake while the block runs, and yield its id.

    Maintenance removes snapshots after some days. A reader that may be slower pins the snapshot
    that it reads, by a tag in Iceberg. The pin ends with the block, or after `keep_for_ms` if the
    process dies.

    Args:
        connection: The connection.
        table: The table.
        keep_for_ms: How long the snapshot stays at most.
        catalog: Properties of the Iceberg catalog that differ from those of the table.

    Raises:
        NoLakeError: The table has no lake.
        LakeRangeError: Nothing of the table is in the lake yet.
        LakeContendedError: Others kept committing to the Iceberg table.
    """
    path = TablePath.parse(table) if isinstance(table, str) else table
    info = table_info(connection, path)
    if not has_lake(info):
        raise NoLakeError(path)
    alias = connection.config.resolved_alias()
    snapshot_id = KnownLake(connection, info).known().snapshot_id
    if snapshot_id is None:
        raise LakeRangeError(path, "nothing of it is in the lake yet")
    name = expiry.new_pin_name()

    def changed(change: Callable[[Table], None]) -> None:
        for attempt in range(ATTEMPTS_MAX):
            try:
                return change(load_lake_table(info, alias, catalog))
            except CommitConflictError as error:
                log.info("%s: another commit came first: %s", path, error)
                CONFLICT_PAUSE.pause_blocking(attempt)
        raise LakeContendedError(path, f"a pin lost {ATTEMPTS_MAX} times against other commits")

    until_ms = now_ms() + keep_for_ms
    changed(lambda lake: expiry.add_pin(lake, snapshot_id, name, until_ms))
    try:
        yield snapshot_id
    finally:
        changed(lambda lake: expiry.remove_pin(lake, name))
