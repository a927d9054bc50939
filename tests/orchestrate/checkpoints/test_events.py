"""How events and positions are written down."""

from __future__ import annotations

import json
import random
import time
import zlib
from dataclasses import replace

import pytest

from fluss_client.errors import CorruptDataError
from fluss_orchestrate.core.checkpoints import Event, TablePosition
from fluss_orchestrate.core.checkpoints.events import EVENT_VERSION, event_from_json
from fluss_orchestrate.core.checkpoints.records import rebuilt
from fluss_orchestrate.core.checkpoints.transitions import commit_event, plan_event
from fluss_orchestrate.core.plan import BucketRange, Place
from tests.orchestrate.checkpoints.plans import TABLE, plan, position, receipt

PLACES = 10_000
BYTES_PER_PLACE_MAX = 12


def read(event: Event, body: bytes) -> Event:
    """The event from a record with this body, which is built upon nothing."""
    row = {
        "name": event.name,
        "seq": event.sequence,
        "kind": str(event.kind),
        "nonce": event.nonce,
        "body": body,
    }
    (found,) = rebuilt([row], lambda keys: [], {})
    return found


def test_an_event_survives_both_forms() -> None:
    begins = replace(position(3), commit_ms={(None, 1): 77})
    event = plan_event(None, plan("orders", "run-1", 3, 9), begins, {"until": "latest"})
    assert read(event, event.body()) == event
    copied = event_from_json(json.loads(json.dumps(event.to_json())))
    assert replace(copied, nonce=event.nonce) == event
    done = commit_event(event, receipt(event.state.pending), {(None, 0): 5})  # type: ignore[arg-type]
    assert read(done, done.body()) == done


def test_newer_and_damaged_events_are_refused() -> None:
    event = plan_event(None, plan("orders", "run-1", 3, 9), position(3))
    value = json.loads(zlib.decompress(event.body()))
    value["version"] = EVENT_VERSION + 1
    newer = zlib.compress(json.dumps(value).encode())
    with pytest.raises(CorruptDataError, match="upgrade"):
        read(event, newer)
    with pytest.raises(CorruptDataError, match="upgrade"):
        event_from_json({**event.to_json(), "version": EVENT_VERSION + 1})
    for damaged in (b"", b"nonsense", event.body()[:-4], zlib.compress(b"[]")):
        with pytest.raises(CorruptDataError):
            read(event, damaged)
    changed = event.to_json()
    changed["state"]["pending"]["ranges"][0][4] += 1
    with pytest.raises(CorruptDataError, match="changed"):
        event_from_json(changed)


def test_ten_thousand_places_stay_small() -> None:
    rng = random.Random(5)
    offsets: dict[Place, int] = {
        (p, b): rng.randrange(10**7) for p in range(PLACES // 16) for b in range(16)
    }
    times = {place: 1_760_000_000_000 + rng.randrange(86_400_000) for place in offsets}
    names = {p: f"2026$eu-{p:05}" for p in range(PLACES // 16)}
    begins = TablePosition(TABLE, offsets, times, names)
    ranges = tuple(
        BucketRange(p, names[p or 0], b, offset, offset + 10)
        for (p, b), offset in list(offsets.items())[:500]
        if p is not None
    )
    event = plan_event(None, replace(plan("orders", "r", 0, 0), ranges=ranges), begins)
    started = time.perf_counter()
    body = event.body()
    again = read(event, body)
    took = time.perf_counter() - started
    assert again == event
    assert len(body) < BYTES_PER_PLACE_MAX * PLACES, f"{len(body)} bytes in {took:.3f} s"


def test_positions_never_move_back_and_forget_stale_times() -> None:
    begins = replace(position(5), commit_ms={(None, 0): 100, (None, 1): 200})
    back = BucketRange(None, None, 0, 1, 4)
    forth = BucketRange(None, None, 1, 5, 8)
    after = begins.advanced([back, forth], {(None, 0): 999})
    assert after.offsets == {(None, 0): 5, (None, 1): 8}
    assert after.commit_ms == {(None, 0): 100}
    assert after.without([(None, 0)]).offsets == {(None, 1): 8}
