"""A Spark driver that loads and reads as it is told; its environment has the keys of the store.

    python -m tests.storage.spark_program

Reads one JSON object per line and answers with one: {"load": the spec, "kills": how many Python
workers to kill meanwhile, "seed"} gives the rows of the receipt, {"read": options} gives the ids.
It is a process of its own because Spark's workers have the environment that its JVM began with.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
import threading
from typing import Any

import psutil

from fluss_client.errors import FlussError
from fluss_orchestrate.core.clusters import ClusterRef
from fluss_orchestrate.core.spark_submit.load_spec import BulkLoadSpec
from fluss_orchestrate.spark.loading.load import run_load
from fluss_orchestrate.spark.setup import make_session
from fluss_orchestrate.spark.source.datasource import register
from tests.spark.conftest import CPU_QUIET

KILL_EVERY_S = 0.3


class WorkerKiller:
    """Kills Python workers of this session at random while it runs."""

    def __init__(self, kills_max: int, seed: int) -> None:
        self._kills_max = kills_max
        self._random = random.Random(seed)
        self._stop = threading.Event()
        self.killed = 0

    def __enter__(self) -> WorkerKiller:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while self.killed < self._kills_max:
            if self._stop.wait(KILL_EVERY_S * self._random.uniform(0.5, 1.5)):
                return
            # The daemon forks a worker for each task that runs at the same time.
            found = psutil.Process().children(recursive=True)
            workers = [p for p in found if _is_worker(p)]
            if workers:
                with contextlib.suppress(psutil.NoSuchProcess):
                    self._random.choice(workers).kill()
                    self.killed += 1


def _is_worker(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        parent = process.parent()
        daemon = parent is not None and "pyspark.daemon" in " ".join(parent.cmdline())
        return daemon and "pyspark.daemon" in " ".join(process.cmdline())
    return False


def answer(spark: Any, asked: dict[str, Any], bootstrap: str) -> dict[str, Any]:
    """What a request gives."""
    if "load" in asked:
        spec = BulkLoadSpec.from_json(json.dumps(asked["load"]))
        cluster = ClusterRef("default", {"bootstrap.servers": bootstrap})
        with WorkerKiller(asked.get("kills", 0), asked.get("seed", 0)) as killer:
            receipt = run_load(spark, spec, cluster, on_line=lambda _: None)
        return {"rows": receipt.rows, "killed": killer.killed, **receipt.details}
    options = {"bootstrap.servers": bootstrap, **asked["read"]}
    frame = spark.read.format("fluss").options(**options).load()
    return {"ids": sorted(row["id"] for row in frame.select("id").collect())}


def main(bootstrap: str) -> None:
    conf = {**CPU_QUIET, "spark.executor.memory": "512m", "spark.task.maxFailures": "50"}
    spark = make_session("storage", "local[2,50]", conf)
    spark.sparkContext.setLogLevel("OFF")
    register(spark)
    for line in sys.stdin:
        try:
            found = answer(spark, json.loads(line), bootstrap)
        except FlussError as error:
            found = {"error": f"{type(error).__name__}: {error}"}
        # Spark's own processes write to standard output, too.
        os.write(3, json.dumps(found).encode() + b"\n")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
