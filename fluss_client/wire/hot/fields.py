"""Protobuf fields: a reader that returns positions instead of copies, and writers of numbers.

A message is a sequence of fields. A field is a varint tag (number << 3 | wire type) and a value; by
wire type the value is 0 a varint, 1 eight bytes, 2 a varint length and that many bytes, 3 and 4 the
start and end of a group, 5 four bytes. A varint has seven bits per byte, the low ones first; the
top bit is set on all bytes but the last. Negative numbers are 64-bit two's complement.

Known fields are compared by their whole tag, so that a field with an unexpected wire type is
skipped like an unknown field, as the generated code does.
"""

from __future__ import annotations

from fluss_client.errors import CorruptDataError
from fluss_client.wire.messages import Buffer, byte_view

VARINT, FIXED64, BYTES, GROUP, GROUP_END, FIXED32 = range(6)

VARINT_BYTES_MAX = 10
# Tags and lengths have 32 bits.
SHORT_VARINT_BYTES_MAX = 5
TAG_MAX = 2**32 - 1
GROUP_DEPTH_MAX = 100
# A table has at most 128,000 buckets, and a request names no bucket twice. Without a bound, hostile
# bytes could create objects of a hundred times their size.
BUCKETS_MAX = 131_072

_UINT64 = 2**64 - 1
_SINGLE = tuple(bytes([value]) for value in range(0x80))


class Reader:
    """Reads fields of `view` from `pos` to `end`; raises only `CorruptDataError`."""

    __slots__ = ("end", "pos", "view")

    def __init__(self, view: memoryview, pos: int, end: int) -> None:
        self.view = view
        self.pos = pos
        self.end = end

    @classmethod
    def over(cls, body: Buffer) -> Reader:
        """Return a reader of a whole message."""
        view = byte_view(body)
        return cls(view, 0, len(view))

    def inner(self) -> Reader:
        """Return a reader of the length-delimited message at this position, and skip it here."""
        start, stop = self.span()
        return Reader(self.view, start, stop)

    def more(self) -> bool:
        """Return whether there is another field."""
        return self.pos < self.end

    def varint(self, bytes_max: int = VARINT_BYTES_MAX) -> int:
        """Read a varint as an unsigned 64-bit number; higher bits are dropped."""
        view, pos, end = self.view, self.pos, min(self.end, self.pos + bytes_max)
        value = shift = 0
        while pos < end:
            byte = view[pos]
            pos += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.pos = pos
                return value & _UINT64
            shift += 7
        raise CorruptDataError(f"no number can be read at byte {self.pos} of a message")

    def tag(self) -> int:
        """Read the tag of the next field."""
        tag = self.varint(SHORT_VARINT_BYTES_MAX)
        if not 8 <= tag <= TAG_MAX:
            raise CorruptDataError(f"no field begins before byte {self.pos} of a message")
        return tag

    def int64(self) -> int:
        """Read a varint as a signed 64-bit number."""
        value = self.varint()
        return value - 2**64 if value >= 2**63 else value

    def int32(self) -> int:
        """Read a varint as a signed 32-bit number; higher bits are dropped."""
        value = self.varint() & 0xFFFFFFFF
        return value - 2**32 if value >= 2**31 else value

    def span(self) -> tuple[int, int]:
        """Return start and end of the next length-delimited payload, and skip it."""
        length = self.varint(SHORT_VARINT_BYTES_MAX)
        start = self.pos
        if length > self.end - start:
            raise CorruptDataError(f"a field of {length} bytes ends behind its message")
        self.pos = start + length
        return start, self.pos

    def payload(self) -> memoryview:
        """Read the next length-delimited payload as a view."""
        start, stop = self.span()
        return self.view[start:stop]

    def text(self) -> str:
        """Read the next payload as text for a message; bytes that are not UTF-8 are replaced."""
        return str(self.payload(), "utf-8", "replace")

    def skip(self, tag: int) -> None:
        """Skip the value of the field whose tag was read."""
        open_groups: list[int] = []
        while True:
            self._skip_one(tag, open_groups)
            if not open_groups:
                return
            tag = self.tag()

    def _skip_one(self, tag: int, open_groups: list[int]) -> None:
        kind = tag & 7
        if kind == VARINT:
            self.varint()
        elif kind == BYTES:
            self.span()
        elif kind in (FIXED64, FIXED32):
            self._advance(8 if kind == FIXED64 else 4)
        elif kind == GROUP and len(open_groups) < GROUP_DEPTH_MAX:
            open_groups.append(tag >> 3)
        elif kind == GROUP_END and open_groups and open_groups[-1] == tag >> 3:
            open_groups.pop()
        else:
            raise CorruptDataError(f"the field before byte {self.pos} cannot be skipped")

    def _advance(self, count: int) -> None:
        if count > self.end - self.pos:
            raise CorruptDataError(f"a field of {count} bytes ends behind its message")
        self.pos += count


def need(value: int | None, name: str) -> int:
    """Return the value of a required field; raise `CorruptDataError` if it is None."""
    if value is None:
        raise CorruptDataError(f"an answer came without {name}")
    return value


def check_bucket_count(count: int) -> None:
    """Raise `CorruptDataError` if an answer names more buckets than are possible."""
    if count > BUCKETS_MAX:
        raise CorruptDataError(f"an answer names more than {BUCKETS_MAX} buckets")


def varint(value: int) -> bytes:
    """Encode a signed 64-bit number as a varint; raise `ValueError` for larger ones."""
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
    """Encode a field of wire type 0; its field number must be below 16."""
    return _SINGLE[tag] + varint(value)
