"""A smoke test of the Spark part on whatever release of PySpark is installed, without pytest.

    python -m tests.spark.release_smoke DIRECTORY

Loads, plans, batches and streams over an embedded Fluss. What a release cannot do must be the error
that the docs name. The last line of the output is JSON with the versions.
"""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from pyspark.errors import PySparkException

from fluss_client import Config, FlussConnection, Schema, TableDescriptor, TablePath
from fluss_orchestrate import IncrementalScan, read_table
from fluss_orchestrate.core.errors import SparkSetupError
from fluss_orchestrate.spark import (
    exactly_once_batches,
    load_files,
    make_session,
    read_plan,
    register,
    write,
)

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("word", pa.string())])
CONF = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


class Trial:
    """One session with its tables."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = f"embedded:{folder / 'fluss'}"
        self.spark = make_session("older", "local[2]", CONF)
        config = Config({"bootstrap.servers": self.address, "cluster.alias": "default"})
        self.connection = FlussConnection.create(config).result()
        admin = self.connection.get_admin().result()
        admin.create_database("d").result()
        for name in ("log", "copy", "key", "key_copy", "loaded"):
            keys = ["id"] if name.startswith("key") else []
            descriptor = TableDescriptor(Schema(SCHEMA, primary_keys=keys), bucket_count=2)
            admin.create_table(TablePath("d", name), descriptor).result()

    def options(self, table: str, **more: str) -> dict[str, str]:
        named = {key.replace("_", "."): value for key, value in more.items()}
        return {"bootstrap.servers": self.address, "table": f"d.{table}", **named}

    def put(self, table: str, first: int, word: str) -> None:
        frame = self.spark.range(first, first + 100).selectExpr("id", f"'{word}' AS word")
        write(frame, f"d.{table}", self.address)

    def load(self, table: str, **more: str) -> Any:
        return self.spark.read.format("fluss").options(**self.options(table, **more)).load()

    def count(self, table: str) -> int:
        return int(read_table(self.connection, f"d.{table}").read_all().num_rows)

    def loads(self) -> None:
        """Files, a frame under a load id, each done twice; a plan that Python workers read."""
        files = self.folder / "files"
        files.mkdir()
        pq.write_table(pa.table({"id": range(500), "word": ["a"] * 500}, SCHEMA), files / "a")
        frame = self.spark.range(500, 600).selectExpr("id", "'b' AS word")
        staging = str(self.folder / "staging")
        for _ in range(2):
            load_files(self.spark, [str(files)], "d.loaded", self.address, load_id="files")
            write(frame, "d.loaded", self.address, load_id="frame", staging=staging)
        assert self.count("loaded") == 600
        plan = IncrementalScan(self.connection, "d.loaded", checkpoint="loaded").plan("run")
        rows = read_plan(self.spark, plan, self.address, parts=3, row_filter="id >= 400")
        assert sorted(row.id for row in rows.collect()) == list(range(400, 600))

    def no_source(self) -> None:
        """Releases without data sources in Python say what to use instead."""
        for use in (lambda: register(self.spark), lambda: self.put("log", 0, "old")):
            message = ""
            try:
                use()
            except SparkSetupError as error:
                message = str(error)
            assert "needs PySpark 4.0 or later" in message, message
            assert "give write() a load_id" in message, message

    def batches(self) -> None:
        register(self.spark)
        register(self.spark)
        for table in ("log", "key"):
            self.put(table, 0, "old")
            frame = self.load(table)
            assert frame.count() == 100
            self.put(table, 50 if table == "key" else 100, "new")
            assert frame.count() == 100, "a frame stays as it was"
            assert frame.where("word = 'new'").count() == 0
            assert self.load(table, columns="id").count() == (150 if table == "key" else 200)
        plan = IncrementalScan(self.connection, "d.log", checkpoint="older").plan("run")
        assert read_plan(self.spark, plan, self.address).count() == 200

    def streams(self, version: tuple[int, ...]) -> None:
        stream = self.spark.readStream.format("fluss")
        take = exactly_once_batches(
            "d.copy", self.address, name="older", staging=str(self.folder / "staging")
        )
        for expected in (200, 300):
            log = stream.options(**self.options("log")).load()
            self.run(log.writeStream.foreachBatch(take), "loads")
            assert self.count("copy") == expected
            self.put("log", 1000, "later")
        key = stream.options(**self.options("key", metadata="_change_type")).load()
        sink = self.options("key_copy", operation_column="_change_type")
        writer = key.writeStream.format("fluss").options(**sink)
        if version < (4, 1):
            self.refused(writer, "format", "foreachBatch")
        else:
            self.run(writer, "format")
            assert self.count("key_copy") == 150
        limited = stream.options(**self.options("log", max_rows_per_trigger="5")).load()
        if version < (4, 2):
            self.refused(limited.writeStream.format("noop"), "limited", "needs PySpark 4.2")
        else:
            self.run(limited.writeStream.format("noop"), "limited")

    def run(self, writer: Any, name: str) -> None:
        place = str(self.folder / name)
        query = writer.option("checkpointLocation", place).trigger(availableNow=True).start()
        assert query.awaitTermination(300)

    def refused(self, writer: Any, name: str, said: str) -> None:
        message = ""
        try:
            self.run(writer, name)
        except PySparkException as error:
            message = str(error)
        assert said in message, f"{name} was not refused as the docs say: {message}"


def main(folder: Path) -> dict[str, str]:
    """Try everything; the versions."""
    folder.mkdir(parents=True, exist_ok=True)
    trial = Trial(folder)
    version = tuple(int(part) for part in trial.spark.version.split(".")[:2])
    trial.loads()
    if version < (4, 0):
        trial.no_source()
    else:
        trial.batches()
        trial.streams(version)
    trial.connection.close()
    trial.spark.stop()
    return {"pyspark": pyspark.__version__, "python": platform.python_version()}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
