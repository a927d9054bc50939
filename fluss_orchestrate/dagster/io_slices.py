"""The partitions of an output or input, as partitions and filters of its table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc

from fluss_client import FlussConnection, TableInfo
from fluss_client.codec.partition_names import partition_names, spec_to_name
from fluss_client.errors import PartitionNotExistError, RowError
from fluss_orchestrate.core.lake.state import read_table
from fluss_orchestrate.dagster.partitions import partition_values, time_rule


@dataclass(frozen=True)
class TableSlice:
    """Some partitions of an asset that is stored in a table."""

    info: TableInfo
    definition: dg.PartitionsDefinition
    keys: tuple[str, ...]
    columns: Mapping[str, str]
    """The column of each dimension."""

    @property
    def is_stored_apart(self) -> bool:
        """Whether Fluss has a partition for each of the asset's, so that nothing is filtered."""
        return set(self.columns.values()) == set(self.info.partition_keys)

    def specs(self) -> list[dict[str, str]]:
        """The values of the partition columns, key by key."""
        rule = time_rule(self.info)
        found = [partition_values(self.definition, key, self.columns, rule) for key in self.keys]
        unique = {tuple(spec.items()): spec for spec in found}
        return list(unique.values())

    def names(self) -> list[str]:
        """The names of Fluss's partitions; only where they are stored apart."""
        return [spec_to_name(spec, self.info.partition_keys) for spec in self.specs()]

    def checked(self, rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
        """The same rows; `RowError` at one that belongs to a partition that is not this run's."""
        allowed = set(self.names())
        types = [self.info.schema.column(name).type for name in self.info.partition_keys]
        arrow = self.info.schema.arrow

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in rows:
                if batch.num_rows:
                    columns = [
                        batch.column(name).cast(arrow.field(name).type)
                        for name in self.info.partition_keys
                    ]
                    found, _ = partition_names(columns, types)
                    other = sorted(set(found) - allowed)
                    if other:
                        raise RowError(
                            f"{self.info.table_path}: rows of partition {', '.join(other[:5])} "
                            f"came in a run of {', '.join(sorted(allowed)[:5])}; return only rows "
                            "of the run's partitions"
                        )
                yield batch

        return pa.RecordBatchReader.from_batches(rows.schema, batches())

    def read(
        self, connection: FlussConnection, columns: Sequence[str] | None
    ) -> pa.RecordBatchReader:
        """The rows of the slice; a partition that does not exist, or not any more, has none."""
        if self.is_stored_apart:
            return self._read_apart(connection, columns)
        wanted = (
            None if columns is None else list(dict.fromkeys([*columns, *self.columns.values()]))
        )
        reader = read_table(connection, self.info.table_path, wanted)
        names = reader.schema.names if columns is None else list(columns)
        schema = pa.schema([reader.schema.field(name) for name in names])
        batches = (batch.filter(self._mask(batch)).select(names) for batch in reader)
        return pa.RecordBatchReader.from_batches(schema, (b for b in batches if b.num_rows))

    def _read_apart(
        self, connection: FlussConnection, columns: Sequence[str] | None
    ) -> pa.RecordBatchReader:
        arrow = self.info.schema.arrow
        names = self.info.get_column_names() if columns is None else columns

        def batches() -> Iterator[pa.RecordBatch]:
            for name in self.names():
                try:
                    yield from read_table(connection, self.info.table_path, columns, name)
                except PartitionNotExistError:
                    continue

        return pa.RecordBatchReader.from_batches(
            pa.schema([arrow.field(name) for name in names]), batches()
        )

    def _mask(self, batch: pa.RecordBatch) -> pa.Array:
        """Which rows belong to one of the keys, by windows of time or by equal values."""
        masks = []
        for key in self.keys:
            if isinstance(self.definition, dg.MultiPartitionsDefinition):
                parts = self.definition.get_partition_key_from_str(key).keys_by_dimension
                inner = {d.name: d.partitions_def for d in self.definition.partitions_defs}
                terms = [(inner[d], parts[d], column) for d, column in self.columns.items()]
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
        zoned = pa.types.is_timestamp(values.type) and values.type.tz is not None
        bounds = [at if zoned else at.replace(tzinfo=None) for at in (window.start, window.end)]
        start, end = (pa.scalar(at, pa.timestamp("us", "UTC" if zoned else None)) for at in bounds)
        instants = values.cast(start.type)
        return pc.and_(pc.greater_equal(instants, start), pc.less(instants, end))
    return pc.equal(values.cast(pa.string()), key)
