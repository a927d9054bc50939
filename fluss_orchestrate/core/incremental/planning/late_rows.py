"""Rows that were written for partitions that had expired.

Fluss 1.0 can take rows for a partition that its retention has dropped, for tables with
`table.datalake.historical-partition.enabled` (their lake is in Paimon). Such late rows go into one
system partition, `__historical__`, which servers list only for those who ask. The rows have the
values of their own partition. A scan reads that partition as one more (`on_late_rows="read"`), or
its plans and receipts say that they do not cover late rows (`note`), or it refuses such a table
(`fail`).

A late row is never read before the rows of its partition that were not: those are lost with the
partition, which is an error or what `on_partition_gone` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fluss_client import PartitionInfo, TableInfo
from fluss_client.aio import FlussConnection as AsyncConnection
from fluss_client.engine import HISTORICAL_PARTITION, Backend, backend_of
from fluss_client.errors import UnsupportedByServerError
from fluss_orchestrate.core.checkpoints.events import Event
from fluss_orchestrate.core.errors import LateRowsError
from fluss_orchestrate.core.incremental.planning.observation import TableView, observe_offsets
from fluss_orchestrate.core.incremental.planning.settings import ON_LATE_ROWS, ScanSettings, one_of
from fluss_orchestrate.core.plan import Place

NOT_COVERED = "not covered"
READ_KEYS = (
    "the system partition of a key table has changes only, made on rows that are in the lake, so "
    "the current rows of expired partitions cannot be read from Fluss"
)


def has_late_rows(names: Iterable[str]) -> bool:
    """Return whether the system partition is among partitions of these names."""
    return HISTORICAL_PARTITION in names


def is_late(view: TableView, place: Place) -> bool:
    """Return whether a place is one of the system partition."""
    name = view.partition_name(place)
    return name is not None and has_late_rows([name])


async def observe_for_scan(
    backend: Backend, alias: str, info: TableInfo, settings: ScanSettings
) -> TableView:
    """Return the state of a table with the partitions that a scan reads.

    Raises:
        LateRowsError: The table takes late rows, and the scan cannot or shall not read them.
    """
    if (
        info.takes_late_rows
        and settings.on_partition_gone == "delete"
        and settings.on_late_rows == "read"
    ):
        raise LateRowsError(
            info.table_path,
            "a mirror that deletes the rows of dropped partitions (on_partition_gone='delete') "
            "would get them back one by one",
            "Query the lake for them",
        )
    late = await late_partitions(backend, info, settings.on_late_rows)
    return await observe_offsets(backend, alias, info, late)


async def observe_for_read(
    connection: AsyncConnection, info: TableInfo, on_late_rows: str, *, changes: bool = False
) -> TableView:
    """Return the state of a table with the partitions that a read without a checkpoint reads.

    Args:
        connection: The connection.
        info: The table.
        on_late_rows: What to do about rows of expired partitions: `read`, `note` (leave them out)
            or `fail`.
        changes: The changelog of a key table is read, not its current rows.

    Raises:
        LateRowsError: The table takes late rows, and the read cannot or shall not read them.
    """
    if info.has_primary_key() and not changes:
        check_state_is_whole(info, on_late_rows)
    one_of("on_late_rows", on_late_rows, ON_LATE_ROWS)
    backend = backend_of(connection)
    late = await late_partitions(backend, info, on_late_rows)
    return await observe_offsets(backend, connection.config.resolved_alias(), info, late)


def check_state_is_whole(info: TableInfo, on_late_rows: str) -> None:
    """Refuse to take the rows that the servers have of a key table for all of its current rows.

    Raises:
        LateRowsError: The table takes late rows, whose keys are in the lake.
        ConfigError: There is no such policy.
    """
    one_of("on_late_rows", on_late_rows, ON_LATE_ROWS)
    if info.takes_late_rows and info.has_primary_key() and on_late_rows == "read":
        raise LateRowsError(info.table_path, READ_KEYS, "Read the changelog with a scan")


async def late_partitions(
    backend: Backend, info: TableInfo, on_late_rows: str
) -> list[PartitionInfo]:
    """Return the system partition with late rows, if there is one and it is read.

    Raises:
        LateRowsError: The table takes late rows, and they cannot or shall not be read.
    """
    if not info.takes_late_rows or on_late_rows == "note":
        return []
    if on_late_rows == "fail":
        raise LateRowsError(info.table_path, "the policy is on_late_rows='fail'")
    try:
        listed = await backend.system_partitions(info.table_path)
    except UnsupportedByServerError as error:
        raise LateRowsError(info.table_path, str(error)) from error
    return [p for p in listed if p.partition_name == HISTORICAL_PARTITION]


def check_not_expired(info: TableInfo, partition: str, on_late_rows: str) -> None:
    """Refuse to take a partition that does not exist for one without rows.

    Raises:
        LateRowsError: The table takes late rows: the rows of an expired partition may be there.
    """
    if info.takes_late_rows and on_late_rows != "note":
        raise LateRowsError(
            info.table_path,
            f"partition '{partition}' does not exist, and late rows are not in partitions of their "
            "own",
            "Read the whole table and choose the rows",
        )


def covers_late_rows(head: Event) -> bool:
    """Return whether a checkpoint reads late rows; it does unless its last event says otherwise."""
    receipt = {} if head.receipt is None else head.receipt.details
    return {**head.details, **receipt}.get("late_rows") != NOT_COVERED


def late_rows_policy(head: Event | None) -> str:
    """Return the policy by which a checkpoint was last planned, as far as that is known."""
    return "read" if head is None or covers_late_rows(head) else "note"


def late_details(
    info: TableInfo, settings: ScanSettings, before: Mapping[Any, int] | None = None
) -> dict[str, Any]:
    """Return for the history and the receipt which late rows a plan does not cover, if any.

    `before` has the offsets before which a plan of the current rows does not cover them.
    """
    if info.takes_late_rows and settings.on_late_rows == "note":
        return {"late_rows": NOT_COVERED}
    if before and any(before.values()):
        return {"late_rows": "not covered before this plan"}
    return {}
