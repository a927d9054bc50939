"""Bulk loads and reads by Spark, beside the client alone and beside Spark's own Parquet.

Every figure is per core: what all tasks moved in a second, over the cores that Spark was given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession

from benchmarks.child import in_child
from benchmarks.harness import Case, Measured, Subject, stopwatch
from benchmarks.place import Place, Scale, connected, own_database
from benchmarks.spark.data import SIZES, Sizes, write_input
from fluss_client import FlussConnection
from fluss_orchestrate import ColumnSpec, IncrementalScan, ScanPlan, TableSpec, apply_tables
from fluss_orchestrate.spark import load_files, make_session, read_plan, register, write

COLUMNS = (ColumnSpec("id", "bigint"), ColumnSpec("v", "double"), ColumnSpec("word", "string"))
BUCKETS = 4
QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
}
SOON = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""For a run that ends before Java's second compiler has begun."""
OF_THE_CLIENT = 0.6


@contextmanager
def cases(place: Place) -> Iterator[Sequence[Case]]:
    """Cases for each number of cores; a session is made when its first case runs."""
    sizes = SIZES[place.scale]
    with (
        connected(place.bootstrap) as connection,
        own_database(connection, "spark") as database,
    ):
        work = SparkWork(place, connection, database, sizes)
        try:
            yield [case for cores in sizes.cores for case in work.cases(cores)]
        finally:
            work.close()


class SparkWork:
    """Input files, tables, and the session of the case that runs."""

    def __init__(
        self, place: Place, connection: FlussConnection, database: str, sizes: Sizes
    ) -> None:
        self._place = place
        self._connection = connection
        self._database = database
        self._sizes = sizes
        self._tables = 0
        self._session: tuple[int, SparkSession] | None = None
        self._input = place.folder()
        self._conf = QUIET | (SOON if place.scale is Scale.TINY else {})

    def close(self) -> None:
        """Stop the session."""
        if self._session is not None:
            self._session[1].stop()
            self._session = None

    def cases(self, cores: int) -> list[Case]:
        """A load and a read on so many cores."""
        return [
            Case(
                f"bulk load, local[{cores}]",
                "B/s per core",
                {
                    "ours": self._by_spark(cores, self._load_files),
                    "format": self._by_spark(cores, self._load_by_format),
                    "client": lambda: self._alone("load", self._new_table()),
                    "Spark's Parquet": self._by_spark(cores, self._copy_parquet),
                },
                {"client": OF_THE_CLIENT},
            ),
            Case(
                f"read, local[{cores}]",
                "B/s per core",
                {
                    "ours": self._by_spark(cores, self._read_plan),
                    "format": self._by_spark(cores, self._read_by_format),
                    "client": lambda: self._alone("read", self._filled),
                    "Spark's Parquet": self._by_spark(cores, self._read_parquet),
                },
            ),
        ]

    def _spark(self, cores: int) -> SparkSession:
        if self._session is None or self._session[0] != cores:
            self.close()
            spark = make_session("benchmark", f"local[{cores}]", self._conf)
            register(spark)
            # The first job starts Python workers and compiles; that is no part of any case.
            spark.range(1000).mapInArrow(lambda batches: batches, "id long").count()
            self._session = cores, spark
        return self._session[1]

    def _by_spark(self, cores: int, job: Callable[[SparkSession, str], int]) -> Subject:
        """A job that may write into an empty table, which is made before the clock starts."""

        def subject() -> Measured:
            spark, size, _ = self._spark(cores), self._size, self._filled
            table = self._new_table()
            measured = stopwatch(lambda: (size / cores, job(spark, table)))
            whole = measured.value * cores / 1e6
            return Measured(measured.value, measured.checksum, {"MB/s in all": whole})

        return subject

    def _alone(self, what: str, table: str) -> Measured:
        found = in_child(
            "benchmarks.spark.alone", what, self._place.bootstrap, table, str(self._input)
        )
        return Measured(self._size / found["seconds"], found["rows"])

    @cached_property
    def _size(self) -> int:
        return write_input(self._input, self._sizes)

    @cached_property
    def _filled(self) -> str:
        table = self._new_table()
        self._alone("load", table)
        return table

    @cached_property
    def _plan(self) -> ScanPlan:
        return IncrementalScan(self._connection, self._filled, self._database).plan("bench")

    def _new_table(self) -> str:
        self._tables += 1
        name = f"{self._database}.t{self._tables}"
        apply_tables(self._connection, [TableSpec(name, COLUMNS, buckets=BUCKETS)])
        return name

    def _frame(self, spark: SparkSession) -> DataFrame:
        return spark.read.parquet(str(self._input))

    def _load_files(self, spark: SparkSession, table: str) -> int:
        receipt = load_files(
            spark,
            str(self._input),
            table,
            self._place.bootstrap,
            f"bench/{table}",
            on_line=lambda line: None,
        )
        return receipt.rows

    def _load_by_format(self, spark: SparkSession, table: str) -> int:
        write(self._frame(spark), table, self._place.bootstrap)
        return self._sizes.rows

    def _copy_parquet(self, spark: SparkSession, _: str) -> int:
        self._frame(spark).write.parquet(str(self._place.folder() / "copy"))
        return self._sizes.rows

    def _read_plan(self, spark: SparkSession, _: str) -> int:
        return _counted(read_plan(spark, self._plan, self._place.bootstrap))

    def _read_by_format(self, spark: SparkSession, _: str) -> int:
        options = {"bootstrap.servers": self._place.bootstrap, "table": self._filled}
        return _counted(spark.read.format("fluss").options(**options).load())

    def _read_parquet(self, spark: SparkSession, _: str) -> int:
        return _counted(self._frame(spark))


def _counted(frame: DataFrame) -> int:
    """Every column of every row is looked at."""
    found = frame.selectExpr("count(id)", "sum(v)", "max(length(word))").first()
    assert found is not None
    return int(found[0])
