"""The Spark provider's hook with corrections: a kill ends all processes, secrets stay secret.

Needs the Spark provider; imported only with the operator for bulk loads.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from socket import gethostname
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import (
    DEFAULT_SPARK_BINARY,
    SparkSubmitHook,
)
from airflow.sdk import Connection

from fluss_client import Config
from fluss_client.errors import ConfigError
from fluss_orchestrate.airflow.hooks import client_for
from fluss_orchestrate.airflow.version_compat import AirflowNotFoundException
from fluss_orchestrate.core.clusters import ClusterRef
from fluss_orchestrate.core.spark_submit.detached import DetachedJob, start
from fluss_orchestrate.core.spark_submit.environment import find_spark_submit
from fluss_orchestrate.core.spark_submit.load_spec import BulkLoadSpec
from fluss_orchestrate.core.spark_submit.process import LOG_TAIL_LINES, end_session
from fluss_orchestrate.core.spark_submit.submit import Prepared, SparkSubmit


class FlussSparkSubmitHook(SparkSubmitHook):
    """Submits as the provider does, with three differences.

    spark-submit has a session of its own, and a kill ends all of that session: the provider's
    leaves the Python driver behind. Variables go by environment and, to other machines, by a file
    that only this user can read: the provider puts them into the arguments. A connection that is
    not there is an error: the provider goes to yarn.
    """

    def __init__(
        self,
        *,
        master: str | None = None,
        secrets: Mapping[str, str],
        env_vars: Mapping[str, Any] | None = None,
        **given: Any,
    ) -> None:
        self._master = master
        self._secrets = secrets
        self._variables = {name: str(value) for name, value in (env_vars or {}).items()}
        self._has_own_properties = False
        self.log_tail: deque[str] = deque(maxlen=LOG_TAIL_LINES)
        super().__init__(**given)

    def get_connection(self, conn_id: str) -> Connection:  # type: ignore[override]
        """Return the connection, or one with a master only."""
        if self._master is not None:
            return Connection(conn_id=conn_id, conn_type="spark", host=self._master)
        try:
            return super().get_connection(conn_id)
        except AirflowNotFoundException as error:
            raise ConfigError(
                f"there is no connection '{conn_id}': add one of type spark whose host is the "
                "master, or give the task a master"
            ) from error

    @cached_property
    def how(self) -> SparkSubmit:
        """Return the `SparkSubmit` of these arguments; it checks the master and the deploy mode."""
        return SparkSubmit(
            master=self._connection["master"],
            deploy_mode=self._connection["deploy_mode"] or "client",
            env=self._variables,
            secrets=self._secrets,
        )

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        """Submit and wait. If the wait ends early, what was started here is ended too."""
        with self.how.prepared() as prepared:
            self._take(prepared)
            try:
                return super().submit(
                    application, start_new_session=True, env=self.how.environment(), **kwargs
                )
            except BaseException:
                self._end()
                raise
            finally:
                # The provider leaves the pipe of the log open.
                if self._submit_sp is not None and self._submit_sp.stdout is not None:
                    self._submit_sp.stdout.close()

    def submit_detached(
        self, application: str, spec: BulkLoadSpec, config: Config, token: str
    ) -> None:
        """Submit a load by a process that outlives this one, and return when it has begun.

        Args:
            application: The application.
            spec: The load.
            config: The cluster.
            token: Names the process.

        Raises:
            SubmitError: It did not begin.
        """
        if self.how.master.startswith("spark") and self.how.deploy_mode == "cluster":
            self._conf = {"spark.standalone.submit.waitAppCompletion": "true", **self._conf}
        folder = Path(tempfile.mkdtemp(prefix="fluss-load-"))
        try:
            self._take(self.how.prepare(folder))
            job = DetachedJob(
                tuple(self._build_spark_submit_command(application)),
                spec.to_json(),
                ClusterRef.of(config).to_json(),
                token,
                self.how.master,
                self.how.deploy_mode,
                tuple(self._secrets),
            )
            pid = start(client_for(config), job, folder, self.how.environment())
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self.log.info("spark-submit runs on %s, supervised by process %d", gethostname(), pid)

    def on_kill(self) -> None:
        """End the job: every process that was started here, and a driver elsewhere."""
        # The provider looks for a driver elsewhere only while spark-submit lives.
        if self.how.deploy_mode == "client":
            self._end()
        super().on_kill()
        self._end()

    def _end(self) -> None:
        if self._submit_sp is not None:
            end_session(self._submit_sp)

    def _take(self, prepared: Prepared) -> None:
        self._conf = {**prepared.conf, **self._conf}
        given = [self._py_files] if self._py_files else []
        self._py_files = ",".join([*given, *prepared.py_files]) or None
        if prepared.properties_file is None:
            return
        if self._properties_file:
            # There can be one only, so ours takes over what is in the other.
            ours = prepared.properties_file.read_bytes()
            theirs = Path(self._properties_file).read_bytes()
            prepared.properties_file.write_bytes(theirs + b"\n" + ours)
        else:
            self._has_own_properties = True
        self._properties_file = str(prepared.properties_file)

    def _build_spark_common_args(self) -> list[str]:
        made: list[str] = super()._build_spark_common_args()
        # Without it, the file would stand in for spark-defaults.conf.
        return [*made, "--load-spark-defaults"] if self._has_own_properties else made

    def _get_spark_binary_path(self) -> list[str]:
        name = self._connection["spark_binary"]
        return [find_spark_submit(None if name == DEFAULT_SPARK_BINARY else name)]

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        super()._process_spark_submit_log(self._heard(itr))

    def _heard(self, lines: Iterator[str]) -> Iterator[str]:
        for line in lines:
            shown = self.how.blotted(line.rstrip("\n"))
            self.log_tail.append(shown)
            yield shown
