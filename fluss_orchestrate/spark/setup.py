"""A session that can run Fluss jobs, and settings that hold for one action."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from fluss_client.errors import MissingExtraError
from fluss_orchestrate.core.spark_submit.environment import check_master, check_pyspark, java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def make_session(
    name: str = "fluss-orchestrate",
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return the session of spark-submit, or a new one in this process.

    A new session gets a Java that can run it, and workers that run this Python.

    Args:
        name: The name of the application.
        master: The URL of the Spark master; None for the default.
        conf: Properties of Spark.
    """
    check_pyspark()
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingExtraError("pyspark", "spark") from None
    os.environ["JAVA_HOME"] = java_home()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    if master is not None:
        check_master(master)
        builder = builder.master(master)
    return builder.config(map=dict(conf or {})).getOrCreate()


@contextlib.contextmanager
def session_conf(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """Set properties within the block, and restore them after it."""
    before = {key: spark.conf.get(key, None) for key in conf}
    for key, value in conf.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)


def parallelism(spark: SparkSession) -> int | None:
    """Return how many tasks the session runs at once, or None if it does not tell (Connect)."""
    from pyspark.errors import PySparkException

    try:
        return int(spark.sparkContext.defaultParallelism)
    except PySparkException:
        return None


def is_local(spark: SparkSession) -> bool:
    """Return whether executors are threads of the driver."""
    master = spark.conf.get("spark.master", "local") or "local"
    return master.startswith("local")
