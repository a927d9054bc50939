"""Waiting sensors on the poller, and imports in fresh processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from benchmarks.child import in_child
from benchmarks.harness import Case, Measured, Subject
from benchmarks.orchestration.data import SIZES, Sizes
from benchmarks.orchestration.waiting import Crowd, one_bucket_tables
from benchmarks.place import Place, connected, own_database
from fluss_client import TablePath

IMPORTS = {
    "import fluss_client": ("pyfluss", "import fluss, pyarrow"),
    "from fluss_orchestrate import *": None,
    "from fluss_orchestrate.airflow import *": (
        "Airflow",
        "from airflow.sdk import DAG, BaseOperator, BaseSensorOperator",
    ),
    "from fluss_orchestrate.dagster import *": ("Dagster", "import dagster"),
    "from fluss_orchestrate.spark import *": ("PySpark", "from pyspark.sql import SparkSession"),
    "import fluss_orchestrate.cli.app": ("Typer", "import typer"),
}
"""What is imported, all lazy names too, and the framework that it stands on."""


@contextmanager
def cases(place: Place) -> Iterator[Sequence[Case]]:
    """Tables to wait for, on the cluster."""
    sizes = SIZES[place.scale]
    with (
        connected(place.bootstrap) as connection,
        own_database(connection, "orchestration") as database,
    ):
        tables = one_bucket_tables(connection, database, sizes.tables)
        crowds = (
            Crowd(place.bootstrap, connection, tables, count, sizes.watch_s, sizes.wakes)
            for count in sizes.waiters
        )
        yield [
            *(_waiting(crowd, sizes) for crowd in crowds),
            *(_deferred(place, tables, count, sizes) for count in sizes.deferred),
            *_imports()[: sizes.imports],
        ]


def _waiting(crowd: Crowd, sizes: Sizes) -> Case:
    subjects: dict[str, Subject] = {"ours": crowd.on_poller}
    if crowd.waiters <= sizes.alone_max:
        subjects["each alone"] = crowd.each_alone
    return Case(
        f"{crowd.waiters:,} sensors wait, CPU", "% of a core", subjects, lower_is_better=True
    )


def _deferred(place: Place, tables: Sequence[TablePath], count: int, sizes: Sizes) -> Case:
    def on_triggerer() -> Measured:
        found = in_child(
            "benchmarks.orchestration.triggerer",
            *(place.bootstrap, str(place.folder()), str(count), str(2 * sizes.watch_s)),
            *(str(sizes.wakes), *map(str, tables)),
        )
        return Measured(found.pop("cpu"), also=found)

    return Case(
        f"{count:,} sensors on a triggerer, CPU",
        "% of a core",
        {"ours": on_triggerer},
        lower_is_better=True,
    )


def _imports() -> list[Case]:
    def timed(statement: str) -> Measured:
        return Measured(in_child("benchmarks.orchestration.imports", statement)["ms"])

    found = []
    for statement, beside in IMPORTS.items():
        subjects: dict[str, Subject] = {"ours": partial(timed, statement)}
        if beside is not None:
            name, bare = beside
            subjects[name] = partial(timed, bare)
        found.append(Case(statement, "ms", subjects, lower_is_better=True))
    return found
