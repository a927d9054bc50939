"""The judge of the soak objects to every kind of wrong history, and to no right one."""

from __future__ import annotations

import pytest

from tests.faults.soak.history import (
    APART,
    Findings,
    KeyWritten,
    Rows,
    Written,
    folded,
    judge_copy,
    judge_equal,
    judge_keys,
    judge_log,
)

FIRST, SECOND = 0, APART
WRITTEN = Written(
    sent=[(FIRST, FIRST + 6), (SECOND, SECOND + 2)],
    acknowledged=[(FIRST, FIRST + 4), (SECOND, SECOND + 2)],
)
"""Of the first writer, two rows were not acknowledged."""
LOG = [(0, 0, 0), (0, 1, SECOND), (0, 2, 1), (0, 3, 3), (1, 0, 2), (1, 1, SECOND + 1)]


def wrong(found: Findings) -> set[str]:
    kinds = ("lost", "doubled", "reordered", "foreign")
    return {kind for kind in kinds if getattr(found, kind)}


def test_a_right_log() -> None:
    found = judge_log("log", WRITTEN, Rows.of(LOG))
    assert found.is_well, found
    assert found.rows == 6
    assert "as it should be" in str(found)


@pytest.mark.parametrize("more", [[(1, 2, 4)], [(1, 2, 4), (1, 3, 5)], [(1, 2, 5)]])
def test_what_was_not_acknowledged_may_be_there(more: list[tuple[int, int, int]]) -> None:
    assert judge_log("log", WRITTEN, Rows.of(LOG + more)).is_well


@pytest.mark.parametrize(
    ("log", "kinds"),
    [
        (LOG[:-1], {"lost"}),
        ([*LOG, (1, 2, 3)], {"doubled"}),
        ([*LOG, (1, 2, 6)], {"foreign"}),
        ([*LOG, (1, 2, 7 * APART)], {"foreign"}),
        # 1 and 3 of the same writer and bucket have changed places.
        ([(0, 0, 0), (0, 1, SECOND), (0, 2, 3), (0, 3, 1), *LOG[4:]], {"reordered"}),
        # An offset is missing.
        ([*LOG[:-1], (1, 2, SECOND + 1)], {"foreign"}),
        ([], {"lost"}),
    ],
)
def test_a_wrong_log(log: list[tuple[int, int, int]], kinds: set[str]) -> None:
    found = judge_log("log", WRITTEN, Rows.of(log))
    assert wrong(found) == kinds
    assert not found.is_well
    assert all(kind in str(found) for kind in kinds)


def test_two_writers_of_a_bucket_have_no_order_between_them() -> None:
    log = [(0, 0, SECOND), (0, 1, 0), *LOG[2:]]
    assert judge_log("log", WRITTEN, Rows.of(log)).is_well


def test_a_changelog_has_offsets_of_other_rows() -> None:
    log = [(bucket, 2 * offset + 1, number) for bucket, offset, number in LOG]
    assert judge_log("changelog", WRITTEN, Rows.of(log), gapless=False).is_well
    assert not judge_log("log", WRITTEN, Rows.of(log)).is_well


def test_a_right_copy() -> None:
    log = Rows.of(LOG)
    assert judge_copy("sink", log, Rows.of(LOG), arrival=True).is_well
    assert judge_copy("sink", log, Rows.of(LOG[::-1])).is_well, "files have no order"
    mixed = [LOG[4], *LOG[:4], LOG[5]]
    assert judge_copy("sink", log, Rows.of(mixed), arrival=True).is_well, "buckets have no order"


@pytest.mark.parametrize(
    ("copy", "kinds"),
    [
        (LOG[1:], {"lost"}),
        ([*LOG, LOG[2]], {"doubled"}),
        ([*LOG, (1, 2, 4)], {"foreign"}),
        # The row is there, and is said to be elsewhere.
        ([(0, 9, 0), *LOG[1:]], {"foreign"}),
        ([], {"lost"}),
    ],
)
def test_a_wrong_copy(copy: list[tuple[int, int, int]], kinds: set[str]) -> None:
    assert wrong(judge_copy("sink", Rows.of(LOG), Rows.of(copy))) == kinds


def test_a_copy_in_another_order() -> None:
    copy = [LOG[1], LOG[0], *LOG[2:]]
    assert wrong(judge_copy("sink", Rows.of(LOG), Rows.of(copy), arrival=True)) == {"reordered"}


KEYS = KeyWritten(
    sent=[(0, 2), (2, 4), (4, 5)],
    acknowledged=[(0, 2), (2, 4)],
    changes=[(0, {1: 0, 2: 1}), (2, {1: 2, 3: None}), (4, {2: 4})],
)
"""Key 1 was written twice, key 3 deleted, and a write of key 2 was not acknowledged."""


@pytest.mark.parametrize("second", [1, 4])
def test_right_keys(second: int) -> None:
    assert judge_keys("table", KEYS, [(1, 2), (2, second)]).is_well


@pytest.mark.parametrize(
    ("state", "kinds"),
    [
        ([(2, 1)], {"lost"}),
        ([(1, 9), (2, 1)], {"lost"}),
        ([(1, 0), (2, 1)], {"reordered"}),  # an older value has won
        ([(1, 2), (2, 1), (1, 2)], {"doubled"}),
        ([(1, 2), (2, 1), (9, 1)], {"foreign"}),
        ([(1, 2), (2, 1), (3, 1)], {"lost"}),  # the delete is not there
    ],
)
def test_wrong_keys(state: list[tuple[int, int]], kinds: set[str]) -> None:
    assert wrong(judge_keys("table", KEYS, state)) == kinds


def test_a_mirror_has_the_rows_of_its_table() -> None:
    table = {1: 2, 2: 1}
    assert judge_equal("mirror", table, [(2, 1), (1, 2)]).is_well
    assert wrong(judge_equal("mirror", table, [(1, 2)])) == {"lost"}
    assert wrong(judge_equal("mirror", table, [(1, 2), (2, 1), (3, 0)])) == {"foreign"}
    assert wrong(judge_equal("mirror", table, [(1, 0), (2, 1)])) == {"reordered"}
    assert wrong(judge_equal("mirror", table, [(1, 2), (2, 1), (2, 1)])) == {"doubled"}


def test_the_state_that_a_changelog_leaves() -> None:
    changes = [("+I", 1, 0), ("+I", 2, 1), ("-U", 1, 0), ("+U", 1, 2), ("-D", 2, 1)]
    assert folded(changes) == {1: 2}
