"""What a materialisation tells: Dagster's own keys where there is one, `fluss/…` for the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg

from fluss_client import TableInfo
from fluss_orchestrate.core.identity import table_uri
from fluss_orchestrate.core.receipts import Receipt

STORAGE_KIND = "fluss"
TABLE_NAME = "dagster/table_name"
STORAGE = "dagster/storage_kind"
URI = "dagster/uri"
COLUMN_SCHEMA = "dagster/column_schema"
ROW_COUNT = "dagster/row_count"
PARTITION_ROW_COUNT = "dagster/partition_row_count"
DATA_VERSION_TAG = "dagster/data_version"

OFFSETS = "fluss/offsets"
RECEIPT = "fluss/receipt"
ROWS = "fluss/rows"
ROWS_MOVED = "fluss/rows_moved"
"""Rows that this very run has written: fewer than `ROWS` if an earlier one did it already."""
PLAN_ID = "fluss/plan_id"
SNAPSHOT_ID = "fluss/snapshot_id"
DATA_VERSION = "fluss/data_version"


def column_schema(info: TableInfo) -> dg.TableSchema:
    """The table's columns as Dagster shows and compares them."""
    keys = info.get_primary_keys()
    columns = [
        dg.TableColumn(
            column.name,
            str(column.type),
            column.comment,
            dg.TableColumnConstraints(nullable=column.type.nullable, unique=keys == [column.name]),
        )
        for column in info.schema.columns
    ]
    whole = []
    if keys:
        whole.append(f"primary key ({', '.join(keys)})")
    if info.is_partitioned():
        whole.append(f"partitioned by ({', '.join(info.get_partition_keys())})")
    return dg.TableSchema(columns, dg.TableConstraints(other=whole) if whole else None)


def table_metadata(cluster: str, info: TableInfo) -> dict[str, Any]:
    """Which table it is, under the keys by which tools find the same table elsewhere."""
    return {
        TABLE_NAME: str(info.table_path),
        STORAGE: STORAGE_KIND,
        URI: table_uri(cluster, info.table_path),
        COLUMN_SCHEMA: column_schema(info),
    }


def receipt_metadata(receipt: Receipt, version: dg.DataVersion) -> dict[str, Any]:
    """What was done, small enough for an event: ranges and counts, never rows."""
    told: dict[str, Any] = {
        TABLE_NAME: str(receipt.table.path),
        STORAGE: STORAGE_KIND,
        URI: receipt.table.uri,
        ROWS: receipt.rows,
        OFFSETS: dg.MetadataValue.json([r.to_json() for r in receipt.ranges]),
        RECEIPT: dg.MetadataValue.json(receipt.to_json()),
        DATA_VERSION: version.value,
    }
    if receipt.plan_id is not None:
        told[PLAN_ID] = receipt.plan_id
    if receipt.snapshot_id is not None:
        told[SNAPSHOT_ID] = str(receipt.snapshot_id)
    return told


def increment_metadata(receipt: Receipt, version: dg.DataVersion) -> dict[str, Any]:
    """The same for an increment: its table is the source, not what was materialised."""
    told = receipt_metadata(receipt, version)
    told["fluss/source"] = told.pop(URI)
    del told[TABLE_NAME], told[STORAGE]
    told[ROWS_MOVED] = receipt.moved
    told["fluss/exactly_once"] = bool(receipt.details.get("exactly_once", False))
    return told


def receipt_of(metadata: Mapping[str, Any]) -> Receipt | None:
    """The receipt that a materialisation carries, if it does."""
    value = metadata.get(RECEIPT)
    plain = getattr(value, "data", value)
    return Receipt.from_json(plain) if isinstance(plain, Mapping) else None
