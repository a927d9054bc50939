"""Partition names: the values of the partition columns as text, joined by `$`.

    boolean           true, false             date        yyyy-MM-dd
    whole numbers     decimal                 time        HH-mm-ss_SSS
    text              as it is                timestamp   yyyy-MM-dd-HH-mm-ss_ and the fraction's
    bytes             lower-case hex                      digits without trailing zeros
    float, double     Java's text with `_` for `.`; NaN, Inf, -Inf

A value may hold letters, digits, `_` and `-`, has 1 to 200 of them and does not start with `__`.
DECIMAL and nested types cannot partition a table. Zoned timestamps are written as UTC. Each type
writes its own values; this module joins, splits and checks names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_client.errors import InvalidPartitionError, RowError, SchemaError
from fluss_client.model.arrow import wire_type
from fluss_client.model.types import DataType

SEPARATOR = "$"
VALUE_LENGTH_MAX = 200
RESERVED_PREFIX = "__"
_VALUE = re.compile(r"[A-Za-z0-9_-]+\Z")


def partition_names(
    columns: Sequence[pa.Array], types: Sequence[DataType]
) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Return the distinct partition names of some rows, and for each row the index of its name.

    Only distinct values are turned into text.

    Args:
        columns: The partition columns, in the order of the partition key.
        types: Their types.

    Raises:
        SchemaError: A type cannot partition a table.
        RowError: A partition column has a null.
        InvalidPartitionError: A value cannot be part of a name.
    """
    codes = np.zeros(len(columns[0]), np.int64)
    found: list[tuple[str, ...]] = [()]
    for column, data_type in zip(columns, types, strict=True):
        texts, own = _texts(column, data_type)
        if len(found) == 1:
            codes, found = own, [(*found[0], text) for text in texts]
            continue
        # One number per pair: the values of the columns so far, and the value of this column.
        pairs, codes = np.unique(codes * len(texts) + own, return_inverse=True)
        found = [(*found[pair // len(texts)], texts[pair % len(texts)]) for pair in pairs.tolist()]
    # Two values can share a text: times below a millisecond apart do.
    names: dict[str, int] = {}
    index = [names.setdefault(SEPARATOR.join(values), len(names)) for values in found]
    return list(names), np.array(index, np.int64)[codes]


def partition_name(values: Sequence[Any], types: Sequence[DataType]) -> str:
    """Return the name of the partition that holds these values of the partition columns."""
    try:
        columns = [
            pa.array([value], wire_type(data_type))
            for value, data_type in zip(values, types, strict=True)
        ]
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise RowError(f"{list(values)} are no values of the partition columns: {error}") from error
    return partition_names(columns, types)[0][0]


def spec_to_name(spec: Mapping[str, str], keys: Sequence[str]) -> str:
    """Return the name of a partition, checked as the server does.

    Args:
        spec: The text of the value of each partition column.
        keys: The partition columns of the table.

    Raises:
        InvalidPartitionError: `spec` has other columns, or a value that no partition may have.
    """
    if spec.keys() != set(keys):
        raise InvalidPartitionError(
            f"a partition of this table is given by {list(keys)}, not by {list(spec)}"
        )
    return SEPARATOR.join(validate_partition_value(spec[key]) for key in keys)


def parse_partition_name(name: str, keys: Sequence[str]) -> dict[str, str]:
    """Return the text of each partition column in a partition name.

    Args:
        name: The name of the partition.
        keys: The partition columns of the table.

    Raises:
        InvalidPartitionError: The name has another number of values than `keys`.
    """
    values = name.split(SEPARATOR)
    if len(values) != len(keys):
        raise InvalidPartitionError(f"'{name}' has {len(values)} values for {list(keys)}")
    return dict(zip(keys, values, strict=True))


def validate_partition_value(value: str) -> str:
    """Return the value, or raise InvalidPartitionError, which says what a value may hold."""
    if (
        not _VALUE.match(value)
        or len(value) > VALUE_LENGTH_MAX
        or value.startswith(RESERVED_PREFIX)
    ):
        raise InvalidPartitionError(
            f"'{value}' cannot be part of a partition name: use 1 to {VALUE_LENGTH_MAX} letters, "
            f"digits, '_' and '-', not starting with '{RESERVED_PREFIX}'"
        )
    return value


def _texts(column: pa.Array, data_type: DataType) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Return the distinct texts of a column, and for each row the index of its text."""
    if not data_type.may_partition:
        raise SchemaError(f"a column of type {data_type} cannot partition a table")
    encoded = column.dictionary_encode()
    codes = encoded.indices.drop_null().to_numpy().astype(np.int64)
    # A dictionary that came in with the data may hold values that no row uses.
    used = np.flatnonzero(np.bincount(codes, minlength=len(encoded.dictionary)))
    distinct = encoded.dictionary.take(pa.array(used))
    if encoded.indices.null_count or distinct.null_count:
        raise RowError(f"a partition column of type {data_type} holds a null")
    texts = [validate_partition_value(text) for text in data_type.partition_texts(distinct)]
    places = np.zeros(len(encoded.dictionary), np.int64)
    places[used] = np.arange(len(used))
    return texts, places[codes]
