"""The buffer types of this layer, and their size in bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview


def byte_view(data: Buffer) -> memoryview:
    """Return a flat, read-only view of the same bytes, without a copy."""
    return memoryview(data).cast("B").toreadonly()


def byte_count(parts: Iterable[Buffer]) -> int:
    """Return the number of bytes in all parts; items of a memoryview may have several bytes."""
    return sum(part.nbytes if isinstance(part, memoryview) else len(part) for part in parts)
