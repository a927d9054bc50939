"""Curves: planning over positions and partitions, and sensors that wait.

`python -m benchmarks.growth.fit FILE` makes models of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial

from benchmarks.child import in_child
from benchmarks.growth.data import (
    COMMIT_MS_MAX,
    PLAN_MB_MAX,
    PLAN_MS_MAX,
    SENSORS_CPU_MAX,
    SIZES,
    Sizes,
)
from benchmarks.growth.planning import STORE
from benchmarks.harness import Case, Measured
from benchmarks.incremental.wide import WideTable
from benchmarks.orchestration.waiting import Crowd, one_bucket_tables
from benchmarks.place import Place, connected, own_database
from fluss_client import FlussConnection, TablePath
from fluss_orchestrate.core.checkpoints import FlussCheckpointStore

ALSO = {"commit ms": "commit_ms", "read ms": "read_ms", "MB": "plan_mb", "bytes": "record_bytes"}
"""What stands beside the time of a plan: the commit, reading the checkpoint in a new process, by
how much that process grows as it plans, and the record of the commit."""


@contextmanager
def cases(place: Place) -> Iterator[Sequence[Case]]:
    """Tables in an embedded directory and on the cluster, each made when its case runs."""
    sizes = SIZES[place.scale]
    local = f"embedded:{place.folder()}"
    with (
        connected(local) as embedded,
        own_database(embedded, "growth") as database,
        connected(place.bootstrap) as cluster,
        own_database(cluster, "growth"),
    ):
        here = Planning(local, embedded, database, sizes.runs)
        there = Planning(place.bootstrap, cluster, database, sizes.runs)
        yield [
            *(here.case(*shape, "embedded") for shape in sizes.positions),
            *here.limits(*sizes.positions[-1]),
            *(there.case(1, partitions, "cluster") for partitions in sizes.partitions),
            *_sensors(local, embedded, database, sizes),
        ]


class Planning:
    """Increments of wide tables in one place."""

    def __init__(self, address: str, connection: FlussConnection, database: str, runs: int) -> None:
        self._address = address
        self._connection = connection
        self._database = database
        self._runs = runs
        self._made = cache(self._make)

    def case(self, buckets: int, partitions: int, where: str) -> Case:
        """The time of a plan that finds new rows in one partition."""

        def plan() -> Measured:
            found = self._planned(buckets, partitions)
            return Measured(found["plan_ms"], also={n: found[key] for n, key in ALSO.items()})

        what = f"{buckets * max(1, partitions):,} positions"
        if where == "cluster":
            what = f"{partitions:,} partitions"
        return Case(
            f"plan, {what}, {where}",
            "ms",
            {"ours": plan},
            bound=PLAN_MS_MAX,
            lower_is_better=True,
        )

    def limits(self, buckets: int, partitions: int) -> Iterator[Case]:
        """What the largest table may cost beside the time of the plan."""
        positions = f"{buckets * max(1, partitions):,} positions, embedded"
        for what, key, unit, bound in (
            ("commit", "commit_ms", "ms", COMMIT_MS_MAX),
            ("memory of a plan", "plan_mb", "MB", PLAN_MB_MAX),
        ):
            subject = partial(self._figure, buckets, partitions, key)
            name = f"{what}, {positions}"
            yield Case(name, unit, {"ours": subject}, bound=bound, lower_is_better=True)

    def _figure(self, buckets: int, partitions: int, key: str) -> Measured:
        return Measured(self._planned(buckets, partitions)[key])

    def _planned(self, buckets: int, partitions: int) -> dict[str, float]:
        table = self._made(buckets, partitions)
        return in_child(
            "benchmarks.growth.planning",
            *(self._address, self._database, table),
            *(str(buckets), str(partitions), str(self._runs)),
        )

    def _make(self, buckets: int, partitions: int) -> str:
        store = FlussCheckpointStore(self._connection, self._database, STORE, replicas=1)
        table = f"wide_{buckets}_{partitions}"
        path = TablePath(self._database, table)
        WideTable(self._connection, store, path, buckets, partitions, rows=2)
        return table


def _sensors(
    address: str, connection: FlussConnection, database: str, sizes: Sizes
) -> Iterator[Case]:
    tables = cache(partial(one_bucket_tables, connection, database, sizes.tables))

    def crowd(count: int) -> Callable[[], Measured]:
        return lambda: Crowd(
            address, connection, tables(), count, sizes.watch_s, wakes=2
        ).on_poller()

    for count in sizes.waiters:
        yield Case(
            f"{count:,} sensors wait, embedded, CPU",
            "% of a core",
            {"ours": crowd(count)},
            bound=SENSORS_CPU_MAX,
            lower_is_better=True,
        )
