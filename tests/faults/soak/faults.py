"""The faults of a soak: one at a time, chosen by a seed; each is over before the next one."""

from __future__ import annotations

import itertools
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import fluss_client as fluss
from fluss_client.engine import backend_of, run_blocking
from fluss_client.model.table import TableBucket
from fluss_client.testing import LocalCluster
from tests.contract.tables import done
from tests.faults.soak.places import BUCKETS, LOG
from tests.faults.soak.running import Program
from tests.fix_proxy import Fault, FaultyLines
from tests.waiting import let_pass, wait_until

DOWN_S = (0.2, 3.0)
STOPPED_S = (1.0, 15.0)
STOPPED_SHORT_S = (1.0, 2.0)
LINES_S = (2.0, 8.0)
CHANCE = 0.3
COORDINATOR = "coordinator"


class Faults:
    """Does something bad to the servers, the lines or the programs of a soak, and mends it."""

    def __init__(
        self,
        cluster: LocalCluster,
        direct: fluss.FlussConnection,
        lines: FaultyLines,
        programs: Sequence[Program],
        seed: int,
        *,
        short: bool = False,
    ) -> None:
        self.struck: Counter[str] = Counter()
        self._cluster = cluster
        self._direct = direct
        self._lines = lines
        self._random = random.Random(seed)
        # The short form has one with all that copies, tiers, reads and shows: it is hit.
        victims = programs[-1:] if short else self._random.sample(programs, len(programs))
        self._victims = itertools.cycle(victims)
        self._stopped_s = STOPPED_SHORT_S if short else STOPPED_S
        self._tablets = [name for name in cluster.info.pids if name.startswith("tablet-")]
        self._kinds: dict[str, Callable[[], None]] = {
            "tablet server killed": self._kill_tablet,
            "tablet server stopped": self._stop_tablet,
            "coordinator killed": self._kill_coordinator,
            "leader moved": self._move_leader,
            "own process killed": self._kill_program,
            "lines delayed": self._delay_lines,
            "lines cut": self._cut_lines,
        }

    def __iter__(self) -> Iterator[str]:
        """Names of faults without an end: each once in a random order, then again."""
        while True:
            yield from self._random.sample(sorted(self._kinds), len(self._kinds))

    def strike(self, kind: str) -> None:
        """Inject a fault, and return when all servers, lines and processes are there again."""
        self._kinds[kind]()
        self.struck[kind] += 1

    def _kill_tablet(self) -> None:
        self._kill(self._random.choice(self._tablets))

    def _kill_coordinator(self) -> None:
        self._kill(COORDINATOR)

    def _kill(self, server: str) -> None:
        self._cluster.kill(server)
        let_pass(self._random.uniform(*DOWN_S), "so long the server is down")
        self._cluster.start(server)

    def _stop_tablet(self) -> None:
        pid = self._cluster.info.pids[self._random.choice(self._tablets)]
        os.kill(pid, signal.SIGSTOP)
        try:
            let_pass(self._random.uniform(*self._stopped_s), "so long the server is stopped")
        finally:
            os.kill(pid, signal.SIGCONT)

    def _move_leader(self) -> None:
        """End a server in order, which hands its buckets over, and start it again."""
        bucket = self._random.randrange(BUCKETS)
        before = self._leader(bucket)
        name = f"tablet-{before}"
        os.kill(self._cluster.info.pids[name], signal.SIGTERM)
        wait_until(
            f"the end of {name}", lambda: self._cluster.status().servers[name].state != "running"
        )
        try:
            wait_until("another leader", lambda: self._leader(bucket) != before)
        finally:
            self._cluster.start(name)

    def _leader(self, bucket: int) -> int:
        backend = backend_of(self._direct)
        info = done(done(self._direct.get_admin()).get_table_info(LOG))
        place = TableBucket(info.table_id, bucket)
        run_blocking(backend.forget_location(info, place))
        return run_blocking(backend.locate(info, place))

    def _kill_program(self) -> None:
        program = next(self._victims)
        program.kill()
        program.start()

    def _delay_lines(self) -> None:
        self._lines.inject(
            *(Fault("delay", in_request=side, times=None, chance=CHANCE) for side in (True, False))
        )
        self._while_lines_fail()

    def _cut_lines(self) -> None:
        self._lines.cut()
        self._while_lines_fail()

    def _while_lines_fail(self) -> None:
        let_pass(self._random.uniform(*LINES_S), "so long the lines fail")
        self._lines.restore()
