"""What a materialisation tells: Dagster's own keys where there is one, `fluss/…` for the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from fluss_client import Schema, TableInfo, TablePath
from fluss_orchestrate.console import links
from fluss_orchestrate.core.identity import table_uri
from fluss_orchestrate.core.plan import BucketRange
from fluss_orchestrate.core.receipts import Receipt

STORAGE_KIND = "fluss"
TABLE_NAME = "dagster/table_name"
STORAGE = "dagster/storage_kind"
URI = "dagster/uri"
COLUMN_SCHEMA = "dagster/column_schema"
COLUMN_LINEAGE = "dagster/column_lineage"
ROW_COUNT = "dagster/row_count"
PARTITION_ROW_COUNT = "dagster/partition_row_count"
DATA_VERSION_TAG = "dagster/data_version"

OFFSETS = "fluss/offsets"
RECEIPT = "fluss/receipt"
ROWS = "fluss/rows"
ROWS_MOVED = "fluss/rows_moved"
"""Rows that this very run has written: fewer than `ROWS` if an earlier one did it already."""
REPLAYED = "fluss/replayed"
"""Whether the work had been done before this run, so that it wrote nothing."""
LAG_OFFSETS = "fluss/lag_offsets"
LAG_S = "fluss/lag_s"
SINK = "fluss/sink"
"""The kind of a sink."""
TARGET = "fluss/target"
"""Where the rows are, as a link or a path."""
PLAN_ID = "fluss/plan_id"
SNAPSHOT_ID = "fluss/snapshot_id"

CONSOLE = "fluss/console"
"""The page of the checkpoint, or of the table, in a console."""

OFFSETS_SHOWN_MAX = 50
"""Ranges in the table of offsets; the receipt has all of them."""
_OFFSET_COLUMNS = (("partition", "string"), ("bucket", "int"), ("start", "int"), ("stop", "int"))

Columns = Sequence[Mapping[str, Any]]
"""Name, type, nullable and comment of each column."""


def columns_of(schema: Schema) -> tuple[dict[str, Any], ...]:
    """The columns of a schema as plain values."""
    return tuple(
        {
            "name": column.name,
            "type": str(column.type),
            "nullable": column.type.nullable,
            "comment": column.comment,
        }
        for column in schema.columns
    )


def column_schema(
    columns: Columns, primary_key: Sequence[str] = (), partition_keys: Sequence[str] = ()
) -> dg.TableSchema:
    """The columns of a table as Dagster shows and compares them."""
    found = [
        dg.TableColumn(
            column["name"],
            column["type"],
            column["comment"],
            dg.TableColumnConstraints(
                nullable=column["nullable"], unique=list(primary_key) == [column["name"]]
            ),
        )
        for column in columns
    ]
    whole = []
    if primary_key:
        whole.append(f"primary key ({', '.join(primary_key)})")
    if partition_keys:
        whole.append(f"partitioned by ({', '.join(partition_keys)})")
    return dg.TableSchema(found, dg.TableConstraints(other=whole) if whole else None)


def info_schema(info: TableInfo) -> dg.TableSchema:
    """The same of a table that was asked for."""
    columns = columns_of(info.schema)
    return column_schema(columns, info.get_primary_keys(), info.get_partition_keys())


def column_lineage(source: dg.AssetKey, columns: Sequence[str]) -> dg.TableColumnLineage:
    """Columns that come from those of the same name in another asset."""
    return dg.TableColumnLineage({name: [dg.TableColumnDep(source, name)] for name in columns})


def table_metadata(cluster: str, info: TableInfo) -> dict[str, Any]:
    """Which table it is, under the keys by which tools find the same table elsewhere."""
    return {
        TABLE_NAME: str(info.table_path),
        STORAGE: STORAGE_KIND,
        URI: table_uri(cluster, info.table_path),
        COLUMN_SCHEMA: info_schema(info),
    }


def offsets_table(ranges: Sequence[BucketRange]) -> dg.MetadataValue[Any]:
    """Ranges as a table that Dagster shows, the first ones of very many."""
    schema = dg.TableSchema([dg.TableColumn(name, kind) for name, kind in _OFFSET_COLUMNS])
    records = [
        dg.TableRecord(
            {"partition": r.partition or "", "bucket": r.bucket, "start": r.start, "stop": r.stop}
        )
        for r in ranges[:OFFSETS_SHOWN_MAX]
    ]
    return dg.MetadataValue.table(records, schema)


def receipt_metadata(receipt: Receipt) -> dict[str, Any]:
    """What was done, small enough for an event: ranges and counts, never rows."""
    done_before = ("already_committed", "was_done_before")
    metadata: dict[str, Any] = {
        TABLE_NAME: str(receipt.table.path),
        STORAGE: STORAGE_KIND,
        URI: receipt.table.uri,
        ROWS: receipt.rows,
        REPLAYED: any(bool(receipt.details.get(word)) for word in done_before),
        OFFSETS: offsets_table(receipt.ranges),
        RECEIPT: dg.MetadataValue.json(_short(receipt)),
    }
    if len(receipt.ranges) > OFFSETS_SHOWN_MAX:
        metadata["fluss/ranges"] = len(receipt.ranges)
    if receipt.plan_id is not None:
        metadata[PLAN_ID] = receipt.plan_id
    if receipt.snapshot_id is not None:
        metadata[SNAPSHOT_ID] = str(receipt.snapshot_id)
    return metadata


def _short(receipt: Receipt) -> dict[str, Any]:
    """The receipt without the position of places that it is not about: the store has that."""
    value = receipt.to_json()
    value.pop("position", None)
    return value


def increment_metadata(receipt: Receipt, sink: str) -> dict[str, Any]:
    """The same for an increment: its table is the source, and the sink was materialised.

    Args:
        receipt: What was done.
        sink: The identity of the sink.
    """
    metadata = receipt_metadata(receipt)
    metadata["fluss/source"] = metadata.pop(URI)
    del metadata[TABLE_NAME], metadata[STORAGE]
    metadata[ROWS_MOVED] = receipt.moved
    metadata["fluss/exactly_once"] = bool(receipt.details.get("exactly_once", False))
    return {**metadata, **sink_metadata(sink)}


def sink_metadata(identity: str) -> dict[str, Any]:
    """What a sink is and where it writes to, from its identity, which has no address and no login.

    Args:
        identity: `kind:where`, as `Sink.identity` has it.
    """
    kind, _, where = identity.partition(":")
    if kind == "parquet":
        system, _, folder = where.partition(":")
        if system == "local":
            target: Any = dg.MetadataValue.path(folder)
        else:
            target = dg.MetadataValue.url(f"{system}://{folder}")
        uri = f"file://{folder}" if system == "local" else f"{system}://{folder}"
        return {SINK: kind, STORAGE: kind, TARGET: target, URI: uri}
    if kind == "iceberg":
        catalog, _, table = where.partition("/")
        uri = f"iceberg://{catalog}/{table}"
        return {SINK: kind, STORAGE: kind, TABLE_NAME: table, TARGET: where, URI: uri}
    if kind == "sql":
        backend, _, rest = where.partition(":")
        database, _, table = rest.rpartition(":")
        uri = f"{backend}://{database}/{table}"
        return {SINK: kind, STORAGE: backend, TABLE_NAME: table, TARGET: rest, URI: uri}
    if kind == "fluss":
        alias, _, table = where.partition("/")
        uri = table_uri(alias, TablePath.parse(table))
        return {SINK: kind, STORAGE: kind, TABLE_NAME: table, TARGET: table, URI: uri}
    return {SINK: kind, TARGET: where} if where else {SINK: kind}


def linked(result: dg.MaterializeResult[Any], console_url: str) -> dg.MaterializeResult[Any]:
    """The same result with a link to the console: the page of its checkpoint, or of its table.

    Args:
        result: A materialisation with a receipt; another one stays as it is.
        console_url: Where the console is; empty for none.
    """
    metadata = dict(result.metadata or {})
    receipt = receipt_of(metadata) if console_url else None
    if receipt is None:
        return result
    checkpoint = receipt.details.get("name") if receipt.kind == "increment" else None
    if checkpoint:
        url = links.checkpoint_page(console_url, str(checkpoint))
    else:
        url = links.table_page(console_url, str(receipt.table.path))
    return result._replace(metadata={**metadata, CONSOLE: dg.MetadataValue.url(url)})


def receipt_of(metadata: Mapping[str, Any]) -> Receipt | None:
    """The receipt that a materialisation carries, if it does."""
    value = metadata.get(RECEIPT)
    plain = getattr(value, "data", value)
    return Receipt.from_json(plain) if isinstance(plain, Mapping) else None
