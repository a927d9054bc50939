"""Stored rows as the Arrow batches that users see; both backends use these functions.

Values of the key state carry the id of the schema that they were written with. Here they are
decoded with that schema and shown in the table's current one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from fluss_client.backend.contract import LogSlice
from fluss_client.codec.arrow_columns import align_to
from fluss_client.codec.binary.blobs import Blobs
from fluss_client.codec.kv_batch import SchemaIds
from fluss_client.codec.rows import RowFormat, decode_rows
from fluss_client.model.schema import Schema
from fluss_client.model.table import KV_FORMAT, TableInfo


def row_format(table: TableInfo) -> RowFormat:
    """Return the format of the rows in the table's key state."""
    return RowFormat[table.properties.get(KV_FORMAT, "COMPACTED").upper()]


def distinct_ids(schema_ids: SchemaIds) -> list[int]:
    """Return each schema id that occurs once."""
    return [int(i) for i in np.unique(schema_ids)]


def shown_schema(table: TableInfo, columns: tuple[int, ...] | None) -> pa.Schema:
    """Return the Arrow schema of some columns of a table; None means all columns."""
    arrow = table.schema.arrow
    return arrow if columns is None else pa.schema([arrow.field(i) for i in columns])


def one_batch(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Concatenate batches; return an empty batch of `schema` if there are none."""
    parts = list(batches)
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return pa.RecordBatch.from_pylist([], schema=schema)
    return pa.concat_batches(parts)


def last_rows(slices: Sequence[LogSlice], limit: int, schema: pa.Schema) -> pa.RecordBatch:
    """Decode the last `limit` rows of some slices as one batch; CPU work."""
    batches: list[pa.RecordBatch] = []
    missing = limit
    for part in reversed(slices):
        if missing <= 0:
            break
        batch, _ = part.decode()
        batches.append(batch.slice(max(0, batch.num_rows - missing)))
        missing -= batch.num_rows
    return one_batch(reversed(batches), schema)


def decode_key_rows(
    table: TableInfo,
    schemas: Mapping[int, Schema],
    schema_ids: SchemaIds,
    rows: Blobs,
    columns: tuple[int, ...] | None,
) -> pa.RecordBatch:
    """Decode rows of the key state, each with its own schema, into the table's current schema.

    Args:
        table: The table, with its current schema.
        schemas: Every schema that occurs in `schema_ids`, by id.
        schema_ids: The schema id of each row.
        rows: The encoded rows.
        columns: The columns of the current schema to return; None returns all.

    Returns:
        One batch with the rows in the order of `rows`.
    """
    wanted = columns if columns is not None else tuple(range(len(table.schema.columns)))
    wanted_ids = {table.schema.columns[position].id for position in wanted}
    batches, order = [], []
    for schema_id, schema in schemas.items():
        places = np.flatnonzero(schema_ids == schema_id)
        part = rows if len(schemas) == 1 else rows.take(places)
        types = [column.type for column in schema.columns]
        # One column at least, because a batch without columns does not know how many rows it has.
        held = [at for at, column in enumerate(schema.columns) if column.id in wanted_ids] or [0]
        batch = decode_rows(part, types, schema.get_column_names(), row_format(table), held)
        batches.append(align_to(batch, schema, table.schema, wanted))
        order.append(places)
    merged = one_batch(batches, shown_schema(table, columns))
    if len(batches) < 2:
        return merged
    # The batches are grouped by schema: restore the order of the rows.
    return merged.take(pa.array(np.argsort(np.concatenate(order), kind="stable")))
