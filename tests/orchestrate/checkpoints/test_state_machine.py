"""Random histories of many runs against a model that is too simple to be wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fluss_orchestrate.core.checkpoints import CheckpointStore, Event, EventKind
from fluss_orchestrate.core.errors import (
    CheckpointConflictError,
    CheckpointError,
    CheckpointNotFoundError,
    CheckpointRetiredError,
    PendingPlanError,
)
from fluss_orchestrate.core.plan import ScanPlan
from tests.orchestrate.checkpoints.memory_log import MemoryEventLog
from tests.orchestrate.checkpoints.plans import plan, position, receipt

RUNS = ("a", "b", "c")
Opener = Callable[[], CheckpointStore]


@dataclass
class Model:
    """One bucket's worth of truth."""

    offset: int | None = None
    pending: ScanPlan | None = None
    retired: bool = False
    of_run: dict[str, ScanPlan] = field(default_factory=dict)
    committed: list[ScanPlan] = field(default_factory=list)
    abandoned: list[ScanPlan] = field(default_factory=list)
    events: int = 0
    generation: int | None = None
    """The sequence of the reset that began it."""


steps = st.lists(
    st.tuples(
        st.sampled_from(("plan", "commit", "commit old", "adopt", "abandon", "reset", "retire")),
        st.sampled_from(RUNS),
        st.integers(0, 3),
    ),
    max_size=25,
)


class Machine:
    """Does the same to a store and to the model, and compares what comes out."""

    def __init__(self, open_store: Opener, name: str, wide: bool = False) -> None:
        self.stores = [open_store(), open_store()]
        self.name = name
        self.wide = wide
        self.model = Model()
        self.known: list[ScanPlan] = []

    def do(self, what: str, run: str, number: int) -> None:
        store = self.stores[number % 2]
        {
            "plan": self.plan,
            "commit": self.commit,
            "commit old": self.commit_old,
            "adopt": self.adopt,
            "abandon": self.abandon,
            "reset": self.reset,
            "retire": self.retire,
        }[what](store, run, number)
        self.check()

    def plan(self, store: CheckpointStore, run: str, number: int) -> None:
        model = self.model
        head = store.head(self.name)
        found = store.plan_of(self.name, run, head)
        assert found == model.of_run.get(run)
        if found is not None:
            return
        start = model.offset or 0
        draft = plan(self.name, run, start, start + number, 1)
        try:
            made = store.try_plan(head, draft, position(start, 1, wide=self.wide))
        except PendingPlanError:
            assert model.pending is not None
            assert not model.retired
            return
        except CheckpointRetiredError:
            assert model.retired
            return
        assert made is not None
        assert model.pending is None
        assert not model.retired
        assert made.sequence == model.events
        model.offset = start
        model.pending = model.of_run[run] = made
        model.events += 1
        self.known.append(made)

    def commit(self, store: CheckpointStore, run: str, number: int) -> None:
        if self.model.pending is not None:
            self._commit(store, self.model.pending)

    def commit_old(self, store: CheckpointStore, run: str, number: int) -> None:
        if self.known:
            self._commit(store, self.known[-1 - number % len(self.known)])

    def _commit(self, store: CheckpointStore, wanted: ScanPlan) -> None:
        model = self.model
        try:
            done = store.commit(wanted, receipt(wanted))
        except CheckpointConflictError:
            assert wanted in model.abandoned
            return
        except CheckpointRetiredError:
            assert model.retired
            return
        assert done.plan_id == wanted.plan_id
        assert done.run_key == wanted.run_key
        if wanted == model.pending:
            model.offset = (model.offset or 0) + wanted.offsets
            model.pending = None
            model.committed.append(wanted)
            model.events += 1
        else:
            assert wanted in model.committed

    def adopt(self, store: CheckpointStore, run: str, number: int) -> None:
        model = self.model
        before = store.head(self.name)
        try:
            assert store.adopt(self.name, run) == model.pending
        except CheckpointError:
            assert model.pending is None
            return
        assert model.pending is not None
        assert before is not None
        if run not in (model.pending.run_key, before.state.adopted_by):
            model.events += 1

    def abandon(self, store: CheckpointStore, run: str, number: int) -> None:
        model = self.model
        try:
            store.abandon(self.name)
        except CheckpointError:
            assert model.pending is None
            return
        assert model.pending is not None
        del model.of_run[model.pending.run_key]
        model.abandoned.append(model.pending)
        model.pending = None
        model.events += 1

    def reset(self, store: CheckpointStore, run: str, number: int) -> None:
        model = self.model
        try:
            store.reset(self.name, position(number, 1, wide=self.wide))
        except PendingPlanError:
            assert model.pending is not None
            return
        assert model.pending is None
        model.offset, model.retired = number, False
        if model.events:
            # A new generation: run keys are free again, and plans get other ids.
            model.generation = model.events
            model.of_run.clear()
        model.events += 1

    def retire(self, store: CheckpointStore, run: str, number: int) -> None:
        model = self.model
        try:
            store.retire(self.name)
        except PendingPlanError:
            assert model.pending is not None
            return
        except CheckpointNotFoundError:
            assert model.events == 0
            return
        if not model.retired:
            model.retired = True
            model.events += 1

    def check(self) -> None:
        for store in self.stores:
            head = store.head(self.name)
            if head is None:
                assert self.model.events == 0
                continue
            assert head.sequence == self.model.events - 1
            assert head.state.pending == self.model.pending
            assert head.state.retired == self.model.retired
            found = head.state.generation
            assert (None if found is None else found.sequence) == self.model.generation
            assert self.model.offset is not None
            assert head.state.position == position(self.model.offset, 1, wide=self.wide)

    def finish(self) -> None:
        if self.model.events:
            events = list(self.stores[0].history(self.name, 1000))
            check_history(events[::-1])


def check_history(events: list[Event]) -> None:
    """What must hold of any history, whoever wrote it."""
    assert [event.sequence for event in events] == list(range(len(events)))
    assert len({event.nonce for event in events}) == len(events)
    offset = None
    open_plan = None
    made: dict[str, object] = {}
    for event in events:
        assert event.state.position is not None
        now = event.state.position.offsets[None, 0]
        if event.kind is EventKind.PLAN:
            assert open_plan is None
            open_plan = event.state.pending
            assert open_plan is not None
            assert open_plan.generation == event.state.generation
            assert made.setdefault(open_plan.plan_id, open_plan.generation) == open_plan.generation
            assert all(r.start == (offset or 0) for r in open_plan.ranges)
        elif event.kind is EventKind.COMMIT:
            assert open_plan is not None
            assert now == (offset or 0) + open_plan.offsets
            open_plan = None
        elif event.kind is EventKind.ABANDON:
            assert now == offset
            open_plan = None
        offset = now


@settings(max_examples=300, deadline=None)
@given(steps, st.booleans())
def test_any_history_fits_the_model(moves: list[tuple[str, str, int]], wide: bool) -> None:
    log = MemoryEventLog()
    machine = Machine(lambda: CheckpointStore(log), "orders", wide)
    for move in moves:
        machine.do(*move)
    machine.finish()


@pytest.mark.timeout(300)
def test_random_histories_in_every_store(open_store: Opener, name: str, long_form: bool) -> None:
    count = 0

    @settings(
        max_examples=100 if long_form else 8,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(steps, st.booleans())
    def play(moves: list[tuple[str, str, int]], wide: bool) -> None:
        nonlocal count
        count += 1
        machine = Machine(open_store, f"{name}-{count}", wide)
        for move in moves:
            machine.do(*move)
        machine.finish()
        for store in machine.stores:
            store.close()

    play()
