"""Values in the form in which they travel to and from the Java peer; see `java/Peer.java`."""

from __future__ import annotations

import datetime as dt
import math
import struct
from typing import Any

from fluss_client.model.types import DataType, Root

_EPOCH = dt.datetime(1970, 1, 1)


def to_peer(value: Any, data_type: DataType) -> Any:
    """A Python value, as the client takes and gives it, in the peer's form."""
    if value is None:
        return None
    root = data_type.root
    if root is Root.BIGINT:
        return str(value)
    if root in (Root.FLOAT, Root.DOUBLE):
        return _java_number(value, single=root is Root.FLOAT)
    if root in (Root.BINARY, Root.BYTES):
        return value.hex()
    if root is Root.DECIMAL:
        return f"{value:.{data_type.scale}f}"
    if root is Root.DATE:
        return (value - _EPOCH.date()).days
    if root is Root.TIME:
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + (
            value.microsecond // 1000
        )
    if root in (Root.TIMESTAMP, Root.TIMESTAMP_LTZ):
        moment = value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo else value
        micros = (moment - _EPOCH) // dt.timedelta(microseconds=1)
        return [micros // 1000, micros % 1000 * 1000]
    return _nested(value, data_type)


def _nested(value: Any, data_type: DataType) -> Any:
    if data_type.root is Root.ARRAY and data_type.element is not None:
        return [to_peer(item, data_type.element) for item in value]
    if data_type.root is Root.MAP and data_type.key is not None and data_type.element is not None:
        pairs = value.items() if isinstance(value, dict) else value
        return [[to_peer(k, data_type.key), to_peer(v, data_type.element)] for k, v in pairs]
    if data_type.root is Root.ROW:
        return [to_peer(value[field.name], field.type) for field in data_type.fields]
    return value


def same(ours: Any, theirs: Any, data_type: DataType) -> bool:
    """Whether two values in the peer's form are one; numbers may be written differently."""
    if ours is None or theirs is None:
        return ours is theirs
    root = data_type.root
    if root in (Root.FLOAT, Root.DOUBLE):
        return _bits(ours, root) == _bits(theirs, root)
    if root is Root.ARRAY and data_type.element is not None:
        return len(ours) == len(theirs) and all(
            same(a, b, data_type.element) for a, b in zip(ours, theirs, strict=True)
        )
    if root is Root.MAP and data_type.element is not None and data_type.key is not None:
        return len(ours) == len(theirs) and all(
            same(a[0], b[0], data_type.key) and same(a[1], b[1], data_type.element)
            for a, b in zip(sorted(ours, key=str), sorted(theirs, key=str), strict=True)
        )
    if root is Root.ROW:
        return all(
            same(a, b, f.type) for a, b, f in zip(ours, theirs, data_type.fields, strict=True)
        )
    return bool(ours == theirs)


def _java_number(value: float, *, single: bool) -> str:
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return "NaN" if math.isnan(value) else repr(value)


def _bits(text: str, root: Root) -> bytes:
    return struct.pack("<f" if root is Root.FLOAT else "<d", float(text))
