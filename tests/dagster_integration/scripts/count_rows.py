"""A PySpark script that reports through Pipes; with `--wait` it is there to be killed."""

import os
import sys
import threading
from pathlib import Path

from dagster_pipes import PipesCliArgsParamsLoader, open_dagster_pipes
from pyspark.sql import SparkSession

with open_dagster_pipes(params_loader=PipesCliArgsParamsLoader()) as pipes:
    spark = SparkSession.builder.getOrCreate()
    if "--wait" in sys.argv:
        mark = Path(sys.argv[sys.argv.index("--wait") + 1])
        # A Python worker is busy beside the driver and the JVM.
        spark.sparkContext.parallelize([os.getpid()], 1).foreach(
            lambda pid: (mark.write_text(f"{pid} {os.getpid()}"), threading.Event().wait())
        )
    assert "wolpertinger" not in " ".join(sys.argv)
    pipes.report_asset_materialization(
        metadata={
            "rows": spark.range(int(pipes.get_extra("count"))).count(),
            "application": spark.sparkContext.applicationId,
            "alias": pipes.get_extra("fluss_cluster")["alias"],
            "has_secret": any("wolpertinger" in value for value in os.environ.values()),
        },
        data_version="one",
    )
    spark.stop()
