"""Which rows of a batch a condition of `TableScan.filter` keeps.

A comparison with a null is neither true nor false, as in SQL: `&` and `|` join such values by the
rules of SQL, and a row is kept only if the whole condition is true.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fluss_client.model.predicate import Predicate

_COMPARISONS: dict[str, Callable[[pa.Array, pa.Scalar], pa.Array]] = {
    "==": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_OF_TEXT: dict[str, Callable[[pa.Array, str], pa.Array]] = {
    "starts_with": pc.starts_with,
    "ends_with": pc.ends_with,
    "contains": pc.match_substring,
}


def kept_rows(predicate: Predicate, batch: pa.RecordBatch) -> pa.BooleanArray:
    """Return for each row of a batch whether the condition is true; never null.

    Args:
        predicate: The condition; its columns must be in the batch, under their names.
        batch: The rows.
    """
    return _test(predicate, batch).fill_null(False)


def _test(predicate: Predicate, batch: pa.RecordBatch) -> pa.BooleanArray:
    if predicate.children:
        join = pc.and_kleene if predicate.function == "&" else pc.or_kleene
        return reduce(join, (_test(child, batch) for child in predicate.children))
    column = batch.column(predicate.column)
    function, literals = predicate.function, predicate.literals
    if function == "is_null":
        return pc.is_null(column)
    if function == "is_not_null":
        return pc.is_valid(column)
    if function in _OF_TEXT:
        return _OF_TEXT[function](column, literals[0])
    if function in _COMPARISONS:
        return _COMPARISONS[function](column, _scalar(literals[0], column.type))
    nothing = pc.equal(pa.scalar(False), pc.is_null(column)).fill_null(False)
    found = pc.and_(nothing, pa.scalar(False))
    for value in literals:
        found = pc.or_(found, pc.equal(column, _scalar(value, column.type)).fill_null(False))
    return found if function == "is_in" else pc.and_(pc.is_valid(column), pc.invert(found))


def _scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    try:
        return pa.scalar(value, kind)
    except pa.ArrowException:
        # A decimal with more digits than the column: Arrow compares it at its own scale.
        return pa.scalar(value)
