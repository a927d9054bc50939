"""Arrow types that Fluss does not have, as the next wider ones that it has.

Columns that a table has are cast to the table's own types as they are loaded. This is for columns
that are created from a frame.
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from fluss_client.errors import ConfigError

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
