"""CRC-32C of byte pieces, and of two pieces whose sums are known.

A batch's checksum covers its writer id and sequence, which are known only when the batch is
sent, and its body, which is large and known long before. `seal` sums the body once, on whatever
thread made it; `Sealed.after` then gives the checksum of `head + body` from the head alone.

That works because a CRC is a remainder of polynomial division over GF(2): putting n zero bytes
behind a message multiplies its remainder by x^(8n), and sums of messages of equal length add by
XOR. So crc(head + body) = crc(head) * x^(8n) + crc(body), where n is the body's length. The
initial and final inversions cancel out in that equation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import google_crc32c
import numpy as np
import pyarrow as pa

BytesLike: TypeAlias = bytes | bytearray | memoryview | pa.Buffer

# Polynomials are bit-reflected: the top bit of a word is the coefficient of x^0.
_POLYNOMIAL = 0x82F63B78
_ONE = 1 << 31
_X = 1 << 30
_PURE_PYTHON = google_crc32c.implementation == "python"


def crc32c(piece: BytesLike, crc: int = 0) -> int:
    """The checksum of what `crc` covers followed by `piece`."""
    view = memoryview(piece).toreadonly().cast("B")
    if not view.nbytes:
        return crc
    # The C function takes no memoryview; a read-only array over it needs no copy.
    data = bytes(view) if _PURE_PYTHON else np.frombuffer(view, np.uint8)
    extended: int = google_crc32c.extend(crc, data)
    return extended


@dataclass(frozen=True, slots=True)
class Sealed:
    """Byte pieces whose checksum is known, to be put behind a head that may still change."""

    parts: tuple[BytesLike, ...]
    size: int
    crc: int
    shift: int
    """x^(8 * size) modulo the CRC's polynomial."""

    def after(self, head: BytesLike) -> int:
        """The checksum of `head` followed by these pieces; costs microseconds at any size."""
        return _multiply(crc32c(head), self.shift) ^ self.crc


def seal(parts: Iterable[BytesLike]) -> Sealed:
    """Sums the pieces once."""
    kept = tuple(parts)
    crc = 0
    for part in kept:
        crc = crc32c(part, crc)
    size = sum(memoryview(part).nbytes for part in kept)
    return Sealed(kept, size, crc, _power_of_x(8 * size))


def _multiply(a: int, b: int) -> int:
    product = 0
    while a:
        if a & _ONE:
            product ^= b
        a = (a << 1) & 0xFFFFFFFF
        b = b >> 1 ^ _POLYNOMIAL if b & 1 else b >> 1
    return product


def _squares() -> tuple[int, ...]:
    """x^1, x^2, x^4, … for every bit of a length."""
    found = [_X]
    while len(found) < 48:
        found.append(_multiply(found[-1], found[-1]))
    return tuple(found)


_SQUARES = _squares()


def _power_of_x(exponent: int) -> int:
    product = _ONE
    for bit, square in enumerate(_SQUARES):
        if exponent >> bit & 1:
            product = _multiply(product, square)
    return product
