"""The values of the partition columns from the name of a partition.

A name has the values as text, joined by `$`. Deleting the rows of a partition that was dropped
needs them as values again.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from fluss_client.engine import parse_partition_name
from fluss_client.errors import InvalidPartitionError
from fluss_orchestrate.core.sinks.errors import SinkFormError

_TIMESTAMP = re.compile(r"(\d{4})-(\d\d)-(\d\d)-(\d\d)-(\d\d)-(\d\d)_(\d{0,9})\Z")
_FLAGS = {"true": True, "false": False}
_EPOCH = dt.datetime(1970, 1, 1)


def partition_values(
    sink: str, name: str, keys: Sequence[str], columns: pa.Schema
) -> pa.RecordBatch:
    """Return the values of the partition columns as a batch of one row.

    Args:
        sink: The sink's name, for the error.
        name: The name of the partition.
        keys: The partition columns.
        columns: The schema of the rows, which has the types of these columns.

    Raises:
        SinkFormError: The name does not say the values exactly, as those of floats and times.
    """
    schema = pa.schema([columns.field(key) for key in keys]).remove_metadata()
    try:
        texts = parse_partition_name(name, keys)
        arrays = [
            pa.array([_value(texts[field.name], field.type)]).cast(field.type) for field in schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    except (InvalidPartitionError, ValueError, KeyError, OverflowError, pa.ArrowException) as error:
        reason = str(error)
    types = ", ".join(f"{field.name} {field.type}" for field in schema)
    raise SinkFormError(
        sink,
        f"the rows of the dropped partition '{name}' cannot be found by its name, because it does "
        f"not say the values of {types} exactly ({reason}). `reset` the checkpoint to start, and "
        "the next run builds the sink anew",
    )


def _value(text: str, kind: pa.DataType) -> Any:
    is_ = pa.types
    parsers: list[tuple[Callable[[pa.DataType], bool], Callable[[str], Any]]] = [
        (lambda k: is_.is_string(k) or is_.is_large_string(k), str),
        (is_.is_integer, int),
        (is_.is_boolean, _FLAGS.__getitem__),
        (is_.is_date, dt.date.fromisoformat),
        (lambda k: is_.is_binary(k) or is_.is_fixed_size_binary(k), bytes.fromhex),
        (is_.is_timestamp, lambda value: _timestamp(value, kind)),
    ]
    for fits, parse in parsers:
        if fits(kind):
            return parse(text)
    raise ValueError(f"values of type {kind} have no exact text")


def _timestamp(text: str, kind: pa.DataType) -> pa.Scalar:
    found = _TIMESTAMP.match(text)
    if found is None:
        raise ValueError(f"'{text}' is no timestamp")
    *numbers, fraction = found.groups()
    seconds = (dt.datetime(*map(int, numbers)) - _EPOCH) // dt.timedelta(seconds=1)  # type: ignore
    return pa.scalar(seconds * 10**9 + int(fraction.ljust(9, "0")), pa.timestamp("ns", tz=kind.tz))
