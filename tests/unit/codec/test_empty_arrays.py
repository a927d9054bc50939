"""Empty arrays without offsets, as Java writes them, become complete ones."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fluss_client.codec.arrow_body import complete_empty_arrays

INNER = pa.list_(pa.string())
KINDS = {
    "list": pa.list_(INNER),
    "map": pa.map_(pa.int32(), INNER),
    "row": pa.struct([("a", pa.list_(INNER)), ("b", pa.int32())]),
    "list of rows": pa.list_(pa.struct([("a", INNER)])),
}


def _without_offsets(kind: pa.DataType) -> pa.Array:
    """An empty array with no byte in any buffer."""
    nothing = pa.py_buffer(b"")
    if pa.types.is_struct(kind):
        children = [_without_offsets(field.type) for field in kind]
        return pa.Array.from_buffers(kind, 0, [None], children=children)
    if pa.types.is_map(kind):
        entries = pa.struct([kind.key_field, kind.item_field])
        return pa.Array.from_buffers(kind, 0, [None, nothing], children=[_without_offsets(entries)])
    if pa.types.is_list(kind):
        child = [_without_offsets(kind.value_type)]
        return pa.Array.from_buffers(kind, 0, [None, nothing], children=child)
    buffers = [None, nothing, nothing] if pa.types.is_string(kind) else [None, nothing]
    return pa.Array.from_buffers(kind, 0, buffers)


def _with_empty_rows(kind: pa.DataType) -> pa.Array:
    """Two rows, an empty one and a null, over a child that has no byte."""
    bits = pa.py_buffer(b"\x01")
    if pa.types.is_struct(kind):
        children = [
            _with_empty_rows(f.type) if pa.types.is_nested(f.type) else pa.nulls(2, f.type)
            for f in kind
        ]
        return pa.Array.from_buffers(kind, 2, [bits], children=children)
    child = (
        pa.struct([kind.key_field, kind.item_field]) if pa.types.is_map(kind) else kind.value_type
    )
    return pa.Array.from_buffers(
        kind, 2, [bits, pa.py_buffer(bytes(12))], children=[_without_offsets(child)]
    )


def _offsets(array: pa.Array) -> list[int]:
    """The sizes of the offset buffers of every list, map and text below."""
    kind = array.type
    if pa.types.is_struct(kind):
        return [n for at in range(kind.num_fields) for n in _offsets(array.field(at))]
    if pa.types.is_map(kind):
        return [array.buffers()[1].size, *_offsets(array.keys), *_offsets(array.items)]
    if pa.types.is_list(kind):
        return [array.buffers()[1].size, *_offsets(array.values)]
    return [array.buffers()[1].size] if pa.types.is_string(kind) else []


@pytest.mark.parametrize("name", KINDS)
def test_every_empty_child_has_its_offset(name: str) -> None:
    column = _with_empty_rows(KINDS[name])
    assert 0 in _offsets(column), "the case is the one that is meant"
    batch = pa.RecordBatch.from_arrays([column, pa.array([1, 2])], ["x", "n"])
    mended = complete_empty_arrays(batch)
    assert min(_offsets(mended.column(0))) >= 4
    assert mended.schema.equals(batch.schema)
    assert mended.to_pylist() == batch.to_pylist()
    mended.validate(full=True)
    assert mended.nbytes > 0


def test_what_is_whole_stays_itself() -> None:
    batch = pa.RecordBatch.from_pydict({"n": [1, 2], "s": ["a", None], "l": [[1], None]})
    assert complete_empty_arrays(batch) is batch
