"""Changes of positions: what makes one position of another, alone and in a row."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluss_client.errors import CorruptDataError
from fluss_orchestrate.core.checkpoints import TablePosition
from fluss_orchestrate.core.checkpoints.position_change import PositionChange
from fluss_orchestrate.core.plan import Place
from tests.orchestrate.checkpoints.plans import TABLE

GOLDEN = (
    '{"moved":[[null,[2],[9],[]],[4,[0,1],[7,8],[1700,null]]],"gone":[[5,[0,3]]],'
    '"names":[[4,"d4"]],"unnamed":[5],"seen":[3,null]}'
)

places = st.tuples(st.none() | st.integers(0, 3), st.integers(0, 3))


@st.composite
def positions(draw: st.DrawFn) -> TablePosition:
    offsets = draw(st.dictionaries(places, st.integers(0, 2**62), max_size=12))
    timed = draw(st.sets(st.sampled_from(sorted(offsets, key=str)))) if offsets else set()
    numbers = st.none() | st.integers(-1, 5)
    return TablePosition(
        TABLE,
        offsets,
        {place: draw(st.integers(0, 2**42)) for place in timed},
        draw(st.dictionaries(st.integers(0, 3), st.sampled_from("abü"), max_size=3)),
        draw(numbers),
        draw(numbers),
    )


@given(positions(), positions())
def test_a_change_makes_one_position_of_another(one: TablePosition, other: TablePosition) -> None:
    change = PositionChange.between(one, other)
    assert change.apply(one) == other
    read = PositionChange.from_json(json.loads(json.dumps(change.to_json())))
    assert read == change
    differing = {p for p in {**one.offsets, **other.offsets} if _at(one, p) != _at(other, p)}
    assert change.size == len(differing)
    assert PositionChange.between(one, other, differing) == change


@given(st.lists(positions(), min_size=3, max_size=6))
def test_changes_in_a_row_are_one(found: list[TablePosition]) -> None:
    first, *others = found
    whole = PositionChange.between(first, first)
    before = first
    for after in others:
        whole = whole.then(PositionChange.between(before, after))
        before = after
    assert whole.apply(first) == before
    assert whole.size <= len({place for position in found for place in position.offsets})


def test_the_form_in_json() -> None:
    before = TablePosition(
        TABLE, {(None, 2): 3, (5, 0): 1, (5, 3): 1, (4, 0): 7}, {(4, 0): 1600}, {5: "d5"}
    )
    offsets: dict[Place, int] = {(None, 2): 9, (4, 0): 7, (4, 1): 8}
    after = TablePosition(TABLE, offsets, {(4, 0): 1700}, {4: "d4"}, 3)
    change = PositionChange.between(before, after)
    assert json.dumps(change.to_json(), separators=(",", ":")) == GOLDEN
    assert PositionChange.from_json(json.loads(GOLDEN)).apply(before) == after
    assert PositionChange.between(after, after).to_json() == {"seen": [3, None]}
    unseen = replace(after, drops_seen=None)
    assert PositionChange.between(after, unseen).to_json() == {"seen": [None, None]}


@pytest.mark.parametrize(
    "damage",
    [
        {"moved": [[None, [1, 2], [5], []]]},
        {"moved": [[None, [1], ["5"], []]]},
        {"moved": [[None, [1], [2**63], []]]},
        {"moved": 7},
        {"gone": [[None, 3]]},
        {"names": [["4", "d4"]]},
        {"seen": [1]},
        {"seen": None},
    ],
)
def test_damaged_changes_are_refused(damage: dict[str, object]) -> None:
    with pytest.raises(CorruptDataError, match="change of a position"):
        PositionChange.from_json({**json.loads(GOLDEN), **damage})


def _at(position: TablePosition, place: Place) -> tuple[int | None, int | None]:
    return position.offsets.get(place), position.commit_ms.get(place)
