"""Frames in and out of Fluss tables, as an IO manager of Dagster."""

# Dagster reads the types of nested resources as the class is made, so they are no strings here.

from collections.abc import Sequence
from typing import Any

import dagster as dg
import pyarrow as pa
from pydantic import Field, PrivateAttr

from fluss_client import FlussConnection, TablePath
from fluss_client.errors import ConfigError, TableNotExistError
from fluss_orchestrate.core.lake.state import read_receipt, read_table
from fluss_orchestrate.core.receipts import Receipt
from fluss_orchestrate.dagster.io.handlers import find_handler, wanted_frame
from fluss_orchestrate.dagster.io.settings import (
    Choices,
    ReadMode,
    Stored,
    check_keys,
    table_of,
)
from fluss_orchestrate.dagster.io.slices import TableSlice
from fluss_orchestrate.dagster.io.writing import OutputWriter
from fluss_orchestrate.dagster.metadata import receipt_of
from fluss_orchestrate.dagster.partitions import dimension_columns
from fluss_orchestrate.dagster.resource import FlussResource
from fluss_orchestrate.dagster.runs import root_run_id, set_data_version, work_id
from fluss_orchestrate.dagster.work import table_info


class FlussIOManager(dg.ConfigurableIOManager):
    """Stores what assets return in Fluss, and loads it for others.

    The last two parts of an asset's key are the database and the table. The output of an op that is
    not an asset has a table of its own in `database`, of which a run loads what it stored itself.
    Arrow, pandas, polars and PySpark frames are accepted. An input gets the class of its
    annotation, or an Arrow table if it has none.

    The metadata of an asset may set `write_mode`, `schema_policy` and the options of a table to
    create; that of an input may set `columns` and `read_mode`.

    Attributes:
        fluss: The resource with the connection.
        database: The database of assets whose key has one part.
        write_mode: `append`, `upsert`, `overwrite_partition` or `error`; by default as the kind of
            the table requires.
        schema_policy: `error` or `add_columns`, for columns that a table lacks.
        create_tables: Create a table on its first write.
        create_partitions: Create the partitions that rows need. Those of the run are always
            created.
    """

    fluss: dg.ResourceDependency[FlussResource]
    database: str = Field(default="", description="For assets whose key has one part.")
    write_mode: str | None = Field(
        default=None,
        description="append, upsert, overwrite_partition or error. If not set, assets with "
        "partitions replace them; others append to log tables and upsert into key tables.",
    )
    schema_policy: str = Field(
        default="error", description="error or add_columns, for columns that a table lacks."
    )
    create_tables: bool = Field(default=True, description="Create a table on its first write.")
    create_partitions: bool = Field(
        default=False,
        description="Create the partitions that rows need. Those of the run are always created.",
    )
    _root_run_id: str | None = PrivateAttr(default=None)

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """Remember the run that retries and re-executions come from.

        Args:
            context: The context of the resource.
        """
        self._root_run_id = None if context.run is None else root_run_id(context.run)

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Write a frame, once for all tries of the step.

        Args:
            context: The context of the output.
            obj: The frame.
        """
        if obj is None:
            raise ConfigError(
                f"{Stored.of(context).name} returned None: return a frame, which may be empty, or "
                "annotate it with '-> None' or MaterializeResult to store nothing"
            )
        check_keys(context.definition_metadata or {}, Stored.of(context).name)
        handler, _ = find_handler(type(obj))
        writer = OutputWriter(
            self.fluss.connection,
            context,
            self._choices(context.definition_metadata, context.output_metadata),
            self._root_run_id or context.run_id,
            database=self.database,
            create_tables=self.create_tables,
            create_partitions=self.create_partitions,
        )
        # A reader gives its rows once; all other frames can be asked for them again.
        once = isinstance(obj, pa.RecordBatchReader)
        metadata, version = writer.write(lambda: handler.to_arrow(obj), can_repeat=not once)
        if context.has_asset_key:
            set_data_version(context.asset_key, version)
        # What the asset itself said stands; an IO manager's word would replace it silently.
        own = set(context.output_metadata)
        context.add_output_metadata({k: v for k, v in metadata.items() if k not in own})

    def load_input(self, context: dg.InputContext) -> Any:
        """Return the table, or the wanted partitions and columns of it, as the class of the input.

        Args:
            context: The context of the input.
        """
        upstream = context.upstream_output
        own = {} if upstream is None else upstream.definition_metadata
        choices = self._choices(own, context.definition_metadata)
        stored = self._stored(context)
        path = table_of(stored, self.database, choices)
        wanted = wanted_frame(context.dagster_type.typing_type, stored.name)
        handler, name = find_handler(wanted)
        connection = self.fluss.connection
        chosen = choices.columns()

        def open_rows(columns: Sequence[str] | None) -> pa.RecordBatchReader:
            some = columns or chosen
            if stored.asset_key is None and upstream is not None:
                return self._open_output(connection, context, stored, path, choices, some)
            return self._open(connection, context, path, choices, some)

        return handler.from_arrow(open_rows, name)

    def _stored(self, context: dg.InputContext) -> Stored:
        """What an input loads: an asset, an op's output, or a table that its metadata names."""
        if context.has_asset_key:
            return Stored(context.asset_key, context.asset_key.to_user_string())
        if context.upstream_output is not None:
            return Stored.of(context.upstream_output)
        return Stored(None, "an input that is neither an asset nor an output")

    def _choices(self, *layers: Any) -> Choices:
        mine = {"write_mode": self.write_mode, "schema_policy": self.schema_policy}
        return Choices((*reversed([dict(layer or {}) for layer in layers]), mine), "FlussIOManager")

    def _open(
        self,
        connection: FlussConnection,
        context: dg.InputContext,
        path: TablePath,
        choices: Choices,
        columns: Sequence[str] | None,
    ) -> pa.RecordBatchReader:
        if choices.read_mode() is ReadMode.LAST:
            return self._open_last(connection, context, columns)
        late = choices.on_late_rows()
        if not context.has_asset_partitions:
            return read_table(connection, path, columns, on_late_rows=late)
        try:
            info = table_info(connection, path)
        except TableNotExistError as error:
            raise TableNotExistError(f"{path}: it was never written: {error.message}") from error
        definition = context.asset_partitions_def
        where = dimension_columns(
            definition, choices.value("partition_expr"), info.partition_keys, str(path)
        )
        keys = tuple(context.asset_partition_keys)
        return TableSlice(info, definition, keys, where).read(connection, columns, late)

    def _open_output(
        self,
        connection: FlussConnection,
        context: dg.InputContext,
        stored: Stored,
        path: TablePath,
        choices: Choices,
        columns: Sequence[str] | None,
    ) -> pa.RecordBatchReader:
        """The rows that this run's op gave: its table also has those of other runs."""
        whole = choices.value("read_mode") is not None and choices.read_mode() is ReadMode.TABLE
        if whole or table_info(connection, path).has_primary_key():
            return read_table(connection, path, columns, on_late_rows=choices.on_late_rows())
        assert context.upstream_output is not None
        run_id = context.upstream_output.run_id
        load_id = work_id(self._root_run_id or run_id, stored.name, ())
        receipt = _output_receipt(context.instance, run_id, load_id)
        if receipt is None:
            raise ConfigError(
                f"run {run_id} has no record of what {stored.name} stored: run the whole "
                "job again, or load the table with read_mode='table'"
            )
        return read_receipt(connection, receipt, columns)

    def _open_last(
        self, connection: FlussConnection, context: dg.InputContext, columns: Sequence[str] | None
    ) -> pa.RecordBatchReader:
        receipts = _last_receipts(context)
        if not receipts:
            raise ConfigError(
                f"{context.asset_key.to_user_string()} has no materialisation with offsets: "
                "materialise it first, or load it with read_mode='table'"
            )
        readers = [read_receipt(connection, receipt, columns) for receipt in receipts]
        batches = (batch for reader in readers for batch in reader)
        return pa.RecordBatchReader.from_batches(readers[0].schema, batches)


def _last_receipts(context: dg.InputContext) -> list[Receipt]:
    """What the last materialisation tells; of each partition, where the input has some."""
    key = context.asset_key
    chosen: list[list[str] | None] = [None]
    if context.has_asset_partitions:
        chosen = [[partition] for partition in context.asset_partition_keys]
    found: dict[str, Receipt] = {}
    for partitions in chosen:
        wanted = dg.AssetRecordsFilter(key, asset_partitions=partitions)
        for record in context.instance.fetch_materializations(wanted, limit=1).records:
            event = record.asset_materialization
            receipt = None if event is None else receipt_of(event.metadata)
            if receipt is not None:
                # A range run has reported the same receipt for each of its partitions.
                found[f"{receipt.run_key} {receipt.started_ms}"] = receipt
    return list(found.values())


def _output_receipt(instance: dg.DagsterInstance, run_id: str, load_id: str) -> Receipt | None:
    """What an op's output was stored as, from the events of the run that it was stored in."""
    kind = {dg.DagsterEventType.HANDLED_OUTPUT}
    for entry in reversed(instance.all_logs(run_id, of_type=kind)):
        event = entry.dagster_event
        data = None if event is None else event.event_specific_data
        receipt = receipt_of(getattr(data, "metadata", {}))
        if receipt is not None and receipt.run_key == load_id:
            return receipt
    return None
