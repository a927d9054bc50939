"""How Parquet files are laid out, by sinks and in the lake alike."""

from __future__ import annotations

import pyarrow as pa

ROW_GROUP_BYTES = 16 << 20
"""Arrow bytes that are collected before they are written as one row group."""
BATCH_TIMES = {"_timestamp", "__timestamp"}
"""Scans and the lake add when a row's batch was written: the same for all rows of a batch."""


def columns_with_dictionary(schema: pa.Schema) -> list[str] | bool:
    """The columns that get a dictionary: not those whose values seldom come again.

    A dictionary of ids, measures or times grows until it is given up, which takes a third of the
    time of writing and makes files larger.
    """
    if any(pa.types.is_nested(field.type) for field in schema):
        return True
    chosen = [f.name for f in schema if f.name in BATCH_TIMES or not _seldom_repeats(f.type)]
    return chosen or False


def _seldom_repeats(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_floating(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_int64(kind)
        or pa.types.is_decimal(kind)
    )
