"""Writing one output: the table, its partitions, the rows, and their metadata."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import dagster as dg
import pyarrow as pa

from fluss_client import FlussConnection, TableInfo
from fluss_client.errors import ConfigError, DatabaseNotExistError, TableNotExistError
from fluss_orchestrate.core.lake.state import read_table
from fluss_orchestrate.core.loading import RowsDifferError, load_is_known, load_rows
from fluss_orchestrate.core.loading.units import CHANGE_TYPE
from fluss_orchestrate.core.provisioning import apply_tables
from fluss_orchestrate.core.provisioning.dropping import PartitionNeededError, drop_partitions
from fluss_orchestrate.core.receipts import Receipt
from fluss_orchestrate.dagster.io.settings import (
    DROP_UNREAD,
    Choices,
    Stored,
    WriteMode,
    table_of,
)
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

OpenRows = Callable[[], pa.RecordBatchReader]
Rows = Callable[[], pa.RecordBatchReader]
"""Opens the rows, converted and checked."""
DELETE = "-D"


class KeySet:
    """The primary keys of rows that are read, kept in memory to find rows with other keys."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self._keys: list[pa.RecordBatch] = []

    def remembering(self, rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
        """Return the same rows, whose keys are remembered as they are read."""

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in rows:
                self._keys.append(batch.select(self._names))
                yield batch

        return pa.RecordBatchReader.from_batches(rows.schema, batches())

    def others(self, rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        """Return rows whose keys were not remembered, as deletes."""
        mine = pa.schema([rows.schema.field(name) for name in self._names])
        known = pa.Table.from_batches([batch.cast(mine) for batch in self._keys], mine)
        for batch in rows:
            numbered = pa.table(
                [*batch.select(self._names).columns, pa.array(range(batch.num_rows))],
                names=[*self._names, "\0row"],
            )
            left = numbered.join(known, self._names, join_type="left anti")["\0row"]
            found = batch.take(left.combine_chunks())
            if found.num_rows:
                yield found.append_column(CHANGE_TYPE, pa.array([DELETE] * found.num_rows))


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

    def write(
        self, open_rows: OpenRows, *, can_repeat: bool
    ) -> tuple[dict[str, Any], dg.DataVersion]:
        """Write the rows; the metadata and the data version of what was done.

        Args:
            open_rows: Opens the rows from the first one on.
            can_repeat: Whether it may be called again.
        """
        first = open_rows()
        info, schema = self._table(first)
        part = self._slice(info)
        mode = self._mode(info, part)
        if part is not None:
            part.check_columns(schema)
            if part.is_stored_apart:
                # The run names these partitions by its own keys; others come from values in rows.
                self._create(info, part.specs())
        opened: list[pa.RecordBatchReader] = [first]

        def rows() -> pa.RecordBatchReader:
            reader = converted(opened.pop() if opened else open_rows(), schema)
            return reader if part is None else part.checked(reader)

        deleted: int | None = None
        if mode is not WriteMode.OVERWRITE_PARTITION or part is None:
            if mode is WriteMode.ERROR:
                self._refuse_rows(info, part)
            receipt = self._load(rows(), self._load_id)
        elif info.has_primary_key():
            receipt, deleted = self._replace_rows(info, part, rows())
        elif part.is_stored_apart:
            receipt = self._replace_partitions(info, part, rows, can_repeat)
        else:
            self._refuse_second_time(part)
            receipt = self._load(rows(), self._load_id)
        metadata, version = self._described(receipt, part, mode)
        if deleted is not None:
            metadata["fluss/rows_deleted"] = deleted
        return metadata, version

    def _load(self, rows: pa.RecordBatchReader, load_id: str) -> Receipt:
        with other_rows_are_final():
            return self._load_rows(rows, load_id)

    def _load_rows(self, rows: pa.RecordBatchReader, load_id: str) -> Receipt:
        receipt = load_rows(
            self._connection,
            self._path,
            rows,
            load_id,
            schema_policy=self._choices.schema_policy(),
            create_partitions=self._create_partitions,
        )
        again = " before" if receipt.details.get("was_done_before") else ""
        self._context.log.info(f"{receipt.rows} rows were loaded into {self._path}{again}")
        return receipt

    def _table(self, rows: pa.RecordBatchReader) -> tuple[TableInfo, pa.Schema]:
        """The table, created if it was not there, and the schema in which the rows fit it."""
        try:
            info = table_info(self._connection, self._path)
            return info, storable(rows, str(self._path), info.get_column_names())
        except (TableNotExistError, DatabaseNotExistError):
            if not self._create_tables:
                raise
        schema = storable(rows, str(self._path), ())
        columns = self._partition_columns(schema)
        spec = self._choices.table_spec(self._path, schema, columns)
        apply_tables(self._connection, [spec], on_change=lambda c: self._context.log.info(str(c)))
        return table_info(self._connection, self._path), schema

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
        keyed = bool(self._choices.value("primary_key"))
        overwrite = self._choices.write_mode() is WriteMode.OVERWRITE_PARTITION
        if within and overwrite and not keyed:
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

    def _mode(self, info: TableInfo, part: TableSlice | None) -> WriteMode:
        natural = WriteMode.UPSERT if info.has_primary_key() else WriteMode.APPEND
        # Materialising a partition again replaces it, as with other IO managers.
        usual = natural if part is None else WriteMode.OVERWRITE_PARTITION
        chosen = self._choices.write_mode()
        mode = chosen or usual
        if mode in (WriteMode.APPEND, WriteMode.UPSERT) and mode is not natural:
            has = "has" if info.has_primary_key() else "has no"
            raise ConfigError(f"{self._path} {has} primary key: its write_mode is {natural}")
        apart = part is not None and (info.has_primary_key() or part.is_stored_apart)
        if chosen is WriteMode.OVERWRITE_PARTITION and not apart:
            raise ConfigError(
                f"{self._path}: overwrite_partition needs an asset whose partitions are those of "
                f"the table, which is partitioned by {list(info.partition_keys) or 'nothing'}"
            )
        return mode

    def _replace_partitions(
        self, info: TableInfo, part: TableSlice, rows: Rows, can_repeat: bool
    ) -> Receipt:
        """Drop and create the run's partitions, and load the rows.

        An earlier attempt of this run may have begun that: then its load is finished in the
        partitions that it has created, because a scan may be reading them.
        """
        ids = self._partition_ids(part)
        begun = f"{self._load_id}@{'.'.join(str(i) for i in ids)}"
        if load_is_known(self._connection, self._path, begun):
            if not can_repeat:
                return self._load(rows(), begun)
            try:
                return self._load_rows(rows(), begun)
            except RowsDifferError:
                self._context.log.info("this attempt has other rows: the partitions are made anew")
        self._drop(part)
        self._create(info, part.specs())
        # New partitions are new places: what was loaded into the old ones does not count.
        ids = self._partition_ids(part)
        return self._load(rows(), f"{self._load_id}@{'.'.join(str(i) for i in ids)}")

    def _drop(self, part: TableSlice) -> None:
        """Drop the run's partitions, recorded, so that scans which had read them go on.

        Raises:
            Failure: A checkpoint or the lake still needs one of them.
        """
        force = bool(self._choices.value(DROP_UNREAD))
        try:
            drop_partitions(self._connection, self._path, list(part.specs()), force=force)
        except PartitionNeededError as error:
            raise dg.Failure(
                f"{error.message}. Materialising the partition again would drop rows that were not "
                "read. Let that run first, then materialise again; or choose write_mode 'append'; "
                f"or drop them all the same with {DROP_UNREAD}: true in the asset's metadata"
            ) from error

    def _partition_ids(self, part: TableSlice) -> list[int]:
        names = set(part.names())
        found = self._connection.get_admin().result().list_partition_infos(self._path).result()
        return sorted(p.partition_id for p in found if p.partition_name in names)

    def _replace_rows(
        self, info: TableInfo, part: TableSlice, rows: pa.RecordBatchReader
    ) -> tuple[Receipt, int]:
        """Upsert the rows of a key table, then delete by their keys what else the slice holds.

        Each delete may be repeated, so that an attempt which died leaves nothing to mend.
        """
        keys = KeySet(info.get_primary_keys())
        receipt = self._load(keys.remembering(rows), self._load_id)
        stale = keys.others(part.read(self._connection, None))
        gone = pa.RecordBatchReader.from_batches(
            info.schema.arrow.append(pa.field(CHANGE_TYPE, pa.string())), stale
        )
        # Other rows may be stale at the next attempt, so that each has an id of its own.
        done = load_rows(self._connection, self._path, gone, f"{self._load_id}-{uuid.uuid4().hex}")
        self._context.log.info(f"{done.rows} rows of {self._path} were deleted by their keys")
        return receipt, done.rows

    def _refuse_second_time(self, part: TableSlice) -> None:
        """Refuse what a log table cannot do: replace rows that stand among others."""
        if load_is_known(self._connection, self._path, self._load_id):
            return
        held = sum(b.num_rows for b in part.read(self._connection, list(part.columns.values())))
        if held:
            columns = ", ".join(part.columns.values())
            raise ConfigError(
                f"{self._path} holds {held} rows of {', '.join(sorted(self._keys)[:5])}, and a log "
                f"table that is not partitioned by {columns} cannot replace them. Give the table a "
                "primary key, or a partition column with one value per partition (such as the day "
                "as text, as partition_expr); or add the rows with write_mode 'append'"
            )

    def _create(self, info: TableInfo, specs: Iterable[dict[str, str]]) -> None:
        admin = self._connection.get_admin().result()
        existing = [dict(p.spec) for p in admin.list_partition_infos(info.table_path).result()]
        for spec in specs:
            if spec not in existing:
                admin.create_partition(self._path, spec, ignore_if_exists=True).result()

    def _refuse_rows(self, info: TableInfo, part: TableSlice | None) -> None:
        if load_is_known(self._connection, self._path, self._load_id):
            return  # what is there may be this run's own
        counts = {}
        if part is not None and part.is_stored_apart:
            counts = partition_counts(self._connection, info)
        whole = row_count(self._connection, info) if part is None else None
        if counts and part is not None:
            held = sum(counts.get(name, 0) for name in part.names())
        elif part is not None:
            found = part.read(self._connection, list(part.columns.values()), "note")
            held = sum(batch.num_rows for batch in found)
        elif whole is not None:
            held = whole
        else:
            # Servers keep no count of a table whose changelog has no old rows.
            columns = info.get_column_names()[:1]
            found = read_table(self._connection, self._path, columns, on_late_rows="note")
            held = sum(batch.num_rows for batch in found)
        if held:
            raise ConfigError(
                f"{self._path} holds {held} rows already, and write_mode is 'error': drop them, or "
                "choose append, upsert or overwrite_partition"
            )

    def _described(
        self, receipt: Receipt, part: TableSlice | None, mode: WriteMode
    ) -> tuple[dict[str, Any], dg.DataVersion]:
        info = table_info(self._connection, self._path)
        apart = part.names() if part is not None and part.is_stored_apart else None
        version = load_version(self._connection, info, receipt, apart)
        metadata = {
            **table_metadata(receipt.table.cluster, info),
            **receipt_metadata(receipt),
            "fluss/write_mode": str(mode),
        }
        if part is None:
            count = row_count(self._connection, info)
            if count is not None:
                metadata[ROW_COUNT] = count
        elif apart is not None and len(self._keys) == 1:
            # An event of a range run goes to each of its partitions, so only one can be counted.
            counts = partition_counts(self._connection, info)
            metadata[PARTITION_ROW_COUNT] = sum(counts.get(name, 0) for name in apart)
        return metadata, version


# Arrow types that Fluss does not have, and the next wider ones that it has. They are for columns
# that are created from a frame: columns that a table has are cast to the table's own types.
_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}


def storable(rows: pa.RecordBatchReader, table: str, present: Collection[str]) -> pa.Schema:
    """Return the schema in which rows can be stored.

    Args:
        rows: The rows.
        table: The table, for the error.
        present: The columns that the table has; they stay as they are.

    Raises:
        ConfigError: A column has a type that no type of Fluss can hold; says what to do.
    """
    fields = [f if f.name in present else _storable(f, table) for f in rows.schema]
    return pa.schema(fields)


def converted(rows: pa.RecordBatchReader, schema: pa.Schema) -> pa.RecordBatchReader:
    """Return the same rows in another schema with the same names."""
    if rows.schema.equals(schema):
        return rows
    batches = (batch.cast(schema) for batch in rows)
    return pa.RecordBatchReader.from_batches(schema, batches)


def _storable(field: pa.Field, table: str) -> pa.Field:
    kind = field.type
    if pa.types.is_dictionary(kind):
        return _storable(field.with_type(kind.value_type), table)
    if pa.types.is_null(kind):
        raise ConfigError(
            f"{table}: column '{field.name}' has no values, so its type is not known: give it one, "
            f"such as frame['{field.name}'].astype('string') in pandas or an Arrow schema, or "
            "create the table before, by a TableSpec"
        )
    if pa.types.is_duration(kind):
        raise ConfigError(
            f"{table}: column '{field.name}' is a duration, which Fluss has not: store it as a "
            "number, such as its seconds (dt.total_seconds() in pandas)"
        )
    return field.with_type(_WIDER.get(kind, kind))
