"""`python -m benchmarks.spark [--rows N] [--rounds N] [--bootstrap ADDR]`: ours and plain ways.

Loads: files by Python workers, exactly once, against a frame by `format("fluss")` with Spark's own
batches and with tuned ones. Reads: a plan by `read_plan` against `format("fluss")`.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks.__main__ import _cluster
from benchmarks.harness import Case, Timed, report, run, stopwatch
from fluss_client import Config, FlussConnection
from fluss_orchestrate import ColumnSpec, IncrementalScan, TableSpec, apply
from fluss_orchestrate.spark import load_files, make_session, read_plan, register, write

FILES = 8
COLUMNS = (ColumnSpec("id", "bigint"), ColumnSpec("v", "double"), ColumnSpec("word", "string"))


class SparkCases:
    """Tables, input files and a session for all cases."""

    def __init__(self, spark: SparkSession, address: str, folder: Path, rows: int) -> None:
        self._spark = spark
        self._address = address
        self._folder = folder
        self._rows = rows
        self._numbers = itertools.count()
        self._database = f"bench_spark_{os.getpid()}"
        self._connection = FlussConnection.create(Config({"bootstrap.servers": address})).result(60)
        register(spark)
        _write_input(folder, rows)

    def close(self) -> None:
        """Drop what was made."""
        admin = self._connection.get_admin().result(30)
        admin.drop_database(self._database, True, True).result(60)
        self._connection.close()

    def _table(self) -> str:
        name = f"{self._database}.t{next(self._numbers)}"
        apply(self._connection, [TableSpec(name, COLUMNS, buckets=4)])
        return name

    def _into_new_table(self, load: Callable[[str], object]) -> Timed:
        table = self._table()

        def work() -> tuple[float, object]:
            load(table)
            return self._rows, None

        return stopwatch(work)

    def cases(self) -> list[Case]:
        """What is measured."""
        frame = self._spark.read.parquet(str(self._folder))
        options = {"bootstrap.servers": self._address}

        def files(table: str) -> None:
            load_files(
                self._spark,
                str(self._folder),
                table,
                self._address,
                f"bench/{table}",
                on_line=lambda line: None,
            )

        def plain(table: str) -> None:
            given = {**options, "table": table}
            frame.write.format("fluss").options(**given).mode("append").save()

        loads = {
            "ours": lambda: self._into_new_table(files),
            "format": lambda: self._into_new_table(plain),
            "write()": lambda: self._into_new_table(lambda t: write(frame, t, self._address)),
        }
        filled = self._table()
        files(filled)
        plan = IncrementalScan(self._connection, filled, self._database).plan("bench")

        def counted(read: Callable[[], int]) -> Timed:
            def work() -> tuple[float, object]:
                rows = read()
                return rows, rows

            return stopwatch(work)

        def by_format() -> int:
            loaded = self._spark.read.format("fluss").options(**options, table=filled).load()
            return int(loaded.selectExpr("count(v)").first()[0])

        def by_plan() -> int:
            planned = read_plan(self._spark, plan, self._address)
            return int(planned.selectExpr("count(v)").first()[0])

        reads = {"ours": lambda: counted(by_plan), "format": lambda: counted(by_format)}
        return [Case("load, exactly once", "rows/s", loads), Case("read a plan", "rows/s", reads)]


def _write_input(folder: Path, rows: int) -> None:
    each = rows // FILES
    for number in range(FILES):
        ids = np.arange(number * each, (number + 1) * each)
        words = pa.array(np.char.add("word-", (ids % 10**8).astype(str)))
        table = pa.table({"id": ids, "v": ids * 0.5, "word": words})
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=200_000)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bootstrap", default="", help="use this cluster instead of a new one")
    options = parser.parse_args()
    conf = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    with _cluster(options.bootstrap) as address, tempfile.TemporaryDirectory() as name:
        spark = make_session("benchmark", "local[2]", conf)
        cases = SparkCases(spark, address, Path(name), options.rows // FILES * FILES)
        try:
            print(report(run(cases.cases(), options.rounds)))
        finally:
            cases.close()
            spark.stop()


if __name__ == "__main__":
    main()
