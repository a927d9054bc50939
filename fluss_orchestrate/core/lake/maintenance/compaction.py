"""Compaction: many small files, and files with deleted rows, become few files without deletes.

The files of one partition of the Iceberg table, which is one bucket, are read with their deletes
applied and written as large files. Rows of a log table keep the order of their offsets, because
only files that follow each other become one. The new files keep the sequence number of the snapshot
that was read. So a delete that tiering commits meanwhile still applies to them, and a commit that
lost a race against tiering can be made again without writing the files again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from fluss_client import TableInfo, TablePath
from fluss_orchestrate.core.lake.data_files import DataFileWriter, delete_files, partition_key
from fluss_orchestrate.core.lake.equality_deletes import (
    LiveFile,
    check_readable,
    live_files,
    read_live,
    scope_of,
)
from fluss_orchestrate.core.lake.layout.placed_files import (
    COMPACTED,
    check_lineage,
    file_label,
    ordered_files,
)
from fluss_orchestrate.core.lake.layout.system_columns import OFFSET, has_system_columns
from fluss_orchestrate.core.lake.reader import offset_bounds

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

SMALL_RATIO = 0.75
"""A file below this part of the wanted size is small."""
KEYS_AT_ONCE_MAX = 1_000_000
"""Deleted keys that are compared with the rows of a bucket at the same time."""
COMMIT_BYTES = 1 << 30
"""Files of about this size are replaced in one commit, so that a crash loses little work."""


@dataclass(frozen=True, slots=True)
class Group:
    """Data files of one partition that are written as one, in this order.

    Attributes:
        files: The files with their deletes.
        deletes: Paths of delete files that apply to no other data file.
        bucket: The bucket, where only the names and sequence numbers of files tell the place of
            their rows: in a log table without system columns.
    """

    files: Sequence[LiveFile]
    deletes: frozenset[str]
    bucket: int | None = None

    @property
    def paths(self) -> set[str]:
        """The paths of all files that are removed."""
        return {live.file.file_path for live in self.files} | self.deletes

    @property
    def size(self) -> int:
        """The size of the data files."""
        return sum(int(live.file.file_size_in_bytes) for live in self.files)


@dataclass
class Compacted:
    """Files that take the place of others, not committed yet."""

    sequence_number: int
    spec_id: int
    groups: list[Group] = field(default_factory=list)
    added: list[DataFile] = field(default_factory=list)
    sequence_numbers: dict[str, int] = field(default_factory=dict)
    """Those of new files that differ, by path."""

    @property
    def removed(self) -> set[str]:
        """The paths of the files that are replaced."""
        return {path for group in self.groups for path in group.paths}

    def still_fits(self, table: Table) -> bool:
        """Whether the files can replace the others in the table as it is now.

        They cannot if one of the others is gone, if rows of one were deleted by their position, or
        if the partitioning was changed.
        """
        if table.metadata.default_spec_id != self.spec_id:
            return False
        before = {
            live.file.file_path: {file.file_path for file in live.positions}
            for group in self.groups
            for live in group.files
        }
        found = 0
        for live in live_files(table):
            known = before.get(live.file.file_path)
            if known is None:
                continue
            found += 1
            if any(file.file_path not in known for file in live.positions):
                return False
        return found == len(before)


def plan_compaction(
    table: Table, path: TablePath, target_bytes: int, *, keep_order: bool
) -> list[Group]:
    """Return the data files of the current snapshot that are worth being written anew.

    Args:
        table: The Iceberg table.
        path: The Fluss table.
        target_bytes: The wanted size of a file.
        keep_order: Whether rows have to stay in the order of their offsets (log tables).

    Raises:
        EqualityDeleteError: A file cannot be read, or its deletes cannot be applied.
        LakeOffsetsUnknownError: The order of the files of a log table is not known.
        LakeLayoutError: The table has some of the system columns only.
    """
    files = live_files(table)
    check_readable(table, files)
    if keep_order and not has_system_columns(table, path):
        check_lineage(table, path)
        return [
            Group(run, frozenset(), bucket)
            for (_, bucket), found in ordered_files(table, path, files).items()
            for run in _ordered_runs(found, target_bytes)
        ]
    scopes: dict[Any, list[LiveFile]] = {}
    for live in files:
        if live.file.spec_id != table.metadata.default_spec_id:
            continue  # its values are those of another partitioning
        scopes.setdefault(scope_of(table, live.file), []).append(live)
    chosen: list[list[LiveFile]] = []
    for found in scopes.values():
        if keep_order:
            chosen += _runs(table, found, target_bytes)
        else:
            chosen.append([live for live in found if _is_worth_it(live, target_bytes)])
    chosen = [group for group in chosen if len(group) > 1 or any(map(_has_deletes, group))]
    return _with_deletes(table, files, chosen)


def _has_deletes(live: LiveFile) -> bool:
    return bool(live.positions or live.equalities)


def _is_worth_it(live: LiveFile, target_bytes: int) -> bool:
    return _has_deletes(live) or int(live.file.file_size_in_bytes) < SMALL_RATIO * target_bytes


def _ordered_runs(files: Sequence[LiveFile], target_bytes: int) -> Iterator[list[LiveFile]]:
    """Files of a bucket that follow each other, in their order.

    Files of one sequence number stay together: the new file takes the highest number of its run,
    which no other file of the bucket may have, because the numbers are the order of the files.
    """
    run: list[LiveFile] = []
    for _, found in itertools.groupby(files, key=lambda live: live.sequence_number):
        same = list(found)
        if all(_is_worth_it(live, target_bytes) for live in same):
            run += same
            continue
        if len(run) > 1:
            yield run
        run = []
    if len(run) > 1:
        yield run


def _runs(table: Table, files: Sequence[LiveFile], target_bytes: int) -> Iterator[list[LiveFile]]:
    """Files that follow each other by their offsets; a large one ends a run."""
    offset_id: int = table.schema().find_field(OFFSET).field_id
    run: list[LiveFile] = []
    for live in sorted(files, key=lambda one: offset_bounds(one.file, offset_id)):
        if _is_worth_it(live, target_bytes):
            run.append(live)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _with_deletes(
    table: Table, files: Sequence[LiveFile], chosen: Sequence[list[LiveFile]]
) -> list[Group]:
    """Groups with the delete files that apply to nothing else, and one for those of no file."""
    rewritten = {live.file.file_path for group in chosen for live in group}
    needed: set[str] = set()
    for live in files:
        if live.file.file_path not in rewritten:
            needed |= _delete_paths(live)
    groups = []
    taken: set[str] = set(needed)
    for group in chosen:
        free = {path for live in group for path in _delete_paths(live)} - taken
        taken |= free
        groups.append(Group(group, frozenset(free)))
    dangling = set(_all_delete_paths(table)) - taken
    if dangling:
        groups.append(Group((), frozenset(dangling)))
    return groups


def _delete_paths(live: LiveFile) -> set[str]:
    named = [*live.positions, *(deletes.file for deletes in live.equalities)]
    return {str(file.file_path) for file in named}


def _all_delete_paths(table: Table) -> Iterator[str]:
    from pyiceberg.manifest import ManifestContent

    snapshot = table.current_snapshot()
    for manifest in [] if snapshot is None else snapshot.manifests(table.io):
        if manifest.content == ManifestContent.DELETES:
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                yield str(entry.data_file.file_path)


class GroupWriter(Protocol):
    """Who writes the files of a compaction: this process (`LocalGroupWriter`), or many by Spark."""

    @property
    def commit_bytes(self) -> int:
        """Data files of about this size are replaced in one commit."""

    def __call__(
        self, info: TableInfo, table: Table, groups: Sequence[Group], target_bytes: int
    ) -> Compacted:
        """Write the rows of every group once, as files that no snapshot refers to yet.

        The caller commits them. If this raises, it has deleted what this process wrote.
        """


@dataclass(frozen=True, slots=True)
class LocalGroupWriter:
    """Writes the files of a compaction in this process, one after the other."""

    commit_bytes: int = COMMIT_BYTES

    def __call__(
        self, info: TableInfo, table: Table, groups: Sequence[Group], target_bytes: int
    ) -> Compacted:
        """Write all groups."""
        return write_compacted(table, groups, target_bytes)


def batches_of(groups: Iterable[Group], commit_bytes: int = COMMIT_BYTES) -> Iterator[list[Group]]:
    """Groups that are replaced in one commit: data files of about `commit_bytes`."""
    held: list[Group] = []
    size = 0
    for group in groups:
        held.append(group)
        size += group.size
        if size >= commit_bytes:
            yield held
            held, size = [], 0
    if held:
        yield held


def nothing_compacted(table: Table) -> Compacted:
    """Return what a compaction of the current snapshot begins with."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return Compacted(int(snapshot.sequence_number or 0), table.metadata.default_spec_id)


def write_compacted(
    table: Table,
    groups: Sequence[Group],
    target_bytes: int,
    progress: Callable[[int], None] = lambda _: None,
) -> Compacted:
    """Write the rows of groups as new files; nothing is committed.

    Args:
        table: The Iceberg table, as it was when the groups were planned.
        groups: The groups.
        target_bytes: The wanted size of a file.
        progress: Called with the rows written so far.
    """
    made = nothing_compacted(table)
    rows = 0
    try:
        for group in groups:
            for count in _write_group(table, group, target_bytes, made):
                rows += count
                progress(rows)
            made.groups.append(group)
    except BaseException:
        delete_files(table, [file.file_path for file in made.added])
        raise
    return made


def _write_group(table: Table, group: Group, target_bytes: int, made: Compacted) -> Iterator[int]:
    if not group.files:
        return
    values = group.files[0].file.partition
    key = None
    if not table.spec().is_unpartitioned():
        key = partition_key(table, [values[at] for at in range(len(values))])
    names = [f.name for f in table.schema().fields]
    writer: DataFileWriter | None = None
    rows = 0
    try:
        # One file after the other: they share deletes, and their order is kept.
        for batch in read_live(table, group.files, names, keys_max=KEYS_AT_ONCE_MAX):
            if not batch.num_rows:
                continue
            if writer is not None and writer.bytes_written >= target_bytes:
                _add(made, group, writer.close())
                writer = None
            if writer is None:
                writer = DataFileWriter(table, key, _label(group, rows))
            writer.write(batch)
            rows += batch.num_rows
            yield batch.num_rows
        if writer is not None:
            _add(made, group, writer.close())
            writer = None
    finally:
        if writer is not None:
            writer.abort()


def _label(group: Group, rows: int) -> str:
    """How the name of a new file begins; `rows` of the group are in earlier ones."""
    return COMPACTED if group.bucket is None else file_label(group.bucket, rows, COMPACTED)


def _add(made: Compacted, group: Group, file: DataFile) -> None:
    made.added.append(file)
    if group.bucket is not None:
        numbers = [live.sequence_number for live in group.files]
        made.sequence_numbers[str(file.file_path)] = max(numbers)
