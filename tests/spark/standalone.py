"""A real Spark master and worker on loopback, for tests."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from fluss_client.testing.launching import pick
from fluss_client.testing.processes import spawn
from fluss_orchestrate.core.spark_submit.environment import find_spark_submit, java_home
from tests.waiting import wait_until

READY_LIMIT_S = 60.0
SETTINGS = {
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_PUBLIC_DNS": "127.0.0.1",
    "PYSPARK_PYTHON": sys.executable,
    "SPARK_DAEMON_MEMORY": "256m",
    "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@dataclass(frozen=True)
class Standalone:
    """A running master and worker."""

    master: str
    worker_pid: int
    folder: Path

    def executors(self) -> list[psutil.Process]:
        """The Java processes that run tasks now."""
        try:
            return psutil.Process(self.worker_pid).children()
        except psutil.NoSuchProcess:
            return []

    def python_workers(self) -> list[psutil.Process]:
        """The Python processes that run tasks now."""
        found = []
        for executor in self.executors():
            with contextlib.suppress(psutil.NoSuchProcess):
                found += [p for p in executor.children(recursive=True) if p.ppid() != executor.pid]
        return found


@contextlib.contextmanager
def standalone(folder: Path, cores: int = 2) -> Iterator[Standalone]:
    """Both processes are gone after the block, executors with them."""
    launcher = str(Path(find_spark_submit()).with_name("spark-class"))
    taken: set[int] = set()
    port, ui, worker_ui = (pick(taken) for _ in range(3))
    master = f"spark://127.0.0.1:{port}"
    variables = [f"{k}={v}" for k, v in {**SETTINGS, "JAVA_HOME": java_home()}.items()]
    # Servers get no more of this process's environment than they need, so that no secret of a
    # test reaches an executor that way.
    env = ["env", "-i", f"PATH={os.environ['PATH']}", f"HOME={folder}", *variables]
    started = []
    try:
        log = folder / "master.log"
        command = [*env, launcher, "org.apache.spark.deploy.master.Master"]
        command += ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(ui)]
        started.append(spawn(command, folder, log))
        _wait(log, "I have been elected leader")
        log = folder / "worker.log"
        command = [*env, launcher, "org.apache.spark.deploy.worker.Worker"]
        command += ["--host", "127.0.0.1", "--cores", str(cores), "--memory", "1g"]
        command += ["--work-dir", str(folder / "work"), "--webui-port", str(worker_ui), master]
        started.append(spawn(command, folder, log))
        _wait(log, "Successfully registered with master")
        yield Standalone(master, started[-1].pid, folder)
    finally:
        for process in reversed(started):
            process.terminate("Spark")


def _wait(log: Path, sign: str) -> None:
    def said() -> str:
        return log.read_text(errors="replace")

    wait_until(sign, lambda: re.search(sign, said()), READY_LIMIT_S, details=said)
