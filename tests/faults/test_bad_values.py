"""Everything that is written down and read again, damaged: read as it is, or refused by type."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fluss_client.errors import FlussError
from tests.faults.damage import damaged
from tests.faults.specimens import EVENT, READERS, event_in

SHORT, LONG = 60, 5_000
NAMES = sorted(READERS)
COLUMNS = {"name": EVENT.name, "seq": 5, "kind": "commit", "nonce": EVENT.nonce}


def refused_or_whole(reader: Any, value: Any) -> None:
    """The reader gives something that can be written down again, or raises a typed error."""
    try:
        found = reader(value)
    except FlussError:
        return
    if hasattr(found, "to_json"):
        json.dumps(found.to_json())
    hash(repr(found))


def examples(long_form: bool) -> settings:
    return settings(
        max_examples=LONG if long_form else SHORT,
        deadline=None,
        database=None,
        derandomize=not long_form,
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_value_is_refused_by_type(name: str, long_form: bool) -> None:
    whole, reader = READERS[name]

    @examples(long_form)
    @given(damaged(whole))
    def attempt(value: Any) -> None:
        refused_or_whole(reader, value)

    attempt()
    refused_or_whole(reader, whole)


@pytest.mark.timeout(900)
def test_a_damaged_body_of_an_event_is_refused_by_type(long_form: bool) -> None:
    body = EVENT.body()

    @examples(long_form)
    @given(st.integers(0, len(body) - 1), st.binary(max_size=6))
    def attempt(at: int, by: bytes) -> None:
        changed = body[:at] + by + body[at + len(by) :]
        refused_or_whole(lambda b: event_in(COLUMNS, b), changed)
        refused_or_whole(lambda b: event_in(COLUMNS, b), body[:at])
        refused_or_whole(lambda b: event_in(COLUMNS, b), by)

    attempt()
    assert event_in(COLUMNS, body) == EVENT
