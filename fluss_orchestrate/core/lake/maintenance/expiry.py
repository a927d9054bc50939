"""Expiring snapshots that are not needed, and deleting files that no snapshot refers to.

A snapshot is needed if it is one of the newest, if it is not old enough, if Fluss knows its
offsets, or if a branch or a tag (a pin) names it. Files are deleted after the commit that removes
the last snapshot with them. A crash in between leaves files that no snapshot refers to: orphans.
These are found by listing the folders of the table, and deleted when they are old enough: younger
ones may belong to a round of tiering that is not committed yet.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fluss_client.errors import UnsupportedError
from fluss_orchestrate.core.lake.commits import without_retries
from fluss_orchestrate.core.lake.errors import CommitConflictError
from fluss_orchestrate.core.lake.known_lake import newest_tiered

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot
    from pyiceberg.table.update.snapshot import ManageSnapshots

log = logging.getLogger(__name__)
PIN_PREFIX = "fluss-pin-"
"""How the tags begin that pin a snapshot for a reader."""
MAIN = "main"
FOLDERS = ("data", "metadata")
"""The folders of a table that are searched for orphans."""


@dataclass(frozen=True, slots=True)
class Orphan:
    """A file that no snapshot refers to."""

    path: str
    size: int


def expirable(
    table: Table,
    keep: int,
    older_than_ms: int,
    is_known: Callable[[int], bool],
) -> list[Snapshot]:
    """Return the snapshots that are not needed, the oldest first.

    Args:
        table: The Iceberg table.
        keep: How many of the newest snapshots stay.
        older_than_ms: Only snapshots that were made before this time (epoch) go.
        is_known: Whether Fluss knows the offsets of a snapshot.
    """
    metadata = table.metadata
    needed: set[int] = set()
    at = table.current_snapshot()
    for _ in range(max(1, keep)):
        if at is None:
            break
        needed.add(at.snapshot_id)
        at = None if at.parent_snapshot_id is None else table.snapshot_by_id(at.parent_snapshot_id)
    newest = newest_tiered(table)
    if newest is not None:
        # Its summary says which offsets the lake holds.
        needed.add(newest.snapshot_id)
    for name, ref in metadata.refs.items():
        needed.add(ref.snapshot_id)
        if name != MAIN and str(getattr(ref.snapshot_ref_type, "value", "")) == "branch":
            needed |= _ancestors(table, ref.snapshot_id)
    found = [
        snapshot
        for snapshot in sorted(metadata.snapshots, key=lambda s: s.timestamp_ms)
        if snapshot.snapshot_id not in needed and snapshot.timestamp_ms < older_than_ms
    ]
    return [snapshot for snapshot in found if not is_known(snapshot.snapshot_id)]


def _ancestors(table: Table, snapshot_id: int) -> set[int]:
    found: set[int] = set()
    at = table.snapshot_by_id(snapshot_id)
    while at is not None and at.snapshot_id not in found:
        found.add(at.snapshot_id)
        at = None if at.parent_snapshot_id is None else table.snapshot_by_id(at.parent_snapshot_id)
    return found


def outdated_pins(table: Table, now_ms: int) -> list[str]:
    """Return the names of pins whose time is over."""
    found = []
    for name, ref in table.metadata.refs.items():
        made = table.snapshot_by_id(ref.snapshot_id)
        if not name.startswith(PIN_PREFIX) or ref.max_ref_age_ms is None or made is None:
            continue
        # Iceberg counts the age of a tag from the time of its snapshot.
        if made.timestamp_ms + ref.max_ref_age_ms < now_ms:
            found.append(name)
    return found


def new_pin_name() -> str:
    """Return a name that no other pin has."""
    return f"{PIN_PREFIX}{uuid.uuid4()}"


def add_pin(table: Table, snapshot_id: int, name: str, until_ms: int) -> None:
    """Pin a snapshot until a time (epoch) by a tag.

    Raises:
        CommitConflictError: Another commit came first; there is no pin.
    """
    if name in table.metadata.refs:
        # An earlier attempt landed and was reported as lost: nobody else has this name.
        return
    made = table.snapshot_by_id(snapshot_id)
    if made is None:
        raise ValueError(f"{'.'.join(table.name())} has no snapshot {snapshot_id}")
    age_ms = max(1, until_ms - made.timestamp_ms)
    with _once(table) as manage:
        manage.create_tag(snapshot_id, name, max_ref_age_ms=age_ms)


def remove_pin(table: Table, name: str) -> None:
    """Remove a pin, if it is there.

    Raises:
        CommitConflictError: Another commit came first.
    """
    if name in table.metadata.refs:
        with _once(table) as manage:
            manage.remove_tag(name)


@contextmanager
def _once(table: Table) -> Iterator[ManageSnapshots]:
    """Change the tags of a table in one commit, which is not repeated."""
    from pyiceberg.exceptions import CommitFailedException

    try:
        with without_retries(table).manage_snapshots() as manage:
            yield manage
    except CommitFailedException as error:
        raise CommitConflictError(f"{'.'.join(table.name())}: {error}") from error


def remove_snapshots(table: Table, snapshots: Iterable[Snapshot], pins: Sequence[str]) -> None:
    """Commit the removal of snapshots and pins.

    Raises:
        CommitConflictError: Another commit came first; nothing was removed.
    """
    from pyiceberg.exceptions import CommitFailedException
    from pyiceberg.table.update import AssertRefSnapshotId
    from pyiceberg.table.update.snapshot import ExpireSnapshots, ManageSnapshots

    base = without_retries(table)
    head = base.current_snapshot()
    transaction = base.transaction()
    for name in pins:
        ManageSnapshots(transaction).remove_tag(name).commit()
    expire: Any = ExpireSnapshots(transaction=transaction)
    # What is needed was decided for this head; another one may need more.
    known: Any = {"ref": MAIN, "snapshot-id": None if head is None else head.snapshot_id}
    expire._requirements = (AssertRefSnapshotId(**known),)
    ids = [snapshot.snapshot_id for snapshot in snapshots]
    expire.by_ids(ids)
    expire.commit()
    try:
        transaction.commit_transaction()
    except (CommitFailedException, ValueError) as error:
        # PyIceberg raises a ValueError for what another run of maintenance has removed.
        now = table.refresh().metadata
        there = {snapshot.snapshot_id for snapshot in now.snapshots}
        is_lost = isinstance(error, CommitFailedException)
        if is_lost and there.isdisjoint(ids) and set(pins).isdisjoint(now.refs):
            # It landed and was reported as lost, or somebody else has removed the same.
            return
        if not is_lost and there.issuperset(ids) and set(pins) <= set(now.refs):
            raise
        raise CommitConflictError(f"{'.'.join(table.name())}: {error}") from error


def files_of(table: Table, snapshots: Iterable[Snapshot]) -> set[str]:
    """Return the paths of all files that snapshots refer to, manifests included."""
    found: set[str] = set()
    read: set[str] = set()
    for snapshot in snapshots:
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path in read:
                continue
            read.add(manifest.manifest_path)
            found.add(manifest.manifest_path)
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                found.add(entry.data_file.file_path)
    return found


def orphans(table: Table, older_than_ms: int) -> Iterator[Orphan]:
    """List the files in the folders of the table that nothing refers to.

    Args:
        table: The Iceberg table, as it is now.
        older_than_ms: Only files that were last written before this time (epoch).

    Raises:
        UnsupportedError: The files of the table cannot be listed.
    """
    from pyarrow import fs

    # Listed before the references are read: what is committed in between is referred to then.
    listed: list[Any] = []
    for folder in FOLDERS:
        system, path = _filesystem(table, f"{table.location().rstrip('/')}/{folder}")
        selector = fs.FileSelector(path, allow_not_found=True, recursive=True)
        listed += [
            (info.path, info.size, info.mtime)
            for info in system.get_file_info(selector)
            if info.type == fs.FileType.File
        ]
    used = {_plain_path(table, path) for path in _referred(table.refresh())}
    for path, size, modified in listed:
        if path in used or modified is None or modified.timestamp() * 1000 >= older_than_ms:
            continue
        if path.rsplit("/", 1)[-1] == "version-hint.text":
            continue
        yield Orphan(path, int(size))


def _referred(table: Table) -> set[str]:
    metadata = table.metadata
    found = files_of(table, metadata.snapshots)
    found.add(table.metadata_location)
    found |= {entry.metadata_file for entry in metadata.metadata_log}
    found |= {file.statistics_path for file in metadata.statistics}
    found |= {file.statistics_path for file in metadata.partition_statistics}
    return found


def _filesystem(table: Table, location: str) -> tuple[Any, str]:
    from pyiceberg.io.pyarrow import PyArrowFileIO

    io = table.io
    if not isinstance(io, PyArrowFileIO):
        raise UnsupportedError(
            f"files cannot be listed with {type(io).__name__}: set the catalog property "
            "py-io-impl=pyiceberg.io.pyarrow.PyArrowFileIO, or do not search for orphans"
        )
    scheme, netloc, path = io.parse_location(location, io.properties)
    return io.fs_by_scheme(scheme, netloc), path


def _plain_path(table: Table, location: str) -> str:
    """A location without its scheme, as a listing names it."""
    io: Any = table.io
    return str(io.parse_location(location, io.properties)[2])


def delete_orphans(table: Table, found: Iterable[Orphan]) -> tuple[int, int]:
    """Delete orphans; one that cannot be deleted is only logged.

    Returns:
        How many were deleted, and their size.
    """
    count = size = 0
    system, _ = _filesystem(table, table.location())
    for orphan in found:
        try:
            system.delete_file(orphan.path)
        except OSError as error:
            log.warning("%s is an orphan and could not be deleted: %s", orphan.path, error)
            continue
        count += 1
        size += orphan.size
    return count, size
