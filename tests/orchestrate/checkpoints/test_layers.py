"""Positions in layers: how few records make a position, and how small they are."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluss_client.errors import CorruptDataError
from fluss_orchestrate.core.checkpoints import TablePosition
from fluss_orchestrate.core.checkpoints.layers import (
    WHOLE_PLACES_MAX,
    PositionLayer,
    built,
    follow,
)
from fluss_orchestrate.core.plan import Place
from tests.orchestrate.checkpoints.plans import TABLE

NAME = "job"
PLACES = 400


def wide(changed: Mapping[Place, int] | None = None) -> TablePosition:
    offsets: dict[Place, int] = {(p, b): p + b for p in range(PLACES // 10) for b in range(10)}
    return TablePosition(TABLE, {**offsets, **(changed or {})}, {}, {0: "d0"})


class Chain:
    """The layers of events, as a store would read them."""

    def __init__(self, first: TablePosition, sequence: int = 0) -> None:
        self.positions = {sequence: first}
        self.layers = {sequence: PositionLayer.of_whole((NAME, sequence), f"n{sequence}", first)}
        self.head = sequence

    def upon(self, sequence: int) -> tuple[PositionLayer, ...]:
        layer = self.layers[sequence]
        return (*(self.layers[s] for _, s in layer.on), layer)

    def add(self, position: TablePosition, places: frozenset[Place] | None = None) -> PositionLayer:
        before = self.positions[self.head]
        below = self.upon(self.head)
        self.head += 1
        nonce = f"n{self.head}"
        made = PositionLayer.upon(below, (NAME, self.head), nonce, before, position, places)
        value = made.to_json()
        read = made
        if value is not None:
            stored = json.loads(json.dumps(value))
            found = PositionLayer.from_json((NAME, self.head), nonce, stored)
            assert found is not None
            read = found
            assert read == made
        self.positions[self.head], self.layers[self.head] = position, read
        return read

    def check(self) -> None:
        for sequence, position in self.positions.items():
            layers = self.upon(sequence)
            assert follow(layers)
            assert built(layers) == position


def test_the_bases_of_events() -> None:
    expected = [(), (0,), (0,), (0, 2), (0,), (0, 4), (0, 4), (0, 4, 6), (0,)]
    for first in (0, 100):
        chain = Chain(wide(), first)
        for number in range(8):
            chain.add(wide({(1, 1): number + 100}))
        found = [chain.layers[first + r].on for r in range(9)]
        assert found == [tuple((NAME, first + r) for r in bases) for bases in expected]


def test_a_chain_through_many_names() -> None:
    """Each boundary is built upon the one before it, and each interval upon a boundary."""
    position = wide()
    layers: tuple[PositionLayer, ...] = (PositionLayer.of_whole(("at 0", 0), "n0", position),)
    for number in range(1, 40):
        moved: dict[Place, int] = {(1, 1): number + 100, (2, number % 10): number}
        before, position = position, wide(moved)
        key, nonce = (f"at {number}", 0), f"n{number}"
        made = PositionLayer.upon(layers, key, nonce, before, position)
        stored = json.loads(json.dumps(made.to_json()))
        assert PositionLayer.from_json(key, nonce, stored) == made
        assert made.depth == number
        layers = (*layers[: len(made.on)], made)
        assert len(layers) == 1 + number.bit_count()
        assert follow(layers)
        assert built(layers) == position
        # The plan and the commit of an interval that begins there.
        plan = PositionLayer.upon(layers, ("job", 0), "p", position, position, frozenset())
        of_plan = (*layers[: len(plan.on)], plan)
        after = wide(moved | {(1, 1): number + 500})
        done = PositionLayer.upon(of_plan, ("job", 1), "c", position, after, frozenset({(1, 1)}))
        stored = json.loads(json.dumps(done.to_json()))
        assert PositionLayer.from_json(("job", 1), "c", stored) == done
        assert built((*of_plan[: len(done.on)], done)) == after
        assert not follow((*of_plan[: len(done.on) - 1], done))


moves = st.dictionaries(
    st.tuples(st.integers(0, 50), st.integers(0, 9)), st.integers(0, 2**50), max_size=6
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(moves, st.sets(st.integers(0, 45), max_size=1)), max_size=20),
    st.integers(0, 100),
)
def test_every_position_of_a_history_is_built(
    steps: list[tuple[dict[tuple[int, int], int], set[int]]], first: int
) -> None:
    chain = Chain(wide(), first)
    for changed, dropped in steps:
        before = chain.positions[chain.head]
        gone = [place for place in before.offsets if place[0] in dropped]
        left = before.without(gone)
        offsets: dict[Place, int] = {**left.offsets, **changed}
        times = {**left.commit_ms, **{place: at % 1000 for place, at in list(changed.items())[:3]}}
        names = {**left.partitions, **{place[0]: f"p{place[0]}" for place in changed}}
        chain.add(replace(left, offsets=offsets, commit_ms=times, partitions=names))
    chain.check()


def test_a_layer_is_as_large_as_what_changed() -> None:
    chain = Chain(wide())
    rng = random.Random(3)
    sizes = []
    for number in range(1, 129):
        changed: dict[Place, int] = {(7, rng.randrange(10)): number * 100}
        before = chain.positions[chain.head]
        layer = chain.add(
            replace(before, offsets={**before.offsets, **changed}), frozenset(changed)
        )
        assert layer.whole is None
        assert len(layer.on) <= number.bit_length()
        sizes.append(layer.change.size)
    assert max(sizes) == 10, "all of them moved the same ten places"
    chain.check()


def test_when_most_places_moved_the_position_is_whole_again() -> None:
    chain = Chain(wide())
    wholes = []
    for number in range(PLACES):
        before = chain.positions[chain.head]
        place = (number // 10, number % 10)
        layer = chain.add(replace(before, offsets={**before.offsets, place: 10**6 + number}))
        if layer.whole is not None:
            wholes.append(layer.sequence)
    # Event 256 has the changes of 256 events.
    assert wholes == [256]
    chain.check()
    read = [sum(layer.change.size for layer in chain.upon(s)) for s in chain.positions]
    assert max(read) < PLACES


def test_small_positions_and_other_tables_are_whole() -> None:
    few: dict[Place, int] = {(None, b): b for b in range(WHOLE_PLACES_MAX)}
    chain = Chain(TablePosition(TABLE, few))
    assert chain.add(TablePosition(TABLE, {**few, (None, 0): 9})).whole is not None
    chain = Chain(wide())
    other = replace(wide(), table=replace(TABLE, table_id=8))
    assert chain.add(other).whole is not None
    assert chain.add(replace(other, drops_seen=3)).whole is None
    chain.check()


def test_places_that_do_not_explain_the_change_are_not_believed() -> None:
    chain = Chain(wide())
    after = wide({(1, 1): 500, (2, 2): 600, (77, 0): 3})
    for hint in (frozenset(), frozenset({(1, 1)}), frozenset({(1, 1), (2, 2)})):
        assert set(chain.add(after, hint).change.moved) >= {(1, 1), (2, 2), (77, 0)}
        chain.add(wide())
    chain.check()


def test_layers_that_do_not_follow_each_other() -> None:
    chain = Chain(wide())
    for number in range(7):
        chain.add(wide({(1, 1): number + 100}))
    layers = chain.upon(7)
    assert [layer.sequence for layer in layers] == [0, 4, 6, 7]
    assert follow(layers)
    assert not follow(layers[1:])
    assert not follow((layers[0], *layers[2:]))
    for at in range(4):
        other = (*layers[:at], replace(layers[at], nonce="other"), *layers[at + 1 :])
        assert follow(other) == (at == 3), "nothing is built upon the last one"
    moved = replace(layers[1].change, moved={(1, 1): (1, None)})
    assert built((layers[0], replace(layers[1], change=moved))) is None, "its sums differ"


@pytest.mark.parametrize(
    "damage",
    [
        {"on": []},
        {"on": [4, 2]},
        {"on": [5]},
        {"on": [0, 0]},
        {"on": [["other", 0, 1]]},
        {"on": [["other", 0], ["other", 0]]},
        {"nonce": 3},
        {"depth": "1"},
        {"check": [1, 2]},
    ],
)
def test_damaged_layers_are_refused(damage: dict[str, object]) -> None:
    chain = Chain(wide())
    value = chain.add(wide({(1, 1): 100})).to_json()
    assert value is not None
    with pytest.raises(CorruptDataError):
        PositionLayer.from_json((NAME, 5), "n5", {**value, **damage})
