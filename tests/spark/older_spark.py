"""What an older PySpark can do, run by its own Python: `older_spark.py FOLDER`.

It prints `ok` at the end. What this version cannot do must be the error that the docs name.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException

from fluss_client import Config, FlussConnection, Schema, TableDescriptor, TablePath
from fluss_orchestrate import IncrementalScan, read_table
from fluss_orchestrate.spark import (
    exactly_once_batches,
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
        self.connection = FlussConnection.create(config).result(60)
        admin = self.connection.get_admin().result(60)
        admin.create_database("d").result(60)
        for name in ("log", "copy", "key", "key_copy"):
            keys = ["id"] if name.startswith("key") else []
            descriptor = TableDescriptor(Schema(SCHEMA, primary_keys=keys), bucket_count=2)
            admin.create_table(TablePath("d", name), descriptor).result(60)

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
        self.refused(limited.writeStream.format("noop"), "limited", "needs PySpark 4.2")

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


def main(folder: Path) -> None:
    """Try everything."""
    trial = Trial(folder)
    trial.batches()
    trial.streams(tuple(int(part) for part in trial.spark.version.split(".")[:2]))
    trial.connection.close()
    trial.spark.stop()
    print("ok")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
