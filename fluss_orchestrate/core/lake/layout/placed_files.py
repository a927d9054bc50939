"""The offsets of the rows of a log table whose lake has no system columns.

What replaces the column `__offset`:

- A snapshot of tiering holds every offset of a bucket below the one that Fluss knows of it, and a
  log table has one row for each offset. So the last row of the last data file of a bucket has the
  offset before that one, and every file ends where the next one begins.
- The order of the files of a bucket is that of their sequence numbers. Files of one round of
  tiering are ordered by their names. Tiering writes the rows of a file in the order of the log.
- The bucket of a file is the last value of its partition, if the table has a bucket key. Otherwise
  its name begins with the bucket: `00003-0-<uuid>-00001.parquet` of the official service,
  `00003-<first offset>-...` of this one.

This is checked, never assumed: a snapshot of another program that changed data, a name of another
form, a file of ours that does not begin at the offset in its name, and offsets of an earlier
snapshot that lie within a file are errors. The snapshots of other programs are known until they
are expired.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fluss_client import TablePath
from fluss_client.engine import backend_of, run_blocking
from fluss_orchestrate.core.lake.equality_deletes import LiveFile, live_files
from fluss_orchestrate.core.lake.errors import LakeOffsetsUnknownError, LakeRangeError
from fluss_orchestrate.core.lake.known_lake import (
    COMMIT_USER,
    COMMIT_USER_KEY,
    SNAPSHOTS_KEPT,
    KnownLake,
)
from fluss_orchestrate.core.lake.layout.partitioning import has_bucket_field, partition_values
from fluss_orchestrate.core.plan import BucketRange, Place

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_OFFICIAL = re.compile(rf"(?P<bucket>\d{{5,}})-0-{_UUID}-(?P<number>\d{{5,}})\.parquet")
_OURS = re.compile(rf"(?P<bucket>\d{{5,}})-(?P<first>\d+)-(?P<kind>\d+|compacted)-{_UUID}\.parquet")
COMPACTED = "compacted"
_CHANGES = ("added-data-files", "deleted-data-files", "added-delete-files", "removed-delete-files")

Scope = tuple[tuple[Any, ...], int]
"""The values of the partition columns, and the bucket."""


@dataclass(frozen=True, slots=True)
class FileName:
    """What the name of a data file tells.

    Attributes:
        bucket: The bucket.
        order: Its place among the files of the same round.
        first: The first offset, if the name has it.
        compacted: Whether the rows of several rounds are in it.
    """

    bucket: int
    order: int
    first: int | None = None
    compacted: bool = False

    @classmethod
    def of(cls, path: str) -> FileName | None:
        """Read the name of a file; None if tiering names no file so."""
        name = path.rsplit("/", 1)[-1]
        if found := _OFFICIAL.fullmatch(name):
            return cls(int(found["bucket"]), int(found["number"]))
        if found := _OURS.fullmatch(name):
            first = int(found["first"])
            return cls(int(found["bucket"]), first, first, found["kind"] == COMPACTED)
        return None


def file_label(bucket: int, first: int, kind: int | str) -> str:
    """Return how the name of a data file of a log table begins: with bucket and first offset.

    `kind` is the end of the tiered range, or `COMPACTED`.
    """
    return f"{bucket:05d}-{first}-{kind}"


@dataclass(frozen=True, slots=True)
class PlacedFile:
    """A data file and the offsets of its rows: from `start` up to, but without, `stop`."""

    file: DataFile
    start: int
    stop: int


def ordered_files(
    table: Table, path: TablePath, files: Sequence[LiveFile]
) -> dict[Scope, list[LiveFile]]:
    """Return data files by their partition and bucket, in the order of their rows.

    Args:
        table: The Iceberg table, without system columns.
        path: The Fluss table, a log table.
        files: Data files of one snapshot.

    Raises:
        LakeOffsetsUnknownError: The files do not tell their bucket or their order.
    """
    by_key = has_bucket_field(table)
    found: dict[Scope, list[tuple[tuple[int, int], LiveFile]]] = {}
    for live in files:
        if live.file.spec_id != table.metadata.default_spec_id:
            raise LakeOffsetsUnknownError(path, f"{live.file.file_path} has another partitioning")
        if live.positions or live.equalities:
            raise LakeOffsetsUnknownError(path, f"rows of {live.file.file_path} were deleted")
        name = FileName.of(live.file.file_path)
        if name is None:
            raise LakeOffsetsUnknownError(
                path, f"{live.file.file_path} was not written by a tiering service"
            )
        values = live.file.partition
        parts = tuple(values[at] for at in range(len(values)))
        scope = (parts[:-1], int(parts[-1])) if by_key else (parts, name.bucket)
        found.setdefault(scope, []).append(((live.sequence_number, name.order), live))
    ordered = {}
    for scope, numbered in found.items():
        numbered.sort(key=lambda pair: pair[0])
        for (one, before), (other, after) in itertools.pairwise(numbered):
            if one == other:
                raise LakeOffsetsUnknownError(
                    path,
                    f"the order of {before.file.file_path} and {after.file.file_path} is unknown",
                )
        ordered[scope] = [live for _, live in numbered]
    return ordered


def check_lineage(table: Table, path: TablePath, snapshot_id: int | None = None) -> None:
    """Raise if a snapshot of another program than tiering changed the data.

    Args:
        table: The Iceberg table.
        path: The Fluss table.
        snapshot_id: The newest snapshot to look at; by default, the current one.

    Raises:
        LakeOffsetsUnknownError: There is such a snapshot.
    """
    for snapshot in _lineage(table, snapshot_id):
        summary = snapshot.summary
        if summary is None or summary[COMMIT_USER_KEY] == COMMIT_USER:
            continue
        if any(int(summary[name] or 0) for name in _CHANGES):
            raise LakeOffsetsUnknownError(
                path, f"another program changed its rows in snapshot {snapshot.snapshot_id}"
            )


def _lineage(table: Table, snapshot_id: int | None) -> list[Snapshot]:
    """The snapshots that lead to one, the newest first."""
    at = table.current_snapshot() if snapshot_id is None else table.snapshot_by_id(snapshot_id)
    found = []
    while at is not None:
        found.append(at)
        at = None if at.parent_snapshot_id is None else table.snapshot_by_id(at.parent_snapshot_id)
    return found


@dataclass
class PlacedFiles:
    """The data files of a snapshot of a log table, with their offsets.

    Attributes:
        lake: What Fluss knows of the lake.
        table: The Iceberg table, without system columns.
        snapshot_id: The snapshot.
    """

    lake: KnownLake
    table: Table
    snapshot_id: int
    _files: Mapping[Scope, list[LiveFile]] | None = None
    _known: list[Mapping[Place, int]] = field(default_factory=list)

    def of(self, part: BucketRange) -> list[PlacedFile]:
        """Return the files of a bucket, in order.

        Raises:
            LakeOffsetsUnknownError: The lake does not tell the offsets of its rows.
            LakeRangeError: Its rows are not those that Fluss knows.
        """
        files = self._opened()
        place = self._place_of(part)
        end = self._known[0].get(place, 0)
        scope = (partition_values(self.lake.info, part), part.bucket)
        placed: list[PlacedFile] = []
        at = end
        for live in reversed(files.get(scope, [])):
            count = int(live.file.record_count)
            placed.append(PlacedFile(live.file, at - count, at))
            at -= count
        placed.reverse()
        self._check(part, place, placed)
        return placed

    def _opened(self) -> Mapping[Scope, list[LiveFile]]:
        if self._files is None:
            path = self.lake.info.table_path
            check_lineage(self.table, path, self.snapshot_id)
            known = self.lake.known(self.snapshot_id)
            if known.snapshot_id is None:
                raise LakeOffsetsUnknownError(
                    path, f"Fluss does not know snapshot {self.snapshot_id} any more"
                )
            self._known = [known.offsets]
            for older in _lineage(self.table, self.snapshot_id)[1:SNAPSHOTS_KEPT]:
                found = self.lake.known(older.snapshot_id)
                if found.snapshot_id is not None:
                    self._known.append(found.offsets)
            files = live_files(self.table, self.snapshot_id)
            self._files = ordered_files(self.table, path, files)
        return self._files

    def _place_of(self, part: BucketRange) -> Place:
        """The place; the id of a partition that is given by its name is asked for."""
        if part.partition is None or part.partition_id is not None:
            return part.place
        backend = backend_of(self.lake.connection)
        path = self.lake.info.table_path
        for found in run_blocking(backend.list_partitions(path, None)):
            if found.partition_name == part.partition:
                return found.partition_id, part.bucket
        raise LakeRangeError(
            path,
            f"partition {part.partition} does not exist any more: its lake has no offsets, because "
            "Fluss keeps them by the id of the partition. Read the Iceberg table itself",
        )

    def _check(self, part: BucketRange, place: Place, placed: Sequence[PlacedFile]) -> None:
        for one in placed:
            name = FileName.of(one.file.file_path)
            assert name is not None
            wrong_first = name.first is not None and not name.compacted and name.first != one.start
            if wrong_first or one.start < 0:
                raise self._moved(part, one, name.first or 0)
            for offsets in () if name.compacted else self._known:
                if one.start < offsets.get(place, 0) < one.stop:
                    raise self._moved(part, one, offsets[place])

    def _moved(self, part: BucketRange, one: PlacedFile, expected: int) -> LakeRangeError:
        return LakeRangeError(
            self.lake.info.table_path,
            f"the rows of {one.file.file_path} in bucket {part.bucket} would have the offsets "
            f"[{one.start}, {one.stop}), which does not agree with offset {expected}; a partition "
            "that was dropped and created again, or a lake that was changed by hand, looks like "
            "this",
            expected,
            one.start,
        )
