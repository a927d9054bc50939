"""CRC-32C of byte strings, and of two strings whose checksums are known.

A batch's checksum covers its writer id and sequence, which are known only when the batch is
sent, and its body, which is large and known long before. `seal` computes the checksum of the body
once, on the thread that made it; `Sealed.after` then gives the checksum of `head + body` from the
head alone.

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


def crc32c(data: BytesLike, crc: int = 0) -> int:
    """Return the checksum of what `crc` covers followed by `data`."""
    view = memoryview(data).toreadonly().cast("B")
    if not view.nbytes:
        return crc
    # The C function takes no memoryview; a read-only array over it needs no copy.
    chunk = bytes(view) if _PURE_PYTHON else np.frombuffer(view, np.uint8)
    extended: int = google_crc32c.extend(crc, chunk)
    return extended


@dataclass(frozen=True, slots=True)
class Sealed:
    """Byte strings whose checksum is known, to follow a head that may still change."""

    parts: tuple[BytesLike, ...]
    size: int
    crc: int
    shift: int
    """x^(8 * size) modulo the CRC's polynomial."""

    def after(self, head: BytesLike) -> int:
        """Return the checksum of `head` followed by these parts, in microseconds at any size."""
        return _multiply(crc32c(head), self.shift) ^ self.crc


def seal(parts: Iterable[BytesLike]) -> Sealed:
    """Compute the checksum of the parts once."""
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
    """Return x^1, x^2, x^4, … for each bit of a length."""
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
