"""What counts as bytes in this layer, and how many of them there are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview


def byte_view(data: Buffer) -> memoryview:
    """The same bytes as a flat, read-only view; nothing is copied."""
    return memoryview(data).cast("B").toreadonly()


def byte_count(parts: Iterable[Buffer]) -> int:
    """The bytes in all parts together, whatever the items of a memoryview are."""
    return sum(part.nbytes if isinstance(part, memoryview) else len(part) for part in parts)
