"""Records of large checkpoints: small, readable by this release, refused by earlier ones."""

from __future__ import annotations

import base64
import itertools
import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from fluss_orchestrate.core.checkpoints import CheckpointStore, EventKind, compact
from fluss_orchestrate.core.checkpoints.events import (
    CHANGE_VERSION,
    EVENT_VERSION,
    RESERVED,
    Event,
)
from fluss_orchestrate.core.checkpoints.records import rebuilt, recorded
from fluss_orchestrate.core.checkpoints.transitions import commit_event, plan_event
from fluss_orchestrate.core.errors import CheckpointHistoryError, PendingPlanError
from tests.orchestrate.checkpoints.memory_log import MemoryEventLog
from tests.orchestrate.checkpoints.plans import (
    STILL,
    TABLE,
    plan,
    position,
    receipt,
    step,
    take,
)
from tests.upgrade import make_wide_interval as intervals

_names = itertools.count()
Opener = Callable[[], CheckpointStore]
NAME = "orders"
VERSION_TAKEN_BEFORE = 2
"""The newest version that the release before changes of positions takes."""

GOLDEN: dict[str, Any] = {
    "version": 3,
    "run_key": "run-1",
    "plan_id": "p",
    "created_ms": 1,
    "state": {
        "position": {
            "table": TABLE.to_json(),
            "on": [0],
            "nonce": "first",
            "change": {"moved": [[None, [0, 1], [5, 5], []]], "seen": [None, None]},
            "check": [402, sum(STILL.values()) + 10, 0],
        },
        "pending": None,
        "adopted_by": "",
        "retired": False,
    },
    "receipt": None,
    "details": {},
}
UPON = {**GOLDEN["state"]["position"], "on": [["at", 0]], "depth": 1}
"""The position of an event that is built upon an event of another name."""
GOLDEN_BODY = base64.b64decode(
    "eJxFkOGqwyAMhd8lv70Xu97esr5KKcVpusmsitrBKH33JbIxfwRz4jmfZIcHpmyDh6EVkDY/3/EJA99+GhAQnfKz"
    "NaRE6nRCVdDMa4ahEZALdTDsEEO2pYbsUNTFVVG7LRdMZDW4qM0VCngPId9C/A3JEPujVkr/ZRS70suml99zCGDG"
    "KCcBPnjNSYtNmZP1Tflr5a7hgRQ1jn5zToxSNJMYO9FRnSZyZkQOqVMu08Fu1HcS/+RJtP353LX/p0YKybOI3lh/"
    "haE6QJkQ+X8XXhOBExabGLgol/FgQaON5fPeYFHW0cL243gBhJh2EQ=="
)


def log_of(store: CheckpointStore) -> MemoryEventLog:
    assert isinstance(store.log, MemoryEventLog)
    return store.log


def filled(runs: int = 8) -> tuple[CheckpointStore, dict[int, dict[str, Any]]]:
    """A checkpoint of 402 places of which two move, and its records as they may be changed."""
    store = CheckpointStore(MemoryEventLog())
    for number in range(runs):
        step(store, NAME, f"run-{number}", wide=True)
    records: dict[int, dict[str, Any]] = log_of(store).records[NAME]  # type: ignore[assignment]
    return store, records


def content(record: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(zlib.decompress(record["body"]))
    return found


def test_the_golden_record() -> None:
    """What this release has written must be read for ever, and be refused by the one before."""
    first = replace(plan_event(None, plan(NAME, "r", 0, 0), position(wide=True)), nonce="first")
    before, body = recorded(first, None)
    columns = {"name": NAME, "seq": 1, "kind": "commit", "nonce": "second"}
    rows = {0: {**columns, "seq": 0, "kind": "plan", "nonce": "first", "body": body}}
    stored = {**columns, "body": GOLDEN_BODY}
    for known in ({}, {NAME: before}):
        (event,) = rebuilt([stored], lambda keys: [rows[s] for _, s in keys], known, at_once=True)
        assert event.state.position == position(5, wide=True)
        _, again = recorded(replace(event, layers=()), before)
        assert json.loads(zlib.decompress(again)) == GOLDEN
    assert CHANGE_VERSION == GOLDEN["version"] > VERSION_TAKEN_BEFORE
    boundary = replace(before, name="at", nonce="first")
    layers = tuple(replace(layer, name="at") for layer in before.layers)
    boundary = replace(boundary, layers=layers)
    upon = {**GOLDEN, "version": EVENT_VERSION, "state": {**GOLDEN["state"], "position": UPON}}
    stored = {**columns, "seq": 0, "body": zlib.compress(json.dumps(upon).encode())}
    (event,) = rebuilt([stored], lambda keys: [], {"at": boundary}, at_once=True)
    assert event.state.position == position(5, wide=True)
    _, again = recorded(replace(event, layers=(), upon=boundary), None)
    assert json.loads(zlib.decompress(again)) == upon


def test_events_have_whole_positions_and_records_what_changed() -> None:
    store, records = filled()
    assert content(records[0])["version"] == 1
    assert all(content(records[s])["version"] == 3 for s in range(1, 16))
    for event in store.history(NAME):
        reached = position((event.sequence + 1) // 2 * 5, wide=True)
        assert event.state.position == reached
        assert (event.receipt is None) == (event.kind is EventKind.PLAN)
        if event.receipt is not None:
            assert event.receipt.position == reached.offsets
    others = [len(record["body"]) for record in records.values()][1:]
    assert max(others) < len(records[0]["body"]) / 3


def test_records_of_ten_thousand_places_have_what_changed() -> None:
    offsets = {(p, b): 10**6 * p + 7919 * b for p in range(1, 626) for b in range(16)}
    times = {place: 1_760_000_000_000 + offset % 86_400_000 for place, offset in offsets.items()}
    wide = replace(position(), offsets=offsets, commit_ms=times)
    head, first = recorded(plan_event(None, plan(NAME, "run-0", 0, 9, 2), wide), None)
    sizes = []
    for number in range(1, 33):
        assert head.state.pending is not None
        done = commit_event(head, receipt(head.state.pending), {(None, 0): 5 * number})
        head, body = recorded(done, head)
        sizes.append(len(body))
        start = number * 9
        assert head.state.position is not None
        drawn = plan_event(head, plan(NAME, f"r{number}", start, start + 9), head.state.position)
        head, body = recorded(drawn, head)
        sizes.append(len(body))
    assert len(first) > 10_000
    assert max(sizes) < 1_000


def test_records_of_earlier_releases_go_on() -> None:
    """Whole records, with and without a generation; then an earlier release adds one again."""
    store, records = filled(2)
    store.reset(NAME, position(40, wide=True))
    log_of(store).rewrite(NAME, lambda event: event)
    assert content(records[4])["version"] == 2
    step(store, NAME, "run-5", wide=True)
    head = store.require(NAME)
    assert content(records[head.sequence])["state"]["position"]["on"] == [head.sequence - 2]
    records[head.sequence]["body"] = head.body()
    step(store, NAME, "run-6", wide=True)
    assert store.require(NAME).state.position == position(50, wide=True)


@pytest.mark.parametrize("damage", ["missing", "exchanged", "sums"])
@pytest.mark.parametrize("pending", [False, True])
def test_a_history_with_a_hole_is_an_error_that_a_reset_mends(damage: str, pending: bool) -> None:
    store, records = filled(7)
    if pending:
        take(store, NAME, "run-7", wide=True)
    head = store.require(NAME)
    base = head.layers[-1].on[-1][1]
    if damage == "missing":
        del records[base]
    elif damage == "exchanged":
        records[base]["nonce"] = "another"
    else:
        changed = content(records[base])
        changed["state"]["position"]["change"]["moved"][0][1] = [1000, 1001]
        records[base]["body"] = zlib.compress(json.dumps(changed).encode())
    for newest in (store.require(NAME), next(iter(store.history(NAME)))):
        assert newest.kind is head.kind, "a history can be looked at"
        assert newest.state.position is not None
        assert newest.state.position.table == TABLE
        with pytest.raises(CheckpointHistoryError, match="reset") as found:
            len(newest.state.position.offsets)
        assert (found.value.name, found.value.sequence) == (NAME, head.sequence)
    with pytest.raises(CheckpointHistoryError):
        store.retire(NAME, with_pending=True)
    if pending:
        with pytest.raises(PendingPlanError):
            store.reset(NAME, position(30, wide=True))
    made = store.reset(NAME, position(30, wide=True), "looked at the sink", abandon_pending=True)
    assert (made.sequence, made.state.pending) == (head.sequence + 1, None)
    assert store.plan_of(NAME, "run-7", made) is None
    assert step(store, NAME, "run-8").ranges[0].start == 30
    assert store.require(NAME).state.position == position(35, wide=True)


def test_large_checkpoints_in_every_store(open_store: Opener, name: str) -> None:
    store, other = open_store(), open_store()
    for number in range(10):
        step((store, other)[number % 2], name, f"run-{number}", wide=True)
    made = take(store, name, "run-10")
    other.adopt(name, "run-11")
    other.abandon(name)
    store.retire(name)
    store.reset(name, position(7, wide=True))
    step(store, name, "run-12")
    fresh = open_store()
    assert fresh.require(name).state.position == position(12, wide=True)
    assert fresh.heads([name, "nobody"])[name] == store.heads([name], fresh.heads([name]))[name]
    history = list(open_store().history(name))[::-1]
    expected = [(s + 1) // 2 * 5 for s in range(21)] + [50, 50, 50, 7, 7, 12]
    assert [e.state.position for e in history] == [position(at, wide=True) for at in expected]
    assert open_store().plan_of(name, "run-4", fresh.head(name)) is None, "it was reset"
    assert made.begin == position(50, wide=True).offsets


def test_compaction_begins_with_a_whole_position() -> None:
    source, _ = filled()
    events = list(source.history(NAME))
    target = CheckpointStore(MemoryEventLog())
    assert compact(source, target, keep=5) == [NAME]
    records = log_of(target).records[NAME]
    assert sorted(records) == [11, 12, 13, 14, 15]
    assert [content(dict(records[s]))["version"] for s in sorted(records)] == [1, 3, 3, 3, 3]
    moved = [event.to_json() for event in target.history(NAME)]
    assert moved == [event.to_json() for event in events[:5]]
    assert step(target, NAME, "run-8", wide=True).sequence == 16


def boundaries(store: CheckpointStore, count: int) -> list[Event]:
    """The boundaries of some times, each upon the one before it, and the intervals between them."""
    made: list[Event] = []
    for number in range(count):
        upon = made[-1] if made else None
        place = intervals.position(number)
        made.append(store.set_first(intervals.boundary(number), place, {"at_ms": number}, upon))
        if upon is None:
            continue
        begin = intervals.position(number - 1)
        planned = store.try_plan(None, intervals.plan(number), begin, upon=upon)
        assert planned is not None
        store.commit(planned, receipt(planned), {(3, 0): 1_760_000_000_000}, retire=True)
    return made


def test_intervals_in_every_store(open_store: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    # Tests of one kind share a store.
    named = partial("{}/{}".format, next(_names))
    monkeypatch.setattr(intervals, "boundary", lambda n: f"\x1fat\x1f{named(n)}")
    original = intervals.plan
    monkeypatch.setattr(intervals, "plan", lambda n: replace(original(n), name=named(f"[{n})")))
    count = 20
    boundaries(open_store(), count)
    fresh = open_store()
    for number in range(1, count):
        boundary = fresh.require(intervals.boundary(number))
        assert boundary.state.position == intervals.position(number)
        assert boundary.layers[-1].whole is None
        done = open_store().require(named(f"[{number})"))
        assert done.state.position is not None
        assert done.state.position.offsets == intervals.position(number).offsets
        assert done.layers[-1].is_upon_others
        (planned,) = fresh.log.events(done.name, 0, 1)
        assert planned.state.position == intervals.position(number - 1)
        assert len(planned.layers) <= 1 + count.bit_length()


def test_records_of_intervals_have_what_changed() -> None:
    store = CheckpointStore(MemoryEventLog())
    boundaries(store, 40)
    records = log_of(store).records
    sizes = {(n, s): len(r["body"]) for n, of in records.items() for s, r in of.items()}
    first = sizes.pop((intervals.boundary(0), 0))
    whole = store.require(intervals.boundary(39)).body()
    assert len(sizes) == 39 * 3
    # A plan and a receipt name the ranges and the columns, too.
    assert max(size for (name, _), size in sizes.items() if name.startswith(RESERVED)) < 300
    assert min(first, len(whole)) > 350
    versions = {content(dict(r))["version"] for of in records.values() for r in of.values()}
    assert versions == {1, 4}


def test_an_interval_without_its_boundary_is_an_error() -> None:
    store = CheckpointStore(MemoryEventLog())
    boundaries(store, 4)
    name = intervals.plan(3).name
    key = store.require(name).layers[0].key
    del log_of(store).records[key[0]][key[1]]
    head = store.require(name)
    assert head.state.position is not None
    with pytest.raises(CheckpointHistoryError, match="reset"):
        len(head.state.position.offsets)


def test_compaction_takes_intervals() -> None:
    source = CheckpointStore(MemoryEventLog())
    boundaries(source, 6)
    target = CheckpointStore(MemoryEventLog())
    compact(source, target)
    for number in range(6):
        found = target.require(intervals.boundary(number))
        assert found.state.position == intervals.position(number)
    after = intervals.position(6)
    made = target.set_first(intervals.boundary(6), after, {}, found)
    assert made.layers[-1].is_upon_others
    assert target.require(intervals.boundary(6)).state.position == after
