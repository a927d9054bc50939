"""Any type and any value of it, for the property tests of rows and keys."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from fluss_client.model.types import DataType, DataTypes, Field, Root
from tests.unit.codec.reference import TICKS_PER_SECOND

MILLIS_PER_DAY = 86_400_000
# The years 1 to 9999, which Python can show, and 1678 to 2262, which nanoseconds can express.
SECONDS = (-62_135_596_800, 253_402_300_799)
NANO_SECONDS = (-9_223_372_036, 9_223_372_035)

precisions = st.integers(0, 9)
scalar_types = st.one_of(
    st.sampled_from(
        [
            DataTypes.boolean(),
            DataTypes.tinyint(),
            DataTypes.smallint(),
            DataTypes.int(),
            DataTypes.bigint(),
            DataTypes.float(),
            DataTypes.double(),
            DataTypes.string(),
            DataTypes.bytes(),
            DataTypes.date(),
        ]
    ),
    st.integers(1, 20).map(DataTypes.char),
    st.integers(1, 20).map(DataTypes.binary),
    st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: DataTypes.decimal(p, s))),
    precisions.map(DataTypes.time),
    precisions.map(DataTypes.timestamp),
    precisions.map(DataTypes.timestamp_ltz),
)


def _nullable(types: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    return st.builds(DataType.with_nullable, types, st.booleans())


def _nested(children: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    fields = st.lists(children, min_size=1, max_size=10)
    return st.one_of(
        children.map(DataTypes.array),
        st.builds(DataTypes.map, _nullable(scalar_types), children),
        fields.map(lambda ts: DataTypes.row([Field(f"f{i}", t) for i, t in enumerate(ts)])),
    )


any_type = _nullable(
    st.recursive(_nullable(scalar_types), lambda c: _nullable(_nested(c)), max_leaves=6)
)


def values_of(data_type: DataType) -> st.SearchStrategy[Any]:
    """Values of a type; None too if it is nullable."""
    present = _present(data_type)
    return st.none() | present if data_type.nullable else present


def _present(data_type: DataType) -> st.SearchStrategy[Any]:
    root = data_type.root
    if root in _BITS:
        bits = _BITS[root]
        return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    if root in _PLAIN:
        return _PLAIN[root]
    if root is Root.CHAR:
        return st.text(max_size=data_type.length).filter(
            lambda s: len(s.encode()) <= data_type.length and not s.endswith("\0")
        )
    if root is Root.BINARY:
        return st.binary(min_size=data_type.length, max_size=data_type.length)
    if root is Root.DECIMAL:
        limit = 10**data_type.precision - 1
        return st.integers(-limit, limit).map(lambda n: Decimal(f"{n}E-{data_type.scale}"))
    if root is Root.TIME:
        # A row holds milliseconds; finer ticks would be cut.
        per_second = TICKS_PER_SECOND[data_type.precision]
        unit = max(per_second // 1000, 1)
        return st.integers(0, 86_400 * min(per_second, 1000) - 1).map(lambda n: n * unit)
    if root in (Root.TIMESTAMP, Root.TIMESTAMP_LTZ):
        per_second = TICKS_PER_SECOND[data_type.precision]
        low, high = NANO_SECONDS if per_second == 10**9 else SECONDS
        return st.integers(low * per_second, high * per_second)
    return _nested_values(data_type)


def _nested_values(data_type: DataType) -> st.SearchStrategy[Any]:
    if data_type.root is Root.ROW:
        return st.fixed_dictionaries({f.name: values_of(f.type) for f in data_type.fields})
    assert data_type.element is not None
    element = values_of(data_type.element)
    sizes = st.sampled_from([3, 3, 3, 40])
    if data_type.root is Root.ARRAY:
        return sizes.flatmap(lambda size: st.lists(element, max_size=size))
    assert data_type.key is not None
    return st.lists(st.tuples(values_of(data_type.key), element), max_size=4)


_BITS = {Root.TINYINT: 8, Root.SMALLINT: 16, Root.INTEGER: 32, Root.BIGINT: 64}
_PLAIN = {
    Root.BOOLEAN: st.booleans(),
    Root.FLOAT: st.floats(width=32, allow_nan=False),
    Root.DOUBLE: st.floats(allow_nan=False),
    Root.STRING: st.text(max_size=20),
    Root.BYTES: st.binary(max_size=20),
    # Python's dates; rows hold more.
    Root.DATE: st.integers(-719_162, 2_932_896),
}


@st.composite
def tables(draw: st.DrawFn, max_columns: int = 10) -> tuple[list[DataType], list[list[Any]]]:
    """Types, and rows of values; enough rows at times for the paths that small batches avoid."""
    types = draw(st.lists(any_type, min_size=1, max_size=max_columns))
    rows = draw(st.lists(st.tuples(*map(values_of, types)).map(list), max_size=5))
    return types, rows * draw(st.sampled_from([1, 1, 6]))
