"""Numbers at any byte position, many at once.

A window is a view of the bytes in which element i is the number that begins at byte i; indexing it
with an array of positions reads or writes them all, without an index per byte.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fluss_client.codec.blobs import Bytes, Ints

SLACK = 16
"""Bytes that must follow the last position given to `load` or `store`: the widest number."""


def load(data: Bytes, dtype: str, positions: Ints) -> npt.NDArray[Any]:
    """The numbers at these byte positions."""
    return _window(data, dtype)[positions]


def store(data: Bytes, dtype: str, positions: Ints, values: npt.NDArray[Any]) -> None:
    """Writes numbers at these byte positions, first to last: a later one wins where two overlap."""
    _window(data, dtype)[positions] = values


def with_slack(data: Bytes) -> Bytes:
    """A copy of `data` with SLACK zero bytes behind it."""
    padded = np.empty(data.size + SLACK, np.uint8)
    padded[: data.size] = data
    padded[data.size :] = 0
    return padded


def _window(data: Bytes, dtype: str) -> npt.NDArray[Any]:
    kind = np.dtype(dtype)
    return np.ndarray((data.size - kind.itemsize + 1,), kind, data, strides=(1,))
