"""Writing one output: the table, its partitions, the rows, and what is told about them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import dagster as dg
import pyarrow as pa

from fluss_client import FlussConnection, TableInfo
from fluss_client.errors import ConfigError, TableNotExistError
from fluss_orchestrate.core.loading import load_is_known, load_rows
from fluss_orchestrate.core.provisioning import apply_tables
from fluss_orchestrate.core.provisioning.dropping import drop_partitions
from fluss_orchestrate.core.receipts import Receipt
from fluss_orchestrate.dagster.io.settings import Choices, Stored, WriteMode, table_of
from fluss_orchestrate.dagster.io.slices import TableSlice, unpartitionable
from fluss_orchestrate.dagster.metadata import (
    PARTITION_ROW_COUNT,
    ROW_COUNT,
    receipt_metadata,
    table_metadata,
)
from fluss_orchestrate.dagster.partitions import dimension_columns
from fluss_orchestrate.dagster.runs import other_rows_are_final, work_id
from fluss_orchestrate.dagster.work import (
    load_version,
    partition_counts,
    row_count,
    table_info,
)


class OutputWriter:
    """Writes the rows of one output of one run."""

    def __init__(
        self,
        connection: FlussConnection,
        context: dg.OutputContext,
        choices: Choices,
        root_run: str,
        *,
        database: str,
        create_tables: bool,
        create_partitions: bool,
    ) -> None:
        self._connection = connection
        self._context = context
        self._choices = choices
        self._create_tables = create_tables
        self._create_partitions = create_partitions
        stored = Stored.of(context)
        self._path = table_of(stored, database, choices)
        keys = context.asset_partition_keys if context.has_asset_partitions else ()
        self._keys = tuple(keys)
        self._load_id = work_id(root_run, stored.name, self._keys)

    def write(self, rows: pa.RecordBatchReader) -> dict[str, Any]:
        """Write the rows; the metadata of what was done."""
        info = self._table(rows.schema)
        part = self._slice(info)
        mode = self._mode(info)
        if part is not None:
            rows = part.checked(rows)
        load_id = self._load_id
        if mode is WriteMode.OVERWRITE_PARTITION:
            # New partitions are new places: what was loaded into the old ones does not count.
            ids = self._replace(info, part)
            load_id = f"{load_id}@{'.'.join(str(i) for i in ids)}"
        elif mode is WriteMode.ERROR:
            self._refuse_rows(info, part)
        if part is not None and part.is_stored_apart:
            # The run names these partitions by its own keys; others come from values in rows.
            self._create(info, part.specs())
        with other_rows_are_final():
            receipt = load_rows(
                self._connection,
                self._path,
                rows,
                load_id,
                schema_policy=self._choices.schema_policy(),
                create_partitions=self._create_partitions,
            )
        return self._told(receipt, part, mode)

    def _table(self, schema: pa.Schema) -> TableInfo:
        try:
            return table_info(self._connection, self._path)
        except TableNotExistError:
            if not self._create_tables:
                raise
        columns = self._partition_columns(schema)
        spec = self._choices.table_spec(self._path, schema, columns)
        apply_tables(self._connection, [spec], on_change=lambda c: self._context.log.info(str(c)))
        return table_info(self._connection, self._path)

    def _partition_columns(self, schema: pa.Schema) -> list[str]:
        """The columns by which a new table is partitioned: those that tell partitions apart.

        A window of time holds many timestamps, so that such a column cannot; loads filter by it.
        """
        if not self._context.has_asset_partitions:
            return []
        expression = self._choices.value("partition_expr")
        keys = self._choices.value("partition_keys") or ()
        definition = self._context.asset_partitions_def
        found = dimension_columns(definition, expression, keys, str(self._path))
        missing = [column for column in found.values() if column not in schema.names]
        if missing:
            raise ConfigError(
                f"{self._path}: the frame has no column {', '.join(missing)}, which partition_expr "
                f"names; it has {', '.join(schema.names)}"
            )
        within = unpartitionable(definition, found, schema)
        if within and self._choices.write_mode() is WriteMode.OVERWRITE_PARTITION:
            raise ConfigError(
                f"{self._path}: overwrite_partition needs a column with one value per partition, "
                f"such as the day as text; {', '.join(within)} has many"
            )
        return [column for column in found.values() if column not in within]

    def _slice(self, info: TableInfo) -> TableSlice | None:
        if not self._context.has_asset_partitions:
            return None
        definition = self._context.asset_partitions_def
        expression = self._choices.value("partition_expr")
        columns = dimension_columns(definition, expression, info.partition_keys, str(self._path))
        return TableSlice(info, definition, self._keys, columns)

    def _mode(self, info: TableInfo) -> WriteMode:
        natural = WriteMode.UPSERT if info.has_primary_key() else WriteMode.APPEND
        mode = self._choices.write_mode() or natural
        if mode in (WriteMode.APPEND, WriteMode.UPSERT) and mode is not natural:
            has = "has" if info.has_primary_key() else "has no"
            raise ConfigError(f"{self._path} {has} primary key: its write_mode is {natural}")
        return mode

    def _replace(self, info: TableInfo, part: TableSlice | None) -> list[int]:
        """Drop and create the run's partitions; the ids of the new ones."""
        if part is None or not part.is_stored_apart:
            raise ConfigError(
                f"{self._path}: overwrite_partition needs an asset whose partitions are those of "
                f"the table, which is partitioned by {list(info.partition_keys) or 'nothing'}"
            )
        # Recorded as dropped, so that a scan which had read them to their end goes on.
        drop_partitions(self._connection, self._path, list(part.specs()), force=True)
        self._create(info, part.specs())
        names = set(part.names())
        found = self._connection.get_admin().result().list_partition_infos(self._path).result()
        return sorted(p.partition_id for p in found if p.partition_name in names)

    def _create(self, info: TableInfo, specs: Iterable[dict[str, str]]) -> None:
        admin = self._connection.get_admin().result()
        existing = [dict(p.spec) for p in admin.list_partition_infos(info.table_path).result()]
        for spec in specs:
            if spec not in existing:
                admin.create_partition(self._path, spec, ignore_if_exists=True).result()

    def _refuse_rows(self, info: TableInfo, part: TableSlice | None) -> None:
        if load_is_known(self._connection, self._path, self._load_id):
            return  # what is there may be this run's own
        if part is not None and part.is_stored_apart:
            counts = partition_counts(self._connection, info)
            held = sum(counts.get(name, 0) for name in part.names())
        elif part is not None:
            found = part.read(self._connection, list(part.columns.values()))
            held = sum(batch.num_rows for batch in found)
        else:
            held = row_count(self._connection, info) or 0
        if held:
            raise ConfigError(
                f"{self._path} holds {held} rows already, and write_mode is 'error': drop them, or "
                "choose append, upsert or overwrite_partition"
            )

    def _told(self, receipt: Receipt, part: TableSlice | None, mode: WriteMode) -> dict[str, Any]:
        info = table_info(self._connection, self._path)
        apart = part.names() if part is not None and part.is_stored_apart else None
        version = load_version(self._connection, info, receipt, apart)
        told = {
            **table_metadata(receipt.table.cluster, info),
            **receipt_metadata(receipt, version),
            "fluss/write_mode": str(mode),
        }
        if part is None:
            count = row_count(self._connection, info)
            if count is not None:
                told[ROW_COUNT] = count
        elif apart is not None and len(self._keys) == 1:
            # An event of a range run goes to each of its partitions, so only one can be counted.
            counts = partition_counts(self._connection, info)
            told[PARTITION_ROW_COUNT] = sum(counts.get(name, 0) for name in apart)
        return told
