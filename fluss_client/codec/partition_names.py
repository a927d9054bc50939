"""Partition names: the values of the partition columns as text, joined by `$`.

    boolean           true, false             date        yyyy-MM-dd
    whole numbers     decimal                 time        HH-mm-ss_SSS
    text              as it is                timestamp   yyyy-MM-dd-HH-mm-ss_ and the fraction's
    bytes             lower-case hex                      digits without trailing zeros
    float, double     Java's text with `_` for `.`; NaN, Inf, -Inf

A value may hold letters, digits, `_` and `-`, has 1 to 200 of them and does not start with `__`.
DECIMAL and nested types cannot partition a table. Zoned timestamps are written as UTC.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_client.codec.java_text import double_text, float_text
from fluss_client.errors import InvalidPartitionError, RowError, SchemaError
from fluss_client.model.arrow import wire_type
from fluss_client.model.types import DataType, Root

SEPARATOR = "$"
VALUE_LENGTH_MAX = 200
RESERVED_PREFIX = "__"
_VALUE = re.compile(r"[A-Za-z0-9_-]+\Z")
_NANOS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_NANOS_PER_MS = 1_000_000
_NANOS_PER_SECOND = 1_000_000_000
_SECONDS_PER_DAY = 86_400


def partition_names(
    columns: Sequence[pa.Array], types: Sequence[DataType]
) -> tuple[list[str], npt.NDArray[np.int64]]:
    """The distinct partition names of some rows, and per row the index of its name.

    `columns` are the partition columns in the order of the partition key. Only distinct values
    are turned into text. RowError for a null, InvalidPartitionError for a value that cannot be
    part of a name.
    """
    codes = np.zeros(len(columns[0]), np.int64)
    found: list[tuple[str, ...]] = [()]
    for column, data_type in zip(columns, types, strict=True):
        texts, own = _texts(column, data_type)
        if len(found) == 1:
            codes, found = own, [(*found[0], text) for text in texts]
            continue
        # One number per pair of what was found so far and this column's value.
        pairs, codes = np.unique(codes * len(texts) + own, return_inverse=True)
        found = [(*found[pair // len(texts)], texts[pair % len(texts)]) for pair in pairs.tolist()]
    # Two values can share a text: times below a millisecond apart do.
    names: dict[str, int] = {}
    index = [names.setdefault(SEPARATOR.join(values), len(names)) for values in found]
    return list(names), np.array(index, np.int64)[codes]


def partition_name(values: Sequence[Any], types: Sequence[DataType]) -> str:
    """The name of the partition that holds these values of the partition columns."""
    try:
        columns = [
            pa.array([value], wire_type(data_type))
            for value, data_type in zip(values, types, strict=True)
        ]
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise RowError(f"{list(values)} are no values of the partition columns: {error}") from error
    return partition_names(columns, types)[0][0]


def spec_to_name(spec: Mapping[str, str], keys: Sequence[str]) -> str:
    """The name for a partition given as text by column; checked as the server checks it."""
    if spec.keys() != set(keys):
        raise InvalidPartitionError(
            f"a partition of this table is given by {list(keys)}, not by {list(spec)}"
        )
    return SEPARATOR.join(validate_partition_value(spec[key]) for key in keys)


def parse_partition_name(name: str, keys: Sequence[str]) -> dict[str, str]:
    """A partition's name taken apart: the text by partition column."""
    values = name.split(SEPARATOR)
    if len(values) != len(keys):
        raise InvalidPartitionError(f"'{name}' has {len(values)} values for {list(keys)}")
    return dict(zip(keys, values, strict=True))


def validate_partition_value(value: str) -> str:
    """The value itself, or InvalidPartitionError that says what a value may hold."""
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
    """The distinct texts of a column, and per row the index of its text."""
    render = _RENDER.get(data_type.root)
    if render is None:
        raise SchemaError(f"a column of type {data_type} cannot partition a table")
    encoded = column.dictionary_encode()
    codes = encoded.indices.drop_null().to_numpy().astype(np.int64)
    # A dictionary that came in with the data may hold values that no row uses.
    used = np.flatnonzero(np.bincount(codes, minlength=len(encoded.dictionary)))
    distinct = encoded.dictionary.take(pa.array(used))
    if encoded.indices.null_count or distinct.null_count:
        raise RowError(f"a partition column of type {data_type} holds a null")
    texts = [validate_partition_value(text) for text in render(distinct)]
    places = np.zeros(len(encoded.dictionary), np.int64)
    places[used] = np.arange(len(used))
    return texts, places[codes]


def _booleans(values: pa.Array) -> list[str]:
    return ["true" if value else "false" for value in values.to_pylist()]


def _plain(values: pa.Array) -> list[str]:
    return [str(value) for value in values.to_pylist()]


def _binaries(values: pa.Array) -> list[str]:
    return [value.hex() for value in values.to_pylist()]


def _floats(values: pa.Array) -> list[str]:
    return [_java(float_text(value)) for value in values.to_pylist()]


def _doubles(values: pa.Array) -> list[str]:
    return [_java(double_text(value)) for value in values.to_pylist()]


def _java(text: str) -> str:
    return text.replace("Infinity", "Inf").replace(".", "_")


def _dates(values: pa.Array) -> list[str]:
    return [_day(days) for days in values.cast(pa.date32()).cast(pa.int32()).to_pylist()]


def _times(values: pa.Array) -> list[str]:
    texts = []
    for nanos in _nanos(values):
        seconds, ms = divmod(nanos // _NANOS_PER_MS, 1_000)
        texts.append(f"{_clock(seconds)}_{ms:03}")
    return texts


def _timestamps(values: pa.Array) -> list[str]:
    texts = []
    for nanos in _nanos(values):
        seconds, fraction = divmod(nanos, _NANOS_PER_SECOND)
        days, seconds = divmod(seconds, _SECONDS_PER_DAY)
        digits = f"{fraction:09}".rstrip("0")
        texts.append(f"{_day(days, of_era=True)}-{_clock(seconds)}_{digits}")
    return texts


def _nanos(values: pa.Array) -> list[int]:
    """Times and timestamps as Python ints, which do not overflow at any date."""
    whole = pa.int32() if pa.types.is_time32(values.type) else pa.int64()
    factor = _NANOS[values.type.unit]
    return [value * factor for value in values.view(whole).to_pylist()]


def _clock(seconds: int) -> str:
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour:02}-{minute:02}-{second:02}"


def _day(days: int, of_era: bool = False) -> str:
    # NumPy's calendar, unlike Python's, has years before 1 and after 9999.
    day = np.datetime64(days, "D")
    year = int(day.astype("M8[Y]").astype(np.int64)) + 1970
    month = int(day.astype("M8[M]").astype(np.int64)) % 12 + 1
    day_of_month = int((day - day.astype("M8[M]").astype("M8[D]")).astype(np.int64)) + 1
    text = f"{year:04}"
    if of_era and not 1 <= year <= 9999:
        # Java counts these years from their era and signs those with five digits, which no
        # name may hold, so that they end in an error.
        text = f"+{year}" if year > 0 else f"{1 - year:04}"
    return f"{text}-{month:02}-{day_of_month:02}"


_RENDER: dict[Root, Callable[[pa.Array], list[str]]] = {
    Root.BOOLEAN: _booleans,
    Root.TINYINT: _plain,
    Root.SMALLINT: _plain,
    Root.INTEGER: _plain,
    Root.BIGINT: _plain,
    Root.FLOAT: _floats,
    Root.DOUBLE: _doubles,
    Root.CHAR: _plain,
    Root.STRING: _plain,
    Root.BINARY: _binaries,
    Root.BYTES: _binaries,
    Root.DATE: _dates,
    Root.TIME: _times,
    Root.TIMESTAMP: _timestamps,
    Root.TIMESTAMP_LTZ: _timestamps,
}
