"""The snapshots of a table's lake, for people: what each holds, its files and their sizes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fluss_client import FlussConnection, TableInfo
from fluss_orchestrate.core.lake.catalog import load_lake_table
from fluss_orchestrate.core.lake.known_lake import COMMIT_USER, COMMIT_USER_KEY, OFFSETS_KEY

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

SNAPSHOTS_SHOWN_MAX = 200


@dataclass(frozen=True, slots=True)
class SnapshotFigures:
    """One snapshot of an Iceberg table. None is not known: the snapshot's summary lacks it."""

    snapshot_id: int
    created_ms: int
    operation: str
    rows: int | None
    data_files: int | None
    delete_files: int | None
    bytes: int | None
    added_rows: int | None
    added_files: int | None
    by_tiering: bool
    """Whether a tiering service or `tier_table` committed it; otherwise maintenance or others."""
    names_offsets: bool
    """Whether it says up to which offsets of Fluss it holds the rows."""

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class LakeTable:
    """The Iceberg table of a table."""

    name: str
    location: str
    snapshots: tuple[SnapshotFigures, ...]
    """The newest first."""
    snapshot_count: int

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain values."""
        return asdict(self)


def read_lake_table(connection: FlussConnection, info: TableInfo) -> LakeTable:
    """Return the snapshots of a table's lake. It reads one metadata file, and blocks.

    Raises:
        NoLakeError: The table has no lake.
        UnsupportedError: The lake's catalog cannot be opened from here.
    """
    table = load_lake_table(info, connection.config.resolved_alias())
    snapshots = sorted(table.metadata.snapshots, key=lambda s: s.timestamp_ms, reverse=True)
    return LakeTable(
        name=".".join(table.name()),
        location=table.location(),
        snapshots=tuple(_figures(s) for s in snapshots[:SNAPSHOTS_SHOWN_MAX]),
        snapshot_count=len(snapshots),
    )


def _figures(snapshot: Snapshot) -> SnapshotFigures:
    summary = snapshot.summary

    def number(key: str) -> int | None:
        text = None if summary is None else summary[key]
        return None if text is None else int(text)

    return SnapshotFigures(
        snapshot_id=snapshot.snapshot_id,
        created_ms=snapshot.timestamp_ms,
        operation="" if summary is None else summary.operation.value,
        rows=number("total-records"),
        data_files=number("total-data-files"),
        delete_files=number("total-delete-files"),
        bytes=number("total-files-size"),
        added_rows=number("added-records"),
        added_files=number("added-data-files"),
        by_tiering=summary is not None and summary[COMMIT_USER_KEY] == COMMIT_USER,
        names_offsets=summary is not None and summary[OFFSETS_KEY] is not None,
    )
