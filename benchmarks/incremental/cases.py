"""The incremental job beside loops written by hand; empty runs; wide tables."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property, partial
from pathlib import Path

import fluss_client as fluss
from benchmarks.client.data import batches, nbytes
from benchmarks.client.tables import Tables
from benchmarks.harness import Case, Measured, Subject, milliseconds
from benchmarks.incremental import loops
from benchmarks.incremental.data import SIZES, Sizes
from benchmarks.incremental.wide import WideTable, planning, sinking
from benchmarks.place import Place, connected, own_database
from fluss_orchestrate import IncrementalScan, ParquetSink, run_increment
from fluss_orchestrate.core.checkpoints import FlussCheckpointStore

EMPTY_MS_MAX = {"embedded": 10.0, "cluster": 50.0}
PLAN_MS_MAX = 1_000.0


@contextmanager
def cases(place: Place) -> Iterator[Sequence[Case]]:
    """Tables on the cluster and in an embedded directory."""
    local = f"embedded:{place.folder()}"
    with (
        connected(place.bootstrap) as cluster,
        own_database(cluster, "incremental") as database,
        connected(local) as embedded,
        own_database(embedded, "incremental"),
    ):
        work = Work(place, Tables(cluster, database), database, SIZES[place.scale])
        connections = {"embedded": embedded, "cluster": cluster}
        yield [
            work.end_to_end(),
            *(work.empty(where, connection) for where, connection in connections.items()),
            *work.wide(cluster),
        ]


class Work:
    """What the cases share."""

    def __init__(self, place: Place, tables: Tables, database: str, sizes: Sizes) -> None:
        self._place = place
        self._tables = tables
        self._database = database
        self._sizes = sizes
        self._numbers = itertools.count()

    @cached_property
    def _filled(self) -> tuple[fluss.TablePath, float]:
        rows = batches(self._sizes.rows)
        path = self._tables.fill(self._tables.new(buckets=self._sizes.buckets), rows)
        return path, nbytes(rows)

    def _store(self, connection: fluss.FlussConnection) -> FlussCheckpointStore:
        store = FlussCheckpointStore(connection, self._database, "store", replicas=1)
        # Its table is made when it is first used, which is no part of any case.
        store.names()
        return store

    def end_to_end(self) -> Case:
        """Everything in a table as one increment."""
        connection = self._tables.connection

        def loop(run: Callable[[fluss.TablePath, Path, float], Measured]) -> Subject:
            def subject() -> Measured:
                path, size = self._filled
                return run(path, self._place.folder(), size)

            return subject

        bootstrap = self._place.bootstrap
        store = self._store(connection)
        return Case(
            "increment into Parquet",
            "B/s",
            {
                "ours": loop(lambda *given: loops.product(connection, store, *given)),
                "pyfluss loop": loop(lambda *given: loops.by_pyfluss(bootstrap, *given)),
                "client loop": loop(lambda *given: loops.by_client(connection, *given)),
            },
            {"pyfluss loop": 2.5},
        )

    def empty(self, where: str, connection: fluss.FlussConnection) -> Case:
        """Runs that find nothing new, at first and after a long history."""

        @cache
        def job() -> Callable[[], object]:
            path = Tables(connection, self._database).new(buckets=16)
            scan = IncrementalScan(connection, path, f"empty-{where}", self._store(connection))
            sink = ParquetSink(self._place.folder())
            return lambda: run_increment(scan, sink, f"run/{next(self._numbers)}")

        def subject() -> Measured:
            run, sizes = job(), self._sizes
            milliseconds(run, 2)
            first = milliseconds(run, sizes.empty_runs)
            milliseconds(run, sizes.history)
            later = milliseconds(run, sizes.empty_runs)
            return Measured(first, also={f"ms after {sizes.history} more": later})

        return Case(
            f"empty run, {where}",
            "ms",
            {"ours": subject},
            bound=EMPTY_MS_MAX[where],
            lower_is_better=True,
        )

    def wide(self, connection: fluss.FlussConnection) -> list[Case]:
        """Planning as positions grow; read and sink as more of them have changed."""

        @cache
        def table(buckets: int, partitions: int) -> WideTable:
            path = fluss.TablePath(self._database, f"wide_{buckets}_{partitions}")
            return WideTable(connection, self._store(connection), path, buckets, partitions)

        def increment(wide: WideTable, changed_partitions: int) -> dict[str, float]:
            return wide.increment(self._place.folder(), changed_partitions)

        def plan(buckets: int, partitions: int) -> Measured:
            return planning(increment(table(buckets, partitions), 1))

        def sink(changed_partitions: int) -> Measured:
            return sinking(increment(table(*widest), changed_partitions))

        widest = self._sizes.widths[-1]
        plans = [
            Case(
                f"plan, {buckets * max(1, partitions):,} positions",
                "ms",
                {"ours": partial(plan, buckets, partitions)},
                bound=PLAN_MS_MAX,
                lower_is_better=True,
            )
            for buckets, partitions in self._sizes.widths
        ]
        sinks = [
            Case(
                f"read and sink, {changed * widest[0]:,} buckets changed",
                "ms per bucket",
                {"ours": partial(sink, changed)},
                lower_is_better=True,
            )
            for changed in self._sizes.changes
        ]
        return [*plans, *sinks]
