"""Projections: any order of the user's, rising order for servers, and errors that name columns."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fluss_client.aio.projection import Projection, indexes_of
from fluss_client.errors import SchemaError
from fluss_client.model.schema import Schema

SCHEMA = Schema(pa.schema([("a", pa.int32()), ("b", pa.string()), ("c", pa.float64())]))


def test_all_columns() -> None:
    projection = Projection.of(SCHEMA, None)
    assert projection.columns is None
    assert projection.schema == SCHEMA.arrow


@pytest.mark.parametrize(
    ("wanted", "columns"),
    [([0], (0,)), ([2, 0], (0, 2)), ([0, 2], (0, 2)), ([2, 1, 0], None), ([0, 1, 2], None)],
)
def test_any_order_is_asked_for_in_rising_order_and_restored(
    wanted: list[int], columns: tuple[int, ...] | None
) -> None:
    projection = Projection.of(SCHEMA, wanted)
    assert projection.columns == columns
    names = ["abc"[i] for i in wanted]
    assert projection.schema.names == names
    whole = pa.record_batch({"a": [1], "b": ["x"], "c": [1.5]}).cast(SCHEMA.arrow)
    fetched = whole if columns is None else whole.select(list(columns))
    assert projection.restore(fetched).schema == projection.schema


def test_names_become_indexes() -> None:
    assert indexes_of(SCHEMA, ["c", "a"]) == [2, 0]


@pytest.mark.parametrize("wanted", [[3], [-1], ["a"], [True], [None]])
def test_an_index_that_is_no_column(wanted: list[int]) -> None:
    with pytest.raises(SchemaError, match=r"no column .*a, b, c"):
        Projection.of(SCHEMA, wanted)


def test_unknown_names_are_listed() -> None:
    with pytest.raises(SchemaError, match="no column 'x', 'y'; the columns are a, b, c"):
        indexes_of(SCHEMA, ["x", "a", "y"])
    with pytest.raises(SchemaError, match="a list of column names"):
        indexes_of(SCHEMA, "abc")


def test_a_column_twice_and_none_at_all() -> None:
    with pytest.raises(SchemaError, match="column 'b' is projected more than once"):
        Projection.of(SCHEMA, [1, 0, 1])
    with pytest.raises(SchemaError, match="at least one"):
        Projection.of(SCHEMA, [])
