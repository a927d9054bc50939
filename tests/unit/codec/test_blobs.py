"""Byte strings in bulk, and varints."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluss_client.codec.binary.blobs import Blobs, join, padded_to, splice, with_slack
from fluss_client.codec.binary.varints import (
    MAX_INT64_BYTES,
    decode_varint,
    decode_varints,
    encode_varint,
    encode_varints,
)
from fluss_client.errors import CorruptDataError

strings = st.lists(st.binary(max_size=30), max_size=25)


@given(source=strings, data=st.data())
def test_list_arrow_take_concat(source: list[bytes], data: st.DataObject) -> None:
    blobs = Blobs.from_list(source)
    assert len(blobs) == len(source)
    assert blobs.to_list() == list(blobs) == source
    assert [blobs[i] for i in range(len(source))] == source
    assert blobs.lengths.tolist() == [len(s) for s in source]
    assert blobs.to_arrow().to_pylist() == source
    first = data.draw(st.integers(0, len(source)))
    for kind in (pa.binary(), pa.large_binary()):
        array = pa.array(source, kind).slice(first)
        assert Blobs.from_arrow(array).to_list() == source[first:]
    assert Blobs.concat([blobs, blobs, Blobs.from_list([])]).to_list() == source * 2
    indices = data.draw(st.lists(st.integers(0, len(source) - 1), max_size=30)) if source else []
    assert blobs.take(np.array(indices, np.int64)).to_list() == [source[i] for i in indices]


@given(source=strings, flags=st.lists(st.booleans(), min_size=25, max_size=25))
def test_nulls_are_empty_even_if_bytes_lie_behind_them(
    source: list[bytes], flags: list[bool]
) -> None:
    plain = pa.array(source, pa.binary())
    nulls = flags[: len(source)]
    validity = pa.py_buffer(np.packbits(~np.array(nulls, np.bool_), bitorder="little"))
    array = pa.Array.from_buffers(plain.type, len(source), [validity, *plain.buffers()[1:]])
    expected = [b"" if null else s for s, null in zip(source, nulls, strict=True)]
    assert Blobs.from_arrow(array).to_list() == expected
    fixed = pa.array([None if null else b"abcd" for null in nulls], pa.binary(4))
    assert Blobs.from_arrow(fixed).to_list() == [b"" if null else b"abcd" for null in nulls]


@given(
    source=st.lists(st.binary(max_size=200), max_size=700),
    count_max=st.integers(1, 300),
    bytes_max=st.integers(1, 5_000),
)
def test_an_iterator_in_parts(source: list[bytes], count_max: int, bytes_max: int) -> None:
    strings, found = iter(source), []
    while part := Blobs.from_iterator(strings, count_max, bytes_max).to_list():
        assert len(part) <= count_max
        # It is known how many bytes there are after 16 strings, and then as often as they fit.
        assert sum(map(len, part[:-256])) < bytes_max
        found += part
    assert found == source


@settings(max_examples=200)
@given(
    data=st.binary(max_size=60),
    spans=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=20),
    ordered=st.booleans(),
)
def test_spans_in_any_order(data: bytes, spans: list[tuple[int, int]], ordered: bool) -> None:
    spans = [(start, min(size, len(data) - start)) for start, size in spans if start <= len(data)]
    if ordered:
        spans.sort()
    starts = np.array([start for start, _ in spans], np.int64)
    lengths = np.array([size for _, size in spans], np.int64)
    found = Blobs.from_spans(np.frombuffer(data, np.uint8), starts, lengths)
    assert found.to_list() == [data[start : start + size] for start, size in spans]


@pytest.mark.parametrize(("start", "length"), [(-1, 1), (0, -1), (0, 4), (4, 0)])
def test_a_span_outside_the_data(start: int, length: int) -> None:
    with pytest.raises(CorruptDataError):
        Blobs.from_spans(np.zeros(3, np.uint8), np.array([start]), np.array([length]))


@given(rows=st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=9)), max_size=20))
def test_join(rows: list[tuple[bytes, bytes]]) -> None:
    left, right = (Blobs.from_list([row[i] for row in rows]) for i in (0, 1))
    matrix = np.arange(2 * len(rows), dtype=np.uint8).reshape(-1, 2)
    joined = join([matrix, left, matrix, matrix, right])
    expected = [
        m + a + m + m + b for (a, b), m in zip(rows, map(bytes, matrix.tolist()), strict=True)
    ]
    assert joined.to_list() == expected
    assert join([matrix, matrix]).to_list() == [m + m for m in map(bytes, matrix.tolist())]


@given(
    template=st.binary(max_size=30),
    items=st.lists(st.tuples(st.integers(0, 30), st.binary(max_size=5)), max_size=15),
)
def test_splice(template: bytes, items: list[tuple[int, bytes]]) -> None:
    items = sorted((min(cut, len(template)), item) for cut, item in items)
    expected, last = b"", 0
    for cut, item in items:
        expected += template[last:cut] + item
        last = cut
    expected += template[last:]
    cuts = np.array([cut for cut, _ in items], np.int64)
    blobs = Blobs.from_list([item for _, item in items])
    assert splice(np.frombuffer(template, np.uint8), cuts, blobs).tobytes() == expected


def test_padding() -> None:
    blobs = Blobs.from_list([b"a", b"", b"abc"])
    assert padded_to(blobs, 3).to_list() == [b"a\0\0", b"\0\0\0", b"abc"]
    assert padded_to(blobs, np.array([2, 0, 4])).to_list() == [b"a\0", b"", b"abc\0"]


edges = st.sampled_from([(1 << 7 * k) + d for k in range(10) for d in (-1, 0, 1)])
numbers = st.integers(0, (1 << 64) - 1) | edges | st.integers(0, 300)


@settings(max_examples=200)
@given(values=st.lists(st.tuples(numbers, st.booleans()), max_size=20), gaps=st.booleans())
def test_varints(values: list[tuple[int, bool]], gaps: bool) -> None:
    array = np.array([value for value, _ in values], np.uint64)
    absent = np.array([flag for _, flag in values], np.bool_) if gaps else None
    flags = [gaps and flag for _, flag in values]
    encoded = encode_varints(array.view(np.int64), absent)
    single = [b"" if skip else encode_varint(v) for (v, _), skip in zip(values, flags, strict=True)]
    assert encoded.to_list() == single
    padded = with_slack(encoded.data)
    decoded, sizes = decode_varints(padded, encoded.offsets[:-1], MAX_INT64_BYTES, absent)
    assert sizes.tolist() == [len(s) for s in single]
    assert decoded.tolist() == [
        0 if skip else v for (v, _), skip in zip(values, flags, strict=True)
    ]
    for (value, _), text in zip(values, single, strict=True):
        if text:
            assert decode_varint(text, 0, MAX_INT64_BYTES) == (value, len(text))


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.uint32])
def test_negative_numbers_go_by_their_width(dtype: Any) -> None:
    values = np.array([-1, 1]).astype(dtype)
    bits = values.dtype.itemsize * 8
    assert encode_varints(values).to_list() == [encode_varint((1 << bits) - 1), b"\1"]


def test_a_varint_without_an_end() -> None:
    data = np.full(40, 0xFF, np.uint8)
    for limit in (5, 10):
        with pytest.raises(CorruptDataError, match=f"within {limit} bytes"):
            decode_varints(data, np.array([0, 1]), limit)
        with pytest.raises(CorruptDataError, match=f"within {limit} bytes"):
            decode_varint(bytes(data), 0, limit)
