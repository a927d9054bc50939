"""The partitions of an output or input, as partitions and filters of its table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc

from fluss_client import FlussConnection, TableInfo
from fluss_client.engine import parse_partition_name, partition_names, spec_to_name
from fluss_client.errors import ConfigError, PartitionNotExistError, RowError
from fluss_orchestrate.core.incremental.planning.late_rows import check_not_expired
from fluss_orchestrate.core.lake.state import read_table
from fluss_orchestrate.dagster.partitions import (
    can_partition,
    dimensions,
    partition_values,
    time_rule,
)


@dataclass(frozen=True)
class TableSlice:
    """Some partitions of an asset that is stored in a table."""

    info: TableInfo
    definition: dg.PartitionsDefinition
    keys: tuple[str, ...]
    columns: Mapping[str, str]
    """The column of each dimension."""

    def __post_init__(self) -> None:
        have = self.info.get_column_names()
        missing = [column for column in self.columns.values() if column not in have]
        if missing:
            raise ConfigError(
                f"{self.info.table_path} has no column {', '.join(missing)}, which partition_expr "
                f"names; it has {', '.join(have)}"
            )

    @property
    def is_stored_apart(self) -> bool:
        """Whether Fluss has a partition for each of the asset's, so that nothing is filtered."""
        if set(self.columns.values()) != set(self.info.partition_keys):
            return False
        return not unpartitionable(self.definition, self.columns, self.info.schema.arrow)

    def specs(self) -> list[dict[str, str]]:
        """The values of the partition columns, key by key."""
        rule = time_rule(self.info)
        arrow = self.info.schema.arrow
        dates = [c for c in self.columns.values() if pa.types.is_date(arrow.field(c).type)]
        found = [
            partition_values(self.definition, key, self.columns, rule, dates) for key in self.keys
        ]
        unique = {tuple(spec.items()): spec for spec in found}
        return list(unique.values())

    def names(self) -> list[str]:
        """The names of Fluss's partitions; only where they are stored apart."""
        return [spec_to_name(spec, self.info.partition_keys) for spec in self.specs()]

    def check_columns(self, schema: pa.Schema) -> None:
        """Raise `RowError` if rows do not say to which partition they belong."""
        lacking = [c for c in self.columns.values() if c not in schema.names]
        if lacking:
            raise RowError(
                f"{self.info.table_path}: the rows lack {', '.join(lacking)}, which says to which "
                "partition each belongs; add it to what the asset returns"
            )

    def checked(self, rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
        """The same rows; `RowError` at one that belongs to a partition that is not this run's."""
        find = self._others_by_name if self.is_stored_apart else self._others_by_value

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in rows:
                other = find(batch) if batch.num_rows else []
                if other:
                    raise RowError(
                        f"{self.info.table_path}: rows of partition {', '.join(other[:5])} "
                        f"came in a run of {', '.join(sorted(self.keys)[:5])}; return only rows "
                        "of the run's partitions"
                    )
                yield batch

        return pa.RecordBatchReader.from_batches(rows.schema, batches())

    def _others_by_name(self, batch: pa.RecordBatch) -> list[str]:
        keys = self.info.partition_keys
        types = [self.info.schema.column(name).type for name in keys]
        found, _ = partition_names(self._as_stored(batch, keys).columns, types)
        return sorted(set(found) - set(self.names()))

    def _others_by_value(self, batch: pa.RecordBatch) -> list[str]:
        """The first row that no later load of these partitions would find."""
        columns = self._as_stored(batch, list(self.columns.values()))
        other = columns.filter(pc.invert(self._mask(columns)))
        if not other.num_rows:
            return []
        return ["$".join(str(column[0].as_py()) for column in other.columns)]

    def _as_stored(self, batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
        """Some columns in the table's own types, in which later loads compare them."""
        columns = []
        for name in names:
            try:
                # The load itself decides whether digits may be cut off.
                kind = self.info.schema.arrow.field(name).type
                columns.append(batch.column(name).cast(kind, safe=False))
            except pa.ArrowException as error:
                raise RowError(
                    f"{self.info.table_path}: column '{name}' cannot be read as the table's type "
                    f"{self.info.schema.column(name).type}: {error}"
                ) from error
        return pa.RecordBatch.from_arrays(columns, names=list(names))

    def read(
        self,
        connection: FlussConnection,
        columns: Sequence[str] | None,
        on_late_rows: str = "read",
    ) -> pa.RecordBatchReader:
        """The rows of the slice; a partition that does not exist, or not any more, has none.

        If the table takes rows of expired partitions, such a partition is an error instead, unless
        `on_late_rows` is `note`.
        """
        if self.is_stored_apart:
            return self._read_apart(connection, columns, on_late_rows)
        wanted = (
            None if columns is None else list(dict.fromkeys([*columns, *self.columns.values()]))
        )
        path = self.info.table_path
        reader = read_table(connection, path, wanted, on_late_rows=on_late_rows)
        names = reader.schema.names if columns is None else list(columns)
        schema = pa.schema([reader.schema.field(name) for name in names])
        batches = (batch.filter(self._mask(batch)).select(names) for batch in reader)
        return pa.RecordBatchReader.from_batches(schema, (b for b in batches if b.num_rows))

    def _read_apart(
        self, connection: FlussConnection, columns: Sequence[str] | None, on_late_rows: str
    ) -> pa.RecordBatchReader:
        arrow = self.info.schema.arrow
        names = self.info.get_column_names() if columns is None else columns

        def batches() -> Iterator[pa.RecordBatch]:
            for name in self.names():
                try:
                    yield from read_table(connection, self.info.table_path, columns, name)
                except PartitionNotExistError:
                    check_not_expired(self.info, name, on_late_rows)

        return pa.RecordBatchReader.from_batches(
            pa.schema([arrow.field(name) for name in names]), batches()
        )

    def _mask(self, batch: pa.RecordBatch) -> pa.Array:
        """Which rows belong to one of the keys, by windows of time or by equal values."""
        inner = dimensions(self.definition)
        masks = []
        for key in self.keys:
            if isinstance(self.definition, dg.MultiPartitionsDefinition):
                parts = self.definition.get_partition_key_from_str(key).keys_by_dimension
                terms = [(inner[d], parts[d], column) for d, column in self.columns.items()]
            elif len(self.columns) > 1:
                values = parse_partition_name(key, list(self.columns.values()))
                terms = [(self.definition, value, column) for column, value in values.items()]
            else:
                terms = [(self.definition, key, column) for column in self.columns.values()]
            mask = _matches(batch, *terms[0])
            for term in terms[1:]:
                mask = pc.and_(mask, _matches(batch, *term))
            masks.append(mask)
        found = masks[0] if masks else pa.array([False] * batch.num_rows)
        for mask in masks[1:]:
            found = pc.or_(found, mask)
        return pc.fill_null(found, False)


def unpartitionable(
    definition: dg.PartitionsDefinition, columns: Mapping[str, str], schema: pa.Schema
) -> list[str]:
    """The columns that have many values in one of Dagster's partitions."""
    inner = dimensions(definition)
    return [
        column
        for dimension, column in columns.items()
        if not can_partition(inner.get(dimension, definition), schema.field(column).type)
    ]


def _matches(
    batch: pa.RecordBatch,
    definition: dg.PartitionsDefinition,
    key: str,
    column: str,
) -> pa.Array:
    values = batch.column(column)
    temporal = pa.types.is_timestamp(values.type) or pa.types.is_date(values.type)
    if temporal and isinstance(definition, dg.TimeWindowPartitionsDefinition):
        window = definition.time_window_for_partition_key(key)
        if pa.types.is_date(values.type):
            values = values.cast(pa.timestamp("s"))
        zoned = values.type.tz is not None
        bounds = [at if zoned else at.replace(tzinfo=None) for at in (window.start, window.end)]
        # Bounds in the column's own unit: a column of nanoseconds does not fit into another one.
        start, end = (pa.scalar(at, values.type) for at in bounds)
        return pc.and_(pc.greater_equal(values, start), pc.less(values, end))
    return pc.equal(values.cast(pa.string()), key)
