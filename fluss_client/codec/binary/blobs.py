"""Many byte strings as two arrays, bulk operations on them, and numbers at any byte position.

Layout: `data` holds the strings back to back, string i is `data[offsets[i]:offsets[i + 1]]`;
`offsets` starts at 0 and ends at the size of `data`. It is Arrow's large_binary without nulls, so
that Arrow's kernels, which copy string by string in native code, can copy them.

`load` and `store` read and write many numbers at any byte positions at once. They index a window: a
view of the bytes in which element i is the number that begins at byte i.

Bitmaps are Arrow's: one bit per value, the lowest bit of a byte first.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fluss_client.errors import CorruptDataError

Bools = npt.NDArray[np.bool_]


def null_mask(array: pa.Array) -> Bools | None:
    """Return True where the array is null; None if it has no nulls."""
    if array.null_count == 0:
        return None
    validity = array.buffers()[0]
    if validity is None:
        return np.ones(len(array), np.bool_)
    nulls: Bools = unpack_bits(validity, array.offset, len(array)) == 0
    return nulls


def unpack_bits(bitmap: pa.Buffer, offset: int, count: int) -> npt.NDArray[np.uint8]:
    """Return bits `offset` to `offset + count` of a bitmap as bytes of 0 and 1."""
    first = offset // 8
    packed = np.frombuffer(bitmap, np.uint8)[first : (offset + count + 7) // 8]
    bits = np.unpackbits(packed, bitorder="little")
    return bits[offset - first * 8 : offset - first * 8 + count]


def pack_bits(bits: npt.NDArray[np.generic]) -> pa.Buffer:
    """Return a bitmap with a one where `bits` is not zero."""
    return pa.py_buffer(np.packbits(bits.astype(np.bool_, copy=False), bitorder="little"))


def validity(nulls: Bools | None) -> pa.Buffer | None:
    """Return the validity bitmap of an array with these nulls."""
    return None if nulls is None else pack_bits(~nulls)


Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

FEW = 16
"""Up to this many strings, a loop in Python costs less than the start-up of array operations."""

TAKEN_FIRST, TAKEN_AT_ONCE_MAX = 16, 256
"""How many strings of an iterator are taken before their bytes are counted."""

SLACK = 16
"""Bytes that must follow the last position given to `load` or `store`: the widest number."""

_INT32_MAX = (1 << 31) - 1
_LARGE = pa.large_binary()


@dataclass(frozen=True, eq=False, slots=True)
class Blobs:
    """A sequence of byte strings in one buffer.

    Attributes:
        data: The bytes of all strings, one after the other.
        offsets: Where each string begins in `data`, and the end of the last one.
    """

    data: Bytes
    offsets: Ints

    def __len__(self) -> int:
        return self.offsets.size - 1

    @property
    def lengths(self) -> Ints:
        """The length of each string."""
        return self.offsets[1:] - self.offsets[:-1]

    def __getitem__(self, index: int) -> bytes:
        if not 0 <= index < len(self):
            raise IndexError(f"string {index} of {len(self)}")
        return self.data[self.offsets[index] : self.offsets[index + 1]].tobytes()

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.to_list())

    def to_list(self) -> list[bytes]:
        """Return each string as Python bytes."""
        whole, ends = self.data.tobytes(), self.offsets.tolist()
        return [whole[ends[i] : ends[i + 1]] for i in range(len(self))]

    def take(self, indices: npt.ArrayLike) -> Blobs:
        """Return the strings at `indices`, in that order; an index may occur more than once."""
        wanted = np.asarray(indices)
        if wanted.size <= FEW:
            return Blobs.from_list([self[index] for index in wanted.tolist()])
        if wanted.size == len(self) and (wanted == np.arange(wanted.size)).all():
            return self
        return Blobs.from_arrow(self._large().take(pa.array(wanted)))

    def to_arrow(self) -> pa.Array:
        """Return the strings as Arrow binary, or as large_binary when 2 GiB are not enough."""
        if self.data.size > _INT32_MAX:
            return self._large()
        offsets = self.offsets.astype(np.int32)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(pa.binary(), len(self), buffers, 0)

    def _large(self) -> pa.Array:
        buffers = [None, pa.py_buffer(self.offsets), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(_LARGE, len(self), buffers, 0)

    @staticmethod
    def from_list(strings: Sequence[bytes]) -> Blobs:
        """Return the Python byte `strings` as Blobs."""
        ends = np.fromiter(accumulate(map(len, strings), initial=0), np.int64, len(strings) + 1)
        return Blobs(np.frombuffer(b"".join(strings), np.uint8), ends)

    @staticmethod
    def from_iterator(strings: Iterator[bytes], count_max: int, bytes_max: int) -> Blobs:
        """Return the next strings of an iterator, and none only at its end.

        Args:
            strings: The iterator.
            count_max: The largest number of strings.
            bytes_max: About how many bytes there are at most.
        """
        found: list[bytes] = []
        size, at_once = 0, TAKEN_FIRST
        while len(found) < count_max and size < bytes_max:
            some = list(islice(strings, min(at_once, count_max - len(found))))
            if not some:
                break
            found += some
            size += sum(map(len, some))
            fitting = (bytes_max - size) * len(found) // max(1, size)
            at_once = max(1, min(TAKEN_AT_ONCE_MAX, fitting))
        return Blobs.from_list(found)

    @staticmethod
    def from_arrow(array: pa.Array) -> Blobs:
        """Return the bytes of a binary or string `array` (also large, or of fixed size).

        A null becomes an empty string. The bytes are shared with the array unless a null hides some
        of them.
        """
        if pa.types.is_fixed_size_binary(array.type):
            return _from_fixed_size(array)
        count = len(array)
        wide = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
        _, offset_buffer, data_buffer = array.buffers()
        if count == 0 or offset_buffer is None:
            return Blobs(np.empty(0, np.uint8), np.zeros(count + 1, np.int64))
        raw = np.frombuffer(offset_buffer, np.int64 if wide else np.int32)
        offsets = raw[array.offset : array.offset + count + 1].astype(np.int64, copy=False)
        first, last = int(offsets[0]), int(offsets[-1])
        if first:
            offsets = offsets - first
        if data_buffer is None or last == first:
            return Blobs(np.empty(0, np.uint8), offsets)
        blobs = Blobs(np.frombuffer(data_buffer, np.uint8)[first:last], offsets)
        if array.null_count:
            nulls = null_mask(array)
            assert nulls is not None
            lengths = blobs.lengths
            if lengths[nulls].any():
                return Blobs.from_spans(blobs.data, offsets[:-1], np.where(nulls, 0, lengths))
        return blobs

    @staticmethod
    def from_matrix(matrix: Bytes) -> Blobs:
        """Return the rows of a two-dimensional `matrix` as strings of one length."""
        count, width = matrix.shape
        offsets = np.arange(0, count * width + 1, width) if width else np.zeros(count + 1, np.int64)
        return Blobs(np.ascontiguousarray(matrix).reshape(-1), offsets)

    @staticmethod
    def from_spans(data: Bytes, starts: Ints, lengths: Ints) -> Blobs:
        """Return the strings that lie at `starts` with `lengths` in `data`, in any order.

        Spans in ascending order without overlap, as rows have them, are the fast case.

        Raises:
            CorruptDataError: A span is not within `data`.
        """
        count = starts.size
        ends = starts + lengths
        if count and (starts.min() < 0 or int(ends.max()) > data.size or int(lengths.min()) < 0):
            raise CorruptDataError("a length points past the end of the data")
        if count <= FEW:
            strings = [data[s:e] for s, e in zip(starts.tolist(), ends.tolist(), strict=True)]
            joined = np.concatenate(strings) if strings else np.empty(0, np.uint8)
            return Blobs(joined, offsets_of(lengths))
        if _ascending(starts, ends):
            return _from_ascending(data, starts, ends, None)
        order = np.argsort(starts, kind="stable")
        if _ascending(starts[order], ends[order]):
            rank = np.empty(count, np.int64)
            rank[order] = np.arange(count)
            return _from_ascending(data, starts[order], ends[order], rank)
        offsets = offsets_of(lengths)
        shift = np.repeat(starts - offsets[:-1], lengths)
        return Blobs(data[np.arange(offsets[-1]) + shift], offsets)

    @staticmethod
    def concat(parts: Sequence[Blobs]) -> Blobs:
        """Return all strings of all `parts`, in order."""
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return Blobs(np.empty(0, np.uint8), np.zeros(1, np.int64))
        lengths = np.concatenate([part.lengths for part in parts])
        return Blobs(np.concatenate([part.data for part in parts]), offsets_of(lengths))


@functools.cache
def _nothing() -> pa.Scalar:
    # Not at import: the first Arrow value made of a Python value imports pandas, which is slow.
    return pa.scalar(b"", _LARGE)


def offsets_of(lengths: npt.NDArray[np.integer]) -> Ints:
    """Return where strings of these lengths begin when they lie back to back, and the end."""
    offsets = np.zeros(lengths.size + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def join(parts: Sequence[Blobs | Bytes]) -> Blobs:
    """Return rows, each of which is the same row of all parts, one after the other.

    A part is Blobs, or a matrix, whose rows all have the same length.
    """
    merged: list[Blobs | Bytes] = []
    for part in parts:
        previous = merged[-1] if merged else None
        if isinstance(part, np.ndarray) and isinstance(previous, np.ndarray):
            merged[-1] = np.concatenate((previous, part), axis=1)
        else:
            merged.append(part)
    columns = [Blobs.from_matrix(p) if isinstance(p, np.ndarray) else p for p in merged]
    if len(columns) == 1:
        return columns[0]
    if len(columns[0]) <= FEW:
        lists = [column.to_list() for column in columns]
        return Blobs.from_list([b"".join(row) for row in zip(*lists, strict=True)])
    arrays = [column._large() for column in columns]
    return Blobs.from_arrow(pc.binary_join_element_wise(*arrays, _nothing()))


def splice(template: Bytes, cuts: Ints, items: Blobs) -> Bytes:
    """Return `template` with item k inserted before its byte `cuts[k]`; the cuts ascend."""
    gaps = Blobs(template, np.concatenate(([0], cuts, [template.size])))
    items = Blobs(items.data, np.concatenate((items.offsets, items.offsets[-1:])))
    return join([gaps, items]).data


def padded_to(blobs: Blobs, sizes: Ints | int) -> Blobs:
    """Return each string padded with zero bytes to its size, which is at least its length."""
    missing = sizes - blobs.lengths
    offsets = offsets_of(missing)
    return join([blobs, Blobs(np.zeros(offsets[-1], np.uint8), offsets)])


def _ascending(starts: Ints, ends: Ints) -> bool:
    return bool((starts[1:] >= ends[:-1]).all())


def _from_ascending(data: Bytes, starts: Ints, ends: Ints, rank: Ints | None) -> Blobs:
    # Spans and the gaps between them are the strings of one array, every other one a span:
    # taking those lets Arrow copy span by span.
    count = starts.size
    offsets = np.empty(2 * count, np.int64)
    offsets[0::2] = starts
    offsets[1::2] = ends
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    array = pa.Array.from_buffers(_LARGE, 2 * count - 1, buffers, 0)
    chosen = np.arange(0, 2 * count, 2) if rank is None else 2 * rank
    return Blobs.from_arrow(array.take(pa.array(chosen)))


def _from_fixed_size(array: pa.Array) -> Blobs:
    width, count = array.type.byte_width, len(array)
    data = np.frombuffer(array.buffers()[1] or b"", np.uint8)
    matrix = data[array.offset * width : (array.offset + count) * width].reshape(count, width)
    nulls = null_mask(array)
    if nulls is None:
        return Blobs.from_matrix(matrix)
    return Blobs(matrix[~nulls].reshape(-1), offsets_of(np.where(nulls, 0, width)))


def load(data: Bytes, dtype: str, positions: Ints) -> npt.NDArray[Any]:
    """Return the numbers at these byte positions."""
    return _window(data, dtype)[positions]


def store(data: Bytes, dtype: str, positions: Ints, values: npt.NDArray[Any]) -> None:
    """Write numbers at these byte positions, in order: where two overlap, the later one stays."""
    _window(data, dtype)[positions] = values


def with_slack(data: Bytes) -> Bytes:
    """Return a copy of `data` with SLACK zero bytes behind it."""
    padded = np.empty(data.size + SLACK, np.uint8)
    padded[: data.size] = data
    padded[data.size :] = 0
    return padded


def _window(data: Bytes, dtype: str) -> npt.NDArray[Any]:
    kind = np.dtype(dtype)
    return np.ndarray((data.size - kind.itemsize + 1,), kind, data, strides=(1,))
