"""`ChangeType` owns the code, the sign and the word of a change."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fluss_client import ChangeType, FlussError
from fluss_client.errors import ChangeTypeError

CODES = [int(change) for change in ChangeType]
SIGNS = ["+A", "+I", "-U", "+U", "-D"]
WORDS = ["append_only", "insert", "update_before", "update_after", "delete"]
INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
UNSIGNED = [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
TEXTS = [pa.string(), pa.large_string(), pa.string_view()]


def test_the_three_forms() -> None:
    assert CODES == [0, 1, 2, 3, 4]
    assert [change.sign for change in ChangeType] == SIGNS
    assert [change.short_string() for change in ChangeType] == SIGNS
    assert [change.word for change in ChangeType] == WORDS
    # As the official client shows them.
    assert [str(change) for change in ChangeType] == SIGNS
    assert f"{ChangeType.Insert}|{ChangeType.Delete:>4}" == "+I|  -D"
    assert repr(ChangeType.Insert) == "ChangeType.Insert"
    assert int(ChangeType.Insert) == 1
    assert ChangeType.signs_of(np.array([4, 0, 1], np.uint8)).to_pylist() == ["-D", "+A", "+I"]


@pytest.mark.parametrize("kind", INTEGERS + UNSIGNED, ids=str)
def test_codes_of_integers(kind: pa.DataType) -> None:
    codes = ChangeType.codes_of(pa.array([4, 0, 1, 2, 3], kind))
    assert codes.dtype == np.uint8
    assert codes.tolist() == [4, 0, 1, 2, 3]


@pytest.mark.parametrize("kind", TEXTS, ids=str)
@pytest.mark.parametrize("forms", [SIGNS, WORDS], ids=["signs", "words"])
def test_codes_of_texts(kind: pa.DataType, forms: list[str]) -> None:
    plain = pa.array([*forms, forms[4]], kind)
    assert ChangeType.codes_of(plain).tolist() == [*CODES, 4]
    indices = pa.array([4, 0, 1, 2, 3], pa.int8())
    keyed = pa.DictionaryArray.from_arrays(indices, pa.array([*forms, "not used"], kind))
    assert ChangeType.codes_of(keyed).tolist() == [4, 0, 1, 2, 3]


def test_codes_of_other_shapes() -> None:
    runs = pc.run_end_encode(pa.array(["+I", "+I", "-D"]))
    assert ChangeType.codes_of(runs).tolist() == [1, 1, 4]
    chunks = pa.chunked_array([["+I", "delete"], [], ["-U"]], pa.string())
    assert ChangeType.codes_of(chunks).tolist() == [1, 4, 2]
    assert ChangeType.codes_of(pa.array(["x", "-D", "+I"]).slice(1)).tolist() == [4, 1]
    coded = pa.array([1, 4, 1], pa.int64()).dictionary_encode()
    assert ChangeType.codes_of(coded).tolist() == [1, 4, 1]
    for kind in (pa.null(), pa.float64(), pa.string()):
        assert ChangeType.codes_of(pa.array([], kind)).tolist() == []


REFUSED = [
    (pa.array(["+I", None], pa.string()), 1, None),
    (pa.array([1, None], pa.int8()), 1, None),
    (pa.array([None, None], pa.null()), 0, None),
    (pa.array(["+I", "-D", "D"]), 2, "D"),
    (pa.array(["-d"]), 0, "-d"),
    (pa.array(["Delete"], pa.large_string()), 0, "Delete"),
    (pa.array(["+I ", "-D"], pa.string_view()), 0, "+I "),
    (pa.array(["1"]), 0, "1"),
    (pa.array([""]), 0, ""),
    (pa.array([0, 5], pa.int8()), 1, 5),
    (pa.array([-1], pa.int64()), 0, -1),
    (pa.array([0, 2**64 - 1], pa.uint64()), 1, 2**64 - 1),
    (pa.array([1, 255], pa.uint8()), 1, 255),
    (pa.array([1.0]), 0, 1.0),
    (pa.array([True]), 0, True),
    (pa.array([b"+I"]), 0, b"+I"),
    (pa.array(["+I", None, "-D"]).dictionary_encode(), 1, None),
    (pa.DictionaryArray.from_arrays([0, 1], pa.array(["+I", None])), 1, None),
    (pa.array(["+I", "x"]).dictionary_encode(), 1, "x"),
    (pa.chunked_array([["+I", "+I"], ["-D", "upsert"]]), 3, "upsert"),
]


@pytest.mark.parametrize(("array", "row", "value"), REFUSED, ids=[str(r[2]) for r in REFUSED])
def test_everything_else_is_refused(
    array: pa.Array | pa.ChunkedArray, row: int, value: object
) -> None:
    with pytest.raises(ChangeTypeError) as caught:
        ChangeType.codes_of(array, column="kind")
    error = caught.value
    assert (error.column, error.row, error.value) == ("kind", row, value)
    shown = "null" if value is None else repr(value)
    assert f"column 'kind' (Arrow type {array.type}), row {row}, counted from 0: {shown} is" in str(
        error
    )
    assert "+A, +I, -U, +U, -D; append_only, insert, " in str(error)
    assert isinstance(error, FlussError)
    assert pickle.loads(pickle.dumps(error)).row == row


def test_the_refusal_shows_only_the_beginning_of_a_long_value() -> None:
    with pytest.raises(ChangeTypeError) as caught:
        ChangeType.codes_of(pa.array(["x" * 10_000]))
    assert len(str(caught.value)) < 400
    outside = pa.array([2**62], pa.int64()).cast(pa.timestamp("s"))
    with pytest.raises(ChangeTypeError, match="Python cannot hold"):
        ChangeType.codes_of(outside)
