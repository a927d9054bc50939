"""Writing of protobuf numbers (`reader` describes how they look)."""

from __future__ import annotations

_SINGLE = tuple(bytes([value]) for value in range(0x80))


def varint(value: int) -> bytes:
    """A signed 64-bit number as a varint; raises `ValueError` beyond 64 bits."""
    if 0 <= value < 0x80:
        return _SINGLE[value]
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"{value} does not fit 64 bits")
    value &= 2**64 - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number_field(tag: int, value: int) -> bytes:
    """A field of wire type 0 with a number below 16."""
    return _SINGLE[tag] + varint(value)
