"""Hypothesis strategies: any logical type, any value of it, any small table of them."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from fluss_client.model.schema import Column, Schema
from fluss_client.model.types import DataType, DataTypes, Field, Root

_UNIT_PER_SECOND = (1, 10**3, 10**3, 10**3, 10**6, 10**6, 10**6, 10**9, 10**9, 10**9)

PLAIN_TYPES = st.sampled_from(
    [
        DataTypes.boolean(),
        DataTypes.tinyint(),
        DataTypes.smallint(),
        DataTypes.int(),
        DataTypes.bigint(),
        DataTypes.float(),
        DataTypes.double(),
        DataTypes.char(3),
        DataTypes.string(),
        DataTypes.binary(4),
        DataTypes.bytes(),
        DataTypes.decimal(9, 2),
        DataTypes.decimal(18, 0),
        DataTypes.decimal(38, 10),
        DataTypes.date(),
        *(DataTypes.time(p) for p in (0, 3, 6, 9)),
        *(DataTypes.timestamp(p) for p in (0, 3, 6, 9)),
        *(DataTypes.timestamp_ltz(p) for p in (0, 3, 6, 9)),
    ]
)


def _nullable(types: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    return st.builds(lambda t, n: t.with_nullable(n), types, st.booleans())


def _nested(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    inner = _nullable(inner)
    rows = st.lists(inner, min_size=1, max_size=3).map(
        lambda types: DataTypes.row([Field(f"f{i}", t) for i, t in enumerate(types)])
    )
    maps = st.builds(DataTypes.map, PLAIN_TYPES, inner)
    return inner.map(DataTypes.array) | maps | rows


TYPES = _nullable(st.recursive(PLAIN_TYPES, _nested, max_leaves=4))


def values(data_type: DataType) -> st.SearchStrategy[Any]:
    """Values that `pa.array` takes for the type; times have whole milliseconds."""
    plain = _values(data_type)
    return st.none() | plain if data_type.nullable else plain


def _values(data_type: DataType) -> st.SearchStrategy[Any]:
    root = data_type.root
    bits = {Root.TINYINT: 8, Root.SMALLINT: 16, Root.INTEGER: 32, Root.BIGINT: 64}.get(root)
    if bits:
        return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if root is Root.BOOLEAN:
        return st.booleans()
    if root in (Root.FLOAT, Root.DOUBLE):
        return st.floats(width=32 if root is Root.FLOAT else 64, allow_nan=False)
    if root is Root.CHAR:
        return st.text("abcxyz", min_size=data_type.length, max_size=data_type.length)
    if root is Root.STRING:
        return st.text(max_size=12)
    if root is Root.BINARY:
        return st.binary(min_size=data_type.length, max_size=data_type.length)
    if root is Root.BYTES:
        return st.binary(max_size=12)
    if root is Root.DECIMAL:
        top, scale = 10**data_type.precision - 1, data_type.scale
        return st.integers(-top, top).map(lambda n: Decimal(f"{n}e-{scale}"))
    if root is Root.DATE:
        return st.integers(-700_000, 2_900_000)
    if root is Root.TIME:
        unit = _UNIT_PER_SECOND[data_type.precision]
        if unit == 1:
            return st.integers(0, 86_399)
        return st.integers(0, 86_399_999).map(lambda ms: ms * (unit // 1_000))
    if root in (Root.TIMESTAMP, Root.TIMESTAMP_LTZ):
        unit = _UNIT_PER_SECOND[data_type.precision]
        return st.integers(-9_000_000_000 * unit, 9_000_000_000 * unit)
    return _nested_values(data_type)


def _nested_values(data_type: DataType) -> st.SearchStrategy[Any]:
    if data_type.root is Root.ARRAY and data_type.element is not None:
        return st.lists(values(data_type.element), max_size=3)
    if data_type.root is Root.MAP and data_type.key is not None and data_type.element is not None:
        pairs = st.tuples(values(data_type.key), values(data_type.element))
        return st.lists(pairs, max_size=3, unique_by=lambda pair: str(pair[0]))
    return st.fixed_dictionaries({f.name: values(f.type) for f in data_type.fields})


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    types = draw(st.lists(TYPES, min_size=1, max_size=4))
    return Schema.of([Column(f"c{i}", t) for i, t in enumerate(types)])


@st.composite
def tables(draw: st.DrawFn, min_rows: int = 0) -> tuple[Schema, pa.RecordBatch]:
    """A schema and a batch of its wire types."""
    schema = draw(schemas())
    count = draw(st.integers(min_rows, 12))
    columns = [
        pa.array(
            draw(st.lists(values(column.type), min_size=count, max_size=count)),
            schema.wire.field(column.name).type,
        )
        for column in schema.columns
    ]
    return schema, pa.RecordBatch.from_arrays(columns, schema=schema.wire)


def renamed(schema: Schema, suffix: str) -> Schema:
    """The same columns, by their ids, under other names."""
    return Schema.of([replace(c, name=c.name + suffix) for c in schema.columns])
