"""Running spark-submit: its arguments, its secrets, and its end, which leaves no process behind.

Nothing here imports pyspark, so that a scheduler can submit without having Spark in its process.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from fluss_client.errors import ConfigError
from fluss_orchestrate.core.errors import SubmitError
from fluss_orchestrate.core.spark_submit.environment import (
    check_master,
    find_spark_submit,
    java_home,
    zip_packages,
)
from fluss_orchestrate.core.spark_submit.process import KILL_GRACE_S, ProcessTree, on_terminate

DEPLOY_MODES = ("client", "cluster")
CLUSTER_KILL_TIMEOUT_S = 60.0
_MASTERS = re.compile(r"local(\[[\d*]+(,\s*\d+)?\])?\Z|(spark|k8s|yarn)(://.+)?\Z")
_APPLICATION_ID = re.compile(
    r"\b(app-\d{14}-\d{4,}|application_\d+_\d+|local-\d{13}|spark-[0-9a-f]{32})\b"
)
_DRIVER_POD = re.compile(r"pod name: (\S+)")
_SECRET_SHOWN = "******"  # noqa: S105 - what stands in a log instead of one

OnLog = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class SubmitResult:
    """How a spark-submit ended.

    Attributes:
        application_id: The id of the application; None if it is not known.
        exit_code: The exit code of spark-submit.
        log_tail: The last lines of its log, without secrets.
    """

    application_id: str | None
    exit_code: int
    log_tail: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a submit needs besides its application; the files exist as long as the context."""

    conf: Mapping[str, str]
    py_files: tuple[str, ...]
    properties_file: Path | None = None
    """It contains secrets; only this user can read it."""


class RunningSubmit:
    """A spark-submit that is running. `kill` may be called from any thread, and more than once.

    `SparkSubmit.run` passes it to `on_started`; do not call the constructor.
    """

    def __init__(self, submit: SparkSubmit, tree: ProcessTree) -> None:
        self._submit = submit
        self._tree = tree
        self.application_id: str | None = None
        self.driver_pod: str | None = None

    @property
    def pid(self) -> int:
        """The process id of spark-submit."""
        return self._tree.pid

    def kill(self, grace_s: float = KILL_GRACE_S) -> None:
        """End the job: every process that was started here, and a driver that runs elsewhere.

        Args:
            grace_s: How long the processes may take to end by themselves.
        """
        self._tree.kill(grace_s)
        command = self._submit.kill_command(self.application_id, self.driver_pod)
        if command:
            stopper = ProcessTree(command, self._submit.environment(), lambda line: None)
            if stopper.wait(CLUSTER_KILL_TIMEOUT_S) is None:
                stopper.kill(grace_s)


OnStarted = Callable[[RunningSubmit], None]


@dataclass(frozen=True)
class SparkSubmit:
    """How to run spark-submit. The same value may be used many times.

    Attributes:
        master: The URL of the Spark master.
        deploy_mode: `client` or `cluster`.
        name: The name of the application.
        conf: Properties of Spark.
        env: Environment variables for the driver and the executors.
        secrets: Secret environment variables for the driver and the executors. They are passed by
            environment and by a properties file that only this user can read, never as arguments,
            and they are removed from the log.
        py_files: Further Python files for the executors.
        extra_arguments: Further options of spark-submit, such as `("--queue", "etl")`.
        ship_packages: Send the packages of this project along; by default to all masters but local
            ones.
        python: PYSPARK_PYTHON of the driver and the executors; by default this Python.
        spark_submit: The path of spark-submit; by default that of SPARK_HOME, of this Python, or on
            the PATH.
    """

    master: str = "local[*]"
    deploy_mode: str = "client"
    name: str = "fluss-orchestrate"
    conf: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    py_files: tuple[str, ...] = ()
    extra_arguments: tuple[str, ...] = ()
    ship_packages: bool | None = None
    python: str | None = None
    spark_submit: str | None = None

    def __post_init__(self) -> None:
        if not _MASTERS.match(self.master):
            raise ConfigError(
                f"'{self.master}' is no Spark master: write local[2], spark://host:7077, yarn or "
                "k8s://https://host:443"
            )
        if self.deploy_mode not in DEPLOY_MODES:
            raise ConfigError(f"deploy_mode is client or cluster, not '{self.deploy_mode}'")
        if self.deploy_mode == "cluster" and self.master.startswith(("spark://", "local")):
            raise ConfigError(
                f"Spark runs no Python driver in cluster mode on {self.master}: use client mode"
            )

    def __getstate__(self) -> dict[str, object]:
        if self.secrets:
            raise ConfigError("a SparkSubmit with secrets is never pickled: add them where it runs")
        return dict(self.__dict__)

    @property
    def is_local(self) -> bool:
        """Whether everything runs on this machine."""
        return self.master.startswith("local")

    def with_secrets(self, secrets: Mapping[str, str]) -> SparkSubmit:
        """Return the same value with more `secrets`."""
        return replace(self, secrets={**self.secrets, **secrets})

    def command(self, application: str, arguments: Sequence[str] = ()) -> list[str]:
        """Return the argument list, without any secret; `run` may add a properties file.

        Args:
            application: The Python file to run.
            arguments: Its arguments.
        """
        return self._command(application, arguments, Prepared(self._all_conf(), self.py_files))

    @contextmanager
    def prepared(self) -> Iterator[Prepared]:
        """Return settings and files for a submit that other code runs."""
        with tempfile.TemporaryDirectory(prefix="fluss-submit-") as name:
            yield self.prepare(Path(name))

    def prepare(self, folder: Path) -> Prepared:
        """Return settings and files for a submit that other code runs.

        Args:
            folder: Where the files go. The caller removes it after the job.
        """
        check_master(self.master)
        py_files = (*self.py_files, *self._shipped(folder))
        return Prepared(self._all_conf(), py_files, self._secret_file(folder))

    def _command(self, application: str, arguments: Sequence[str], prepared: Prepared) -> list[str]:
        made = [find_spark_submit(self.spark_submit), "--master", self.master]
        made += ["--deploy-mode", self.deploy_mode, "--name", self.name]
        if prepared.properties_file is not None:
            # Without the second one, the file would stand in for spark-defaults.conf.
            made += ["--properties-file", str(prepared.properties_file), "--load-spark-defaults"]
        for key, value in prepared.conf.items():
            made += ["--conf", f"{key}={value}"]
        if prepared.py_files:
            made += ["--py-files", ",".join(prepared.py_files)]
        return [*made, *self.extra_arguments, application, *arguments]

    def _all_conf(self) -> dict[str, str]:
        python = self.python or sys.executable
        defaults = {"spark.pyspark.python": python, "spark.pyspark.driver.python": python}
        for key, value in self.env.items():
            defaults[f"spark.executorEnv.{key}"] = value
            if self.deploy_mode == "cluster":
                defaults[f"spark.yarn.appMasterEnv.{key}"] = value
                defaults[f"spark.kubernetes.driverEnv.{key}"] = value
        return {**defaults, **self.conf}

    def environment(self) -> dict[str, str]:
        """Return the environment variables of spark-submit."""
        python = self.python or sys.executable
        own = {"JAVA_HOME": java_home(), "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
        return {**os.environ, **own, **self.env, **self.secrets}

    def kill_command(self, application_id: str | None, driver_pod: str | None) -> list[str] | None:
        """Return the command that ends a driver that runs elsewhere; None if there is none.

        Args:
            application_id: The id of the application, if it is known.
            driver_pod: The pod of the driver on Kubernetes, if it is known.
        """
        if self.deploy_mode == "client":
            return None
        if self.master.startswith("yarn") and application_id:
            return ["yarn", "application", "-kill", application_id]
        if self.master.startswith("k8s") and driver_pod:
            submit = find_spark_submit(self.spark_submit)
            return [submit, "--master", self.master, "--kill", driver_pod]
        return None

    def run(
        self,
        application: str,
        arguments: Sequence[str] = (),
        *,
        on_log: OnLog | None = None,
        on_started: OnStarted | None = None,
        timeout_s: float | None = None,
    ) -> SubmitResult:
        """Submit an application and wait for it. If the wait ends early, the job is ended too.

        Args:
            application: The Python file to run.
            arguments: Its arguments.
            on_log: Called with each line of Spark's log.
            on_started: Called with the `RunningSubmit` when the application has started.
            timeout_s: How long to wait; None waits without end.
        """
        with ExitStack() as stack:
            prepared = stack.enter_context(self.prepared())
            command = self._command(application, arguments, prepared)
            running: RunningSubmit | None = None
            early: list[str] = []

            def listen(line: str) -> None:
                shown = self.blotted(line)
                if running is None:
                    early.append(shown)
                else:
                    _note(running, shown)
                if on_log is not None:
                    on_log(shown)

            tree = ProcessTree(command, self.environment(), listen)
            running = RunningSubmit(self, tree)
            for line in early:
                _note(running, line)
            stack.enter_context(on_terminate(running.kill))
            try:
                if on_started is not None:
                    on_started(running)
                code = tree.wait(timeout_s)
            except BaseException:
                running.kill()
                raise
            tail = tuple(self.blotted(line) for line in tree.log_tail)
            if code is None:
                running.kill()
                raise SubmitError(
                    f"spark-submit of {Path(application).name} to {self.master} did not end within "
                    f"{timeout_s} s and was killed",
                    None,
                    tail,
                )
            return SubmitResult(running.application_id, code, tail)

    def blotted(self, line: str) -> str:
        """Return a `line` of the log with the secrets in it replaced."""
        for value in self.secrets.values():
            if value:
                line = line.replace(value, _SECRET_SHOWN)
        return line

    def _shipped(self, folder: Path) -> list[str]:
        ship = not self.is_local if self.ship_packages is None else self.ship_packages
        return [str(zip_packages(folder))] if ship else []

    def _secret_file(self, folder: Path) -> Path | None:
        """Write the secrets for executors on other machines, which do not have this environment."""
        if not self.secrets or self.is_local:
            return None
        path = folder / "secrets.properties"
        lines = [
            f"{prefix}{key}={_escaped(value)}\n"
            for key, value in self.secrets.items()
            for prefix in self._secret_prefixes()
        ]
        path.touch(mode=0o600)
        path.write_text("".join(lines), encoding="latin-1")
        return path

    def _secret_prefixes(self) -> list[str]:
        prefixes = ["spark.executorEnv."]
        if self.deploy_mode == "cluster":
            prefixes.append("spark.yarn.appMasterEnv.")
            prefixes.append("spark.kubernetes.driverEnv.")
        return prefixes


def _note(running: RunningSubmit, line: str) -> None:
    if running.application_id is None and (found := _APPLICATION_ID.search(line)):
        running.application_id = found.group(1)
    if running.driver_pod is None and (pod := _DRIVER_POD.search(line)):
        running.driver_pod = pod.group(1)


def _escaped(value: str) -> str:
    """Return a value as Java's properties files write it."""
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    if escaped.startswith(" "):
        escaped = "\\" + escaped
    return escaped.encode("ascii", "backslashreplace").decode("ascii").replace("\\x", "\\u00")
