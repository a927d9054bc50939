"""Which rows have one of some keys, against a dict."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fluss_orchestrate.core.key_sets import KeySet

KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "tiny": (pa.int8(), [-128, -1, 0, 1, 127]),
    "int": (pa.int32(), [-(2**31), -7, 0, 5, 2**31 - 1]),
    "long": (pa.int64(), [-(2**63), -1, 0, 1, 2**40, 2**63 - 1]),
    "date": (pa.date32(), [-3, 0, 19_000]),
    "time": (pa.time64("us"), [0, 1, 86_399_999_999]),
    "stamp": (pa.timestamp("us", "UTC"), [-5, 0, 1_700_000_000_000_000]),
    "text": (pa.string(), ["", "a", "b", "\x00"]),
    "flag": (pa.bool_(), [True, False]),
}
KEYS = [["long"], ["int"], ["date"], ["stamp"], ["text"], ["tiny", "long"], ["long", "text"]]
KEYS += [["text", "int"], ["time", "flag", "tiny"]]


def column(kind: str, values: list[Any], chance: random.Random) -> pa.Array:
    """The values, often as a slice of a longer column."""
    before = KINDS[kind][1][: chance.randrange(2)]
    return pa.array([*before, *values], KINDS[kind][0]).slice(len(before))


@pytest.mark.parametrize("nulls", [False, True], ids=["full", "nulls"])
@pytest.mark.parametrize("key", KEYS, ids="+".join)
@pytest.mark.parametrize("seed", range(5))
def test_rows_are_found_by_key_and_sequence(key: list[str], nulls: bool, seed: int) -> None:
    chance = random.Random(seed)

    def keys(count: int, some_nulls: bool) -> list[tuple[Any, ...]]:
        pools = [[*KINDS[kind][1], *([None] if some_nulls else [])] for kind in key]
        return [tuple(chance.choice(pool) for pool in pools) for _ in range(count)]

    known = keys(chance.choice([0, 1, 4]), nulls)
    numbers = [chance.randrange(5) for _ in known]
    newest: dict[tuple[Any, ...], int] = {}
    for one, number in zip(known, numbers, strict=True):
        newest[one] = max(number, newest.get(one, -1))
    cut = len(known) // 2
    made = KeySet(
        [
            pa.chunked_array(
                [
                    column(kind, [one[at] for one in part], chance)
                    for part in (known[:cut], known[cut:])
                ]
            )
            for at, kind in enumerate(key)
        ],
        np.array(numbers, np.int64),
    )
    rows = keys(50, some_nulls=True)
    columns = [column(kind, [row[at] for row in rows], chance) for at, kind in enumerate(key)]
    for above in (-1, 2, 4):
        found = made.holds(columns, above).tolist()
        assert found == [newest.get(row, -1) > above for row in rows]
    assert made.holds([one.slice(0, 0) for one in columns]).tolist() == []


def test_many_numbers_are_told_apart() -> None:
    random = np.random.default_rng(3)
    known = random.integers(-(2**62), 2**62, 20_000)
    made = KeySet([pa.chunked_array([known])], np.zeros(len(known), np.int64))
    assert made.is_quick
    rows = np.concatenate([known[:500], random.integers(-(2**62), 2**62, 20_000), known + 1])
    assert (made.holds([pa.array(rows)]) == np.isin(rows, known)).all()
    assert not made.holds([pa.array(rows)], 0).any()


@pytest.mark.parametrize("spread", [1, 3, 1000])
def test_numbers_that_lie_close_together(spread: int) -> None:
    """Sets without gaps are looked up without a hash; numbers far outside do not wrap into them."""
    random = np.random.default_rng(4)
    known = random.permutation(5_000) * spread - 7_000
    made = KeySet([pa.chunked_array([known[:100], known[100:]])], np.full(len(known), 9))
    ends = [-(2**63), 2**63 - 1, 2**63 - 7_001, -7_001, 0, known.max() + 1]
    rows = np.concatenate([known[:500], random.integers(-9_000, 9_000, 5_000), np.array(ends)])
    assert (made.holds([pa.array(rows)], 8) == np.isin(rows, known)).all()
    assert not made.holds([pa.array(rows)], 9).any()
    with_null = made.holds([pa.array([None, int(known[0])], pa.int64())])
    assert with_null.tolist() == [False, True]
