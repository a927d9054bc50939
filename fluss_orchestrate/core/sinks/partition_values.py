"""The values of the partition columns from the names of partitions.

A sink that deletes the rows of a dropped partition knows the partition's name only. Fluss joins the
texts of the values by `$`; here the texts become values of the columns again.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from fluss_client.engine import from_arrow, parse_partition_name, partition_names
from fluss_client.errors import FlussError
from fluss_orchestrate.core.sinks.errors import SinkFormError

_EPOCH, _SECOND = dt.datetime(1970, 1, 1), dt.timedelta(seconds=1)
_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def partition_rows(sink: str, names: Sequence[str], columns: Sequence[pa.Field]) -> pa.RecordBatch:
    """Return one row per partition with the values of the partition columns.

    Args:
        sink: The sink's name, for the error.
        names: The names of partitions.
        columns: The partition columns, in the order of the partition key.

    Raises:
        SinkFormError: A name does not tell the values of these columns.
    """
    keys = [column.name for column in columns]
    try:
        texts = [parse_partition_name(name, keys) for name in names]
        arrays = [
            pa.array([_value(text[column.name], column.type) for text in texts], column.type)
            for column in columns
        ]
        types = [from_arrow(column.type) for column in columns]
        found, codes = partition_names(arrays, types)
        again = [found[code] for code in codes]
    except (FlussError, LookupError, ValueError, OverflowError, pa.ArrowException) as error:
        raise _unknown(sink, names, columns) from error
    if again != list(names):
        raise _unknown(sink, names, columns)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(list(columns)))


def _unknown(sink: str, names: Sequence[str], columns: Sequence[pa.Field]) -> SinkFormError:
    shown = ", ".join(f"{column.name} {column.type}" for column in columns)
    return SinkFormError(
        sink,
        f"the names of the dropped partitions {list(names)[:5]} do not tell the values of their "
        f"columns ({shown}), so their rows cannot be found: `reset` the checkpoint to start, which "
        "writes the whole state again",
    )


def _value(text: str, kind: pa.DataType) -> Any:
    for matches, parse in _PARSERS:
        if matches(kind):
            return parse(text, kind)
    raise ValueError(f"{kind} cannot be read from a partition's name")


def _time(text: str, kind: pa.DataType) -> dt.time:
    clock, _, fraction = text.partition("_")
    return dt.time.fromisoformat(f"{clock.replace('-', ':')}.{fraction}")


def _timestamp(text: str, kind: pa.DataType) -> int:
    """Return the number of the type's units since 1970, as `datetime` has no nanoseconds."""
    moment, _, fraction = text.partition("_")
    seconds = (dt.datetime.strptime(moment, "%Y-%m-%d-%H-%M-%S") - _EPOCH) // _SECOND
    number, rest = divmod(seconds * 10**9 + int(fraction.ljust(9, "0")), _NANOSECONDS[kind.unit])
    if rest:
        raise ValueError(f"'{text}' has digits that {kind} does not keep")
    return number


def _bool(text: str, kind: pa.DataType) -> bool:
    return {"true": True, "false": False}[text]


_PARSERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[str, pa.DataType], Any]], ...] = (
    (lambda k: pa.types.is_string(k) or pa.types.is_large_string(k), lambda text, _: text),
    (pa.types.is_boolean, _bool),
    (pa.types.is_integer, lambda text, _: int(text)),
    (pa.types.is_date, lambda text, _: dt.date.fromisoformat(text)),
    (pa.types.is_time, _time),
    (pa.types.is_timestamp, _timestamp),
    (
        lambda k: (
            pa.types.is_binary(k) or pa.types.is_large_binary(k) or pa.types.is_fixed_size_binary(k)
        ),
        lambda text, _: bytes.fromhex(text),
    ),
)
