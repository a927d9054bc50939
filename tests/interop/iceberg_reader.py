"""Reads Iceberg tables with Spark and Iceberg's own Java, run by the Python of that Spark.

    python iceberg_reader.py RUNTIME_JAR FOLDER

`JAVA_HOME` says which Java. Reads one JSON object per line: {"metadata": the location of the
table's metadata, "out": a file}. Writes the rows of the current snapshot
to the file as Parquet, and prints one JSON object.
"""

from __future__ import annotations

import json
import sys

import pyarrow.parquet as pq
from pyspark.sql import SparkSession


def main(jar: str, folder: str) -> None:
    conf = {
        "spark.jars": jar,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.session.timeZone": "UTC",
        "spark.local.dir": folder,
    }
    spark = SparkSession.builder.master("local[2]").config(map=conf).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    print(json.dumps({"spark": spark.version}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            rows = spark.read.format("iceberg").load(asked["metadata"]).toArrow()
            pq.write_table(rows, asked["out"])
            answer = {"rows": rows.num_rows}
        except Exception as error:  # noqa: BLE001 (whatever it was, the test shall show it)
            answer = {"error": f"{type(error).__name__}: {error}"[:4000]}
        print(json.dumps(answer), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
