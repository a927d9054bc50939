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

from collections.abc import Iterable
from typing import Any

from fluss_client import PartitionInfo, TableInfo
from fluss_client.engine import Backend
from fluss_client.errors import UnsupportedByServerError
from fluss_orchestrate.core.errors import LateRowsError
from fluss_orchestrate.core.incremental.planning.observation import TableView, observe_offsets
from fluss_orchestrate.core.incremental.planning.settings import ScanSettings

HISTORICAL_ENABLED = "table.datalake.historical-partition.enabled"
HISTORICAL_PARTITION = "__historical__"


def takes_late_rows(info: TableInfo) -> bool:
    """Return whether rows of expired partitions of a table go into a system partition."""
    return info.properties.get(HISTORICAL_ENABLED, "false").lower() == "true"


def has_late_rows(names: Iterable[str]) -> bool:
    """Return whether the system partition is among partitions of these names."""
    return HISTORICAL_PARTITION in names


async def observe_for_scan(
    backend: Backend, alias: str, info: TableInfo, settings: ScanSettings
) -> TableView:
    """Return the state of a table with the partitions that a scan reads.

    Raises:
        LateRowsError: The table takes late rows, and the scan cannot or shall not read them.
    """
    return await observe_offsets(
        backend, alias, info, await late_partitions(backend, info, settings)
    )


async def late_partitions(
    backend: Backend, info: TableInfo, settings: ScanSettings
) -> list[PartitionInfo]:
    """Return the system partition with late rows, if there is one and the scan reads it.

    Raises:
        LateRowsError: The table takes late rows, and the scan cannot or shall not read them.
    """
    if not takes_late_rows(info) or settings.on_late_rows == "note":
        return []
    if settings.on_late_rows == "fail":
        raise LateRowsError(info.table_path, "the policy of this scan is on_late_rows='fail'")
    if settings.on_partition_gone == "delete":
        raise LateRowsError(
            info.table_path,
            "a mirror that deletes the rows of dropped partitions (on_partition_gone='delete') "
            "would get them back one by one",
        )
    try:
        listed = await backend.system_partitions(info.table_path)
    except UnsupportedByServerError as error:
        raise LateRowsError(info.table_path, str(error)) from error
    return [p for p in listed if p.partition_name == HISTORICAL_PARTITION]


def late_details(info: TableInfo, settings: ScanSettings) -> dict[str, Any]:
    """Return for the history and the receipt that late rows are not covered, if so."""
    if takes_late_rows(info) and settings.on_late_rows == "note":
        return {"late_rows": "not covered"}
    return {}
