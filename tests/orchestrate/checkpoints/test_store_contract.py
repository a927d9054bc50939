"""What every store promises: one history per name, one plan per run key, one winner per race."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from fluss_client.errors import ConfigError
from fluss_orchestrate.core.checkpoints import CheckpointStore, EventKind, SqlCheckpointStore
from fluss_orchestrate.core.checkpoints.events import NAME_LENGTH_MAX
from fluss_orchestrate.core.checkpoints.transitions import plan_event
from fluss_orchestrate.core.errors import (
    CheckpointConflictError,
    CheckpointNotFoundError,
    CheckpointRetiredError,
    CheckpointStoreError,
    PendingPlanError,
)
from tests.orchestrate.checkpoints.plans import plan, position, receipt, step, take

Opener = Callable[[], CheckpointStore]


def test_an_unknown_name_has_nothing(store: CheckpointStore) -> None:
    assert store.head("nobody") is None
    assert "nobody" not in store.names()
    assert store.plan_of("nobody", "r", None) is None
    with pytest.raises(CheckpointNotFoundError, match="nobody"):
        store.require("nobody")
    with pytest.raises(CheckpointNotFoundError):
        store.abandon("nobody")


def test_plan_then_commit_moves_the_position(open_store: Opener, name: str) -> None:
    store = open_store()
    made = take(store, name, "run-1", 5)
    assert made.sequence == 0
    head = open_store().require(name)
    assert head.kind is EventKind.PLAN
    assert head.state.pending == made
    assert head.state.position == position(0)
    times = {(None, 0): 1234, (None, 1): 5678}
    assert store.commit(made, receipt(made), times).rows == 10
    head = open_store().require(name)
    assert (head.kind, head.sequence, head.state.pending) == (EventKind.COMMIT, 1, None)
    assert head.state.position is not None
    assert head.state.position.offsets == {(None, 0): 5, (None, 1): 5}
    assert head.state.position.commit_ms == times
    assert head.receipt is not None
    assert head.receipt.plan_id == made.plan_id
    assert name in open_store().names()


def test_names_do_not_meet(store: CheckpointStore, name: str) -> None:
    sizes = {name: 5, f"{name}b": 7, f"{name}/b ü": 9}
    for one, size in sizes.items():
        step(store, one, "run", size)
    assert sizes.keys() <= set(store.names())
    for one, size in sizes.items():
        reached = store.require(one).state.position
        assert reached is not None
        assert reached.offsets[None, 0] == size


@pytest.mark.parametrize("wrong", ["", "a\x1fb", "x" * 501, "line\nbreak"])
def test_names_that_cannot_be(store: CheckpointStore, wrong: str) -> None:
    with pytest.raises(ConfigError, match="checkpoint"):
        store.try_plan(None, plan(wrong, "run", 0, 1), position())


def test_the_same_run_key_gets_the_same_plan_back(open_store: Opener, name: str) -> None:
    store = open_store()
    first = take(store, name, "run-1")
    assert store.plan_of(name, "run-1", store.head(name)) == first
    store.commit(first, receipt(first))
    second = step(store, name, "run-2")
    for n in range(3, 9):
        step(store, name, f"run-{n}")
    other = open_store()
    head = other.head(name)
    assert other.plan_of(name, "run-1", head) == first
    assert other.plan_of(name, "run-2", head) == second
    assert other.plan_of(name, "run-9", head) is None
    assert other.plan_of(name, "run-", head) is None


def test_an_abandoned_plan_frees_its_run_key(open_store: Opener, name: str) -> None:
    store = open_store()
    first = take(store, name, "run-1", 5)
    store.abandon(name, first.plan_id, "it reads a dropped partition")
    assert store.plan_of(name, "run-1", store.head(name)) is None
    assert open_store().require(name).details["reason"] == "it reads a dropped partition"
    with pytest.raises(CheckpointConflictError, match="given up"):
        store.commit(first, receipt(first))
    second = take(store, name, "run-1", 8)
    assert second.plan_id != first.plan_id
    other = open_store()
    assert other.plan_of(name, "run-1", other.head(name)) == second
    store.commit(second, receipt(second))
    step(store, name, "run-2")
    assert other.plan_of(name, "run-1", other.head(name)) == second
    third = take(store, name, "run-3")
    store.abandon(name)
    step(store, name, "run-4")
    assert other.plan_of(name, "run-3", other.head(name)) is None
    with pytest.raises(CheckpointConflictError):
        store.commit(third, receipt(third))


def test_a_pending_plan_is_never_planned_over(store: CheckpointStore, name: str) -> None:
    first = take(store, name, "run-1")
    head = store.require(name)
    with pytest.raises(PendingPlanError) as caught:
        store.try_plan(head, plan(name, "run-2", 0, 9), position())
    assert (caught.value.run_key, caught.value.plan_id) == ("run-1", first.plan_id)
    with pytest.raises(PendingPlanError):
        store.reset(name, position(3))
    with pytest.raises(PendingPlanError):
        store.retire(name)
    assert store.require(name).state.pending == first


def test_a_commit_counts_once(open_store: Opener, name: str) -> None:
    store, slow = open_store(), open_store()
    made = take(store, name, "run-1")
    done = store.commit(made, receipt(made))
    again = slow.commit(made, replace(receipt(made), rows=999))
    assert again.rows == done.rows
    step(store, name, "run-2")
    assert slow.commit(made, receipt(made)).rows == done.rows
    assert store.require(name).sequence == 3


def test_a_commit_of_an_unknown_plan_is_refused(store: CheckpointStore, name: str) -> None:
    step(store, name, "run-1")
    for strange in (plan(name, "x", 5, 9), plan("nobody", "x", 0, 1)):
        with pytest.raises(CheckpointConflictError, match="knows no plan") as caught:
            store.commit(replace(strange, sequence=0), receipt(strange))
        assert caught.value.plan_id == strange.plan_id
    made = take(store, name, "run-2")
    other = replace(made, ranges=made.ranges[:1])
    with pytest.raises(CheckpointConflictError):
        store.commit(other, receipt(other))
    assert store.require(name).state.pending == made


def test_equal_empty_plans_are_told_apart(store: CheckpointStore, name: str) -> None:
    empty = take(store, name, "run-1", 0)
    store.commit(empty, receipt(empty))
    other = take(store, name, "run-2", 0)
    assert other.plan_id == empty.plan_id
    assert store.commit(empty, receipt(empty)).run_key == "run-1"
    assert store.require(name).state.pending == other


def test_adopting_is_recorded_and_both_may_commit(open_store: Opener, name: str) -> None:
    store, other = open_store(), open_store()
    made = take(store, name, "run-1")
    assert other.adopt(name, "run-2") == made
    assert other.adopt(name, "run-2") == made
    head = store.require(name)
    assert (head.kind, head.run_key, head.state.adopted_by) == (EventKind.ADOPT, "run-2", "run-2")
    assert head.sequence == 1
    done = other.commit(made, receipt(made))
    assert store.commit(made, receipt(made)) == done.repeated()
    assert store.plan_of(name, "run-1", store.head(name)) == made
    assert store.plan_of(name, "run-2", store.head(name)) is None
    with pytest.raises(CheckpointConflictError, match="no pending plan"):
        store.adopt(name, "run-3")


def test_what_a_store_remembers_may_be_old(open_store: Opener, name: str) -> None:
    """Others may adopt, abandon and plan between a look and the next step upon it."""
    store, other = open_store(), open_store()
    step(store, name, "run-0")

    assert store.plan_of(name, "run-1", store.head(name)) is None
    made = take(store, name, "run-1")
    other.adopt(name, "run-2")
    assert store.commit(made, receipt(made)).plan_id == made.plan_id
    assert store.require(name).sequence == 4

    assert store.plan_of(name, "run-3", store.head(name)) is None
    take(other, name, "run-3", 7)
    other.abandon(name)
    again = take(store, name, "run-3")
    store.commit(again, receipt(again))

    step(other, name, "run-4")
    fresh = open_store()
    head = fresh.head(name)
    assert fresh.plan_of(name, "run-1", head) == made
    assert fresh.plan_of(name, "run-2", head) is None
    assert fresh.plan_of(name, "run-3", head) == again


def test_reset_and_retire_are_recorded(open_store: Opener, name: str) -> None:
    store = open_store()
    step(store, name, "run-1")
    store.reset(name, position(2), "the sink was emptied")
    head = open_store().require(name)
    assert (head.kind, head.details["reason"]) == (EventKind.RESET, "the sink was emptied")
    assert head.state.position == position(2)
    store.retire(name, "no longer needed")
    store.retire(name)
    assert store.require(name).sequence == 3
    with pytest.raises(CheckpointRetiredError, match="reset"):
        take(store, name, "run-2")
    store.reset(name, position(0))
    assert step(store, name, "run-2").ranges[0].start == 0


def test_a_reset_may_abandon_what_is_pending(store: CheckpointStore, name: str) -> None:
    made = take(store, name, "run-1")
    store.reset(name, position(50), "skip it", abandon_pending=True)
    kinds = [event.kind for event in store.history(name)]
    assert kinds == [EventKind.RESET, EventKind.ABANDON, EventKind.PLAN]
    with pytest.raises(CheckpointConflictError):
        store.commit(made, receipt(made))


def test_abandon_wants_the_right_plan(store: CheckpointStore, name: str) -> None:
    take(store, name, "run-1")
    with pytest.raises(CheckpointConflictError, match="not the pending one"):
        store.abandon(name, "0123")
    store.abandon(name)
    with pytest.raises(CheckpointConflictError, match="no pending plan"):
        store.abandon(name)


def test_the_head_is_found_after_a_long_history(open_store: Opener, name: str) -> None:
    store = open_store()
    for n in range(20):
        step(store, name, f"run-{n}")
        assert open_store().require(name).sequence == 2 * n + 1
    history = list(store.history(name, 7))
    assert [event.sequence for event in history] == list(range(39, 32, -1))


def test_a_stale_head_loses(open_store: Opener, name: str) -> None:
    store, other = open_store(), open_store()
    step(store, name, "run-0")
    stale = other.head(name)
    made = take(store, name, "run-1")
    late = plan(name, "run-2", 5, 7)
    assert other.try_plan(stale, late, position(5)) is None
    assert other.require(name).state.pending == made
    assert not other.log.append(plan_event(stale, late, position(5)), stale)


def test_large_positions_are_kept_whole(open_store: Opener, name: str) -> None:
    store = open_store()
    places = {(p, b): p * 1_000_003 + b * 7919 for p in range(100) for b in range(16)}
    times = {place: 1_700_000_000_000 + offset for place, offset in places.items()}
    names = {p: f"2026-01-{p:03}" for p in range(100)}
    begins = replace(position(), offsets=places, commit_ms=times, partitions=names)
    made = store.try_plan(None, plan(name, "run-1", 0, 0), begins)
    assert made is not None
    store.commit(made, receipt(made))
    assert open_store().require(name).state.position == begins
    assert [e.state.position for e in open_store().history(name)] == [begins, begins]


def test_threads_of_one_process_race_for_one_sequence(open_store: Opener, name: str) -> None:
    stores = [open_store() for _ in range(4)]
    step(stores[0], name, "run-0")
    heads = [store.head(name) for store in stores]
    won: list[str] = []
    gate = threading.Barrier(len(stores))

    def race(at: int) -> None:
        gate.wait()
        made = stores[at].try_plan(heads[at], plan(name, f"r{at}", 5, 6 + at), position(5))
        if made is not None:
            won.append(made.run_key)

    threads = [threading.Thread(target=race, args=(at,)) for at in range(len(stores))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    pending = stores[0].require(name).state.pending
    assert pending is not None
    assert pending.run_key == won[0]


def test_a_database_that_does_not_answer_is_a_sentence_without_the_password() -> None:
    store = SqlCheckpointStore("postgresql+psycopg2://me:hunter2@127.0.0.1:1/checkpoints")
    with pytest.raises(CheckpointStoreError, match="checkpoints does not answer") as found:
        store.head("orders")
    assert found.value.is_retriable
    assert "hunter2" not in str(found.value)


def test_names_and_run_keys_of_any_length_are_stored_or_refused(sql_url: str) -> None:
    """PostgreSQL's indexes hold 2,704 bytes: what is longer is refused before anything is read."""
    noise = random.Random(1)
    name = "".join(noise.choice("\U0001f600\U0001f601\U0001f602") for _ in range(NAME_LENGTH_MAX))
    with SqlCheckpointStore(sql_url) as store:
        assert store.try_plan(None, plan(name, "k" * 300, 0, 5), position(0)) is not None
        found = store.require(name)
        assert found.name == name
        long = plan("short", "".join(chr(noise.randrange(33, 126)) for _ in range(4000)), 0, 5)
        if sql_url.startswith("sqlite"):
            assert store.try_plan(None, long, position(0)) is not None
        else:
            with pytest.raises(ConfigError, match="too long"):
                store.try_plan(None, long, position(0))
            assert store.head("short") is None
