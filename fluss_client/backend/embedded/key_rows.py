"""Values of the key state: a schema id and a row each, and how they become Arrow columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_client.backend.embedded.options import KV_FORMAT
from fluss_client.backend.embedded.reading import one_batch, shown_schema
from fluss_client.codec.blobs import Blobs, join
from fluss_client.codec.columns import align_to, to_wire
from fluss_client.codec.rows import RowFormat, decode_rows
from fluss_client.codec.value_batch import SchemaIds
from fluss_client.model.schema import Schema
from fluss_client.model.table import TableInfo


def row_format(table: TableInfo) -> RowFormat:
    """How the table's rows are laid out."""
    return RowFormat[table.properties.get(KV_FORMAT, "COMPACTED").upper()]


def with_schema_id(rows: Blobs, schema_id: int) -> Blobs:
    """Rows as values: each behind the id of the schema that it was written with."""
    front = np.frombuffer(schema_id.to_bytes(2, "little", signed=True), np.uint8)
    return join([np.broadcast_to(front, (len(rows), 2)), rows])


def decode_shown(
    table: TableInfo,
    schemas: Mapping[int, Schema],
    schema_ids: SchemaIds,
    rows: Blobs,
    columns: tuple[int, ...] | None,
) -> pa.RecordBatch:
    """Rows of mixed schemas as the table's own schema shows them, in order."""
    wanted = columns if columns is not None else tuple(range(len(table.schema.columns)))
    batches, order = [], []
    for schema_id, schema in schemas.items():
        places = np.flatnonzero(schema_ids == schema_id)
        part = rows if len(schemas) == 1 else rows.take(places)
        batch = decode_rows(
            part, [c.type for c in schema.columns], schema.get_column_names(), row_format(table)
        )
        batches.append(align_to(batch, schema, table.schema, wanted))
        order.append(places)
    merged = one_batch(batches, shown_schema(table, columns))
    if len(batches) < 2:
        return merged
    return merged.take(pa.array(np.argsort(np.concatenate(order), kind="stable")))


def decode_wire(
    table: TableInfo, schemas: Mapping[int, Schema], schema_ids: SchemaIds, rows: Blobs
) -> pa.RecordBatch:
    """The same in wire types, for a changelog."""
    return to_wire(decode_shown(table, schemas, schema_ids, rows, None), table.schema.wire)


def distinct_ids(schema_ids: npt.NDArray[np.int16]) -> Sequence[int]:
    """The schema ids that occur."""
    return [int(i) for i in np.unique(schema_ids)]
