"""Runs that are killed at each stage, in the long form while requests to the store fail, too."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import fluss_client as fluss
from fluss_client.errors import StorageError
from tests.faults.recording import KILLS_PER_PART, FaultRecorder
from tests.fix_storage import FaultyStore
from tests.orchestrate.incremental.test_crashes import KILLED, Crashers
from tests.storage.conftest import write

T = TypeVar("T")
SEED = 20261118
KILLS_LONG = 100
FAILED = 1
FAILING = 0.05
ATTEMPTS_MAX = 20
ROWS_PER_RUN = 30


class Killing:
    """Runs over one table that are killed, and what they were to bring.

    Args:
        table: The table; it gets rows before each run.
        crashers: The process that forks the runs.
        store: The proxy that they read and write through.
        spec: What a run does.
        part: The part of the long form.
        long_form: Whether requests to the store fail. Then runs may fail, and are repeated.
    """

    def __init__(
        self,
        table: fluss.FlussTable,
        crashers: Crashers,
        store: FaultyStore,
        spec: dict[str, Any],
        part: int,
        long_form: bool,
    ) -> None:
        self._table = table
        self._crashers = crashers
        self._store = store
        self._spec = spec
        self._long_form = long_form
        self.seed = SEED + part
        self.kills: Counter[str] = Counter()
        self.count = 0

    def run(self, stages: Sequence[str], short: Sequence[str]) -> None:
        """Kill runs, each stage in its turn, and let one end well.

        Args:
            stages: The stages of the long form.
            short: Those of the short one, one kill each.
        """
        chance = random.Random(self.seed)
        self._store.chance = FAILING if self._long_form else 0.0
        codes = (0, KILLED, FAILED) if self._long_form else (0, KILLED)
        chosen = stages if self._long_form else short
        total = KILLS_PER_PART if self._long_form else len(short)
        number = 0
        while self.kills.total() < total:
            self._write()
            stage = chosen[self.kills.total() % len(chosen)]
            # A killed run is tried again under its key, or left to the next one to adopt.
            number += chance.random() < 0.6
            run = {"run_key": f"run-{number}", "stage": stage, "seed": chance.random()}
            code = self._crashers.run(self._spec | run)
            assert code in codes, stage
            self.kills[stage] += code == KILLED
        for run_key in ("last", "very last"):
            last = self._spec | {"run_key": run_key, "stage": "", "seed": 0}
            assert any(self._crashers.run(last) == 0 for _ in range(ATTEMPTS_MAX)), run_key

    def _write(self) -> None:
        write(self._table, self.count, self.count + ROWS_PER_RUN)
        self.count += ROWS_PER_RUN

    def judge(self, read_ids: Callable[[], list[int]], record: FaultRecorder, fault: str) -> None:
        """Every row is there once; a read that the store let fail is repeated."""
        found = Counter(repeated(read_ids))
        failed = self._store.struck.total()
        record(
            fault,
            self.kills.total(),
            lost=len(set(range(self.count)) - found.keys()),
            doubled=found.total() - len(found),
            seed=self.seed,
            stages=self.kills,
            figures={"requests that failed": str(failed)} if failed else {},
        )
        assert sorted(found.elements()) == list(range(self.count))


def repeated(read: Callable[[], T]) -> T:
    """Read again as long as the store lets it fail."""
    for _ in range(ATTEMPTS_MAX - 1):
        try:
            return read()
        except StorageError:
            continue
    return read()
