"""Plain values with one thing wrong, as a bad disk, an editor or an attacker leaves them."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

Path = tuple[str | int, ...]

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.sampled_from([math.inf, -math.inf, math.nan, 0.5, 1e300]),
    st.text(max_size=8),
    st.sampled_from(["", "a.b", "../x", "\x00", "\ud800", "9" * 50, "not null", "${a}", "%s"]),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=5,
)
"""Anything that JSON may hold."""


def places(value: Any, at: Path = ()) -> Iterator[Path]:
    """Every place of a value, itself first."""
    yield at
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*at, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from places(inner, (*at, number))


def replaced(value: Any, at: Path, by: Any) -> Any:
    """A copy with something else at one place."""
    if not at:
        return by
    twin = copy.deepcopy(value)
    inner = twin
    for step in at[:-1]:
        inner = inner[step]
    inner[at[-1]] = by
    return twin


def without(value: Any, at: Path) -> Any:
    """A copy in which one place is missing."""
    twin = copy.deepcopy(value)
    inner = twin
    for step in at[:-1]:
        inner = inner[step]
    del inner[at[-1]]
    return twin


@st.composite
def damaged(draw: st.DrawFn, whole: Any) -> Any:
    """The value with one place replaced, or gone."""
    at = draw(st.sampled_from(list(places(whole))))
    if at and draw(st.booleans()):
        return without(whole, at)
    return replaced(whole, at, draw(values))
