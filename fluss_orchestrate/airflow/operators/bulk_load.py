"""Large loads on Spark, from a DAG, once, with a receipt."""

from __future__ import annotations

import inspect
import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from fluss_orchestrate.airflow.errors import FlussTaskError, airflow_errors
from fluss_orchestrate.airflow.flows import Flow, Node, copies, named_table, path_node, table_node
from fluss_orchestrate.airflow.operators.base import FlussOperator
from fluss_orchestrate.airflow.run_context import run_key
from fluss_orchestrate.airflow.triggers.loading import DONE, FlussLoadTrigger
from fluss_orchestrate.airflow.triggers.waiting import TIMEOUT_GRACE_S, outcome_of
from fluss_orchestrate.airflow.triggers.watching import default_poll_interval
from fluss_orchestrate.airflow.version_compat import (
    AirflowException,
    AirflowOptionalProviderFeatureException,
    conf,
)
from fluss_orchestrate.deprecated import accepts_old_parameters

try:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
except ImportError:
    # The module is importable without the provider, so that `import *` of the package works.

    class SparkSubmitOperator:  # type: ignore[no-redef]
        """Stands for the operator of the Spark provider where that is not installed."""

        template_fields: Sequence[str] = ()

        def __init__(self, **kwargs: Any) -> None:
            raise AirflowOptionalProviderFeatureException(
                "FlussBulkLoadOperator needs Airflow's Spark provider: pip install "
                "'fluss-orchestrate[airflow-spark]'"
            )


if TYPE_CHECKING:
    from airflow.sdk import Context

    from fluss_orchestrate.airflow.operators.submitting import FlussSparkSubmitHook
    from fluss_orchestrate.core.receipts import Receipt
    from fluss_orchestrate.core.spark_submit.load_spec import BulkLoadSpec

DEFAULT_SPARK_CONN_ID = "spark_default"
_OURS = ("application", "application_args")
WAIT_TIMEOUT_S = 7 * 86_400.0
"""How long a deferred load may take, as long as Airflow's sensors wait."""
RESUBMITS_MAX = 3


class FlussBulkLoadOperator(FlussOperator, SparkSubmitOperator):
    """Load rows into a table by spark-submit, exactly once under the id of the task run.

    It is a `SparkSubmitOperator` and takes all arguments of that one but the application. Every
    try resumes the same load. The Fluss password goes to Spark by environment, never as an
    argument. A kill ends the driver, its JVM and its Python workers: all that spark-submit has
    started.

    Args:
        table: The table, as `database.table`.
        source: Where rows come from, as a mapping with the fields of the core's `LoadSource`, such
            as `{"kind": "parquet", "paths": ["..."]}`.
        load_id: The id of the load; the run key of the task run by default.
        spark_conn_id: The Airflow connection with the master, the deploy mode and the queue.
        master: The master; with it no connection is used.
        load_options: Further fields of `BulkLoadSpec`, such as `transform_sql`, `columns`,
            `staging` or `dead_letter`.
        deferrable: Whether the task waits in the triggerer, without a worker slot. A process of its
            own then runs spark-submit and goes on if the worker restarts; a try that finds it at
            work waits for it. With deploy mode `client` the driver stays on the worker's machine:
            where each task has a container of its own, use `cluster`. By default as
            `[operators] default_deferrable` says for deploy mode `cluster`, else False.
        wait_timeout: How many seconds a deferred task waits before it stops the load.
        poll_interval: Seconds between two looks in the triggerer; `[fluss] poll_interval` by
            default.
        **kwargs: `fluss_conn_id`, and the arguments of `SparkSubmitOperator`.
    """

    template_fields: Sequence[str] = (
        *("fluss_conn_id", "table", "source", "load_id", "load_options", "master"),
        *(name for name in SparkSubmitOperator.template_fields if name not in _OURS),
    )
    free_fields = tuple(SparkSubmitOperator.template_fields)
    template_fields_renderers = {"source": "json", "load_options": "json", "conf": "json"}

    @accepts_old_parameters("FlussBulkLoadOperator")
    def __init__(
        self,
        *,
        table: str,
        source: Mapping[str, Any],
        load_id: str | None = None,
        spark_conn_id: str = DEFAULT_SPARK_CONN_ID,
        master: str | None = None,
        load_options: Mapping[str, Any] | None = None,
        deferrable: bool | None = None,
        wait_timeout: float = WAIT_TIMEOUT_S,
        poll_interval: float | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("name", f"load {table}")
        if not hasattr(SparkSubmitOperator, "execute"):
            SparkSubmitOperator()
        super().__init__(conn_id=spark_conn_id, **kwargs)
        self.table = table
        self.source = source
        self.load_id = load_id
        self.master = master
        self.load_options = load_options
        self.deferrable = deferrable
        self._ended = False
        self.wait_timeout = wait_timeout
        self.poll_interval = default_poll_interval() if poll_interval is None else poll_interval

    def execute(self, context: Context) -> Any:
        """Submit, and wait here or in the triggerer.

        Args:
            context: Airflow's context.

        Returns:
            The receipt, as plain values.

        Raises:
            FlussTaskError: If a retry may help.
            FlussTaskFailedError: If no retry can help.
        """
        with airflow_errors():
            defers = self._defers()
        return self._submit_and_defer(context) if defers else super().execute(context)

    def execute_complete(self, context: Context, event: Mapping[str, Any] | None = None) -> Any:
        """Return the receipt of a load that has ended; submit one again that was lost.

        Args:
            context: Airflow's context.
            event: The event of the trigger.

        Raises:
            FlussTaskError: If a retry may help.
            FlussTaskFailedError: If no retry can help.
            AirflowSensorTimeout: If the time has passed.
        """
        outcome = outcome_of(event)
        if outcome["state"] == DONE:
            self._ended = True
            return super().execute(context)
        if outcome["times_lost"] > RESUBMITS_MAX:
            raise FlussTaskError(
                f"{self.table}: the load was lost {outcome['times_lost']} times: {outcome['why']}. "
                "If workers end with their tasks, run the driver elsewhere (deploy mode cluster), "
                "or leave deferrable out; the next try goes on with the load"
            )
        self.log.warning("%s; the load is submitted again and goes on", outcome["why"])
        return self._submit_and_defer(context, outcome["times_lost"])

    def _defers(self) -> bool:
        if self.deferrable is None:
            wanted = conf.getboolean("operators", "default_deferrable", fallback=False)
            return wanted and self._get_hook().how.deploy_mode == "cluster"
        return self.deferrable

    def _submit_and_defer(self, context: Context, times_lost: int = 0) -> Any:
        self.check_not_empty()
        self._working = True
        try:
            with airflow_errors():
                self._check_assets()
                spec = self._spec(context)
                token = self._begun(spec)
        finally:
            self._working = False
        if token is None:
            return super().execute(context)
        trigger = FlussLoadTrigger(
            fluss_conn_id=self.fluss_conn_id,
            table=self.table,
            load_id=spec.load_id,
            token=token,
            poll_interval=self.poll_interval,
            times_lost=times_lost,
            deadline_ms=int((time.time() + self.wait_timeout) * 1000),
            timeout=self.wait_timeout,
        )
        timeout = timedelta(seconds=self.wait_timeout + TIMEOUT_GRACE_S)
        self.defer(trigger=trigger, method_name="execute_complete", timeout=timeout)

    def _begun(self, spec: BulkLoadSpec) -> str | None:
        """Let the load run, and return who supervises it; None if it is done already."""
        from fluss_orchestrate.core.clusters import ClusterRef
        from fluss_orchestrate.core.loading.ledger import finished_receipt
        from fluss_orchestrate.core.spark_submit.detached import ask_to_stop, living
        from fluss_orchestrate.core.spark_submit.job import APPLICATION, job_arguments

        client = self.hook.get_conn()
        if spec.provision is None and finished_receipt(client, spec.table, spec.load_id):
            self._ended = True
            return None
        found = living(client, spec.table, spec.load_id)
        if found is not None:
            self.log.info("the spark-submit of an earlier try is at work: waiting for it")
            return found.token
        config = self.hook.get_config()
        self.application = str(APPLICATION)
        self.application_args = job_arguments(spec, ClusterRef.of(config))
        self._hook, token = self._get_hook(), uuid.uuid4().hex
        try:
            self._hook.submit_detached(self.application, spec, config, token)
        except BaseException:
            ask_to_stop(client, spec.table, spec.load_id, token)
            raise
        return token

    def work(self, context: Context) -> dict[str, Any]:
        """Submit, wait, and return the receipt.

        Args:
            context: The context of the Airflow task.
        """
        spec = self._spec(context)
        receipt = self._recorded(spec) if self._ended else self._load(spec, context)
        self.log.info("%s: %d rows loaded", self.table, receipt.rows)
        self.hook.report_write(self.table, receipt)
        table = table_node(self.hook.get_conn(), self.table)
        # What Spark SQL makes of columns is not known here.
        known = () if spec.transform_sql else copies(table)
        columns = tuple((name, spec.columns.get(name, name)) for name, _ in known)
        self.flow = Flow(self._files(), (table,), receipt, columns)
        return receipt.to_json()

    def expected_flow(self) -> Flow:
        """Return the files, if there are some, and the table."""
        return Flow(self._files(), (named_table(self.hook.named_alias, self.table),))

    def _files(self) -> tuple[Node, ...]:
        return tuple(path_node(str(path)) for path in self.source.get("paths", ()))

    def on_kill(self) -> None:
        """End all that was started, here and on the cluster; then stop the work."""
        if self._hook is not None:
            self._hook.on_kill()
        FlussOperator.on_kill(self)

    def _recorded(self, spec: BulkLoadSpec) -> Receipt:
        from fluss_orchestrate.core.spark_submit.job import recorded_receipt
        from fluss_orchestrate.core.spark_submit.submit import SubmitResult

        return recorded_receipt(self.hook.get_conn(), spec, SubmitResult(None, 0, ()))

    def _load(self, spec: BulkLoadSpec, context: Context) -> Receipt:
        from fluss_orchestrate.core.clusters import ClusterRef
        from fluss_orchestrate.core.spark_submit.job import (
            APPLICATION,
            failure,
            job_arguments,
            recorded_receipt,
        )
        from fluss_orchestrate.core.spark_submit.submit import SubmitResult

        self.application = str(APPLICATION)
        self.application_args = job_arguments(spec, ClusterRef.of(self.hook.get_config()))
        self._hook = hook = self._get_hook()
        try:
            SparkSubmitOperator.execute(self, context)
        except AirflowException as error:
            code = hook._submit_sp.returncode if hook._submit_sp else -1
            raise failure(hook.how, spec, SubmitResult(None, code, tuple(hook.log_tail))) from error
        ended = SubmitResult(None, 0, tuple(hook.log_tail))
        return recorded_receipt(self.hook.get_conn(), spec, ended)

    def _spec(self, context: Context) -> BulkLoadSpec:
        from fluss_client.errors import ConfigError
        from fluss_orchestrate.core.spark_submit.load_spec import BulkLoadSpec, LoadSource

        try:
            return BulkLoadSpec(
                source=LoadSource(**self.source),
                table=self.table,
                load_id=run_key(context) if self.load_id is None else self.load_id,
                **(self.load_options or {}),
            )
        except TypeError as error:
            raise ConfigError(f"{self.task_id}: the load cannot be understood: {error}") from error

    def _get_hook(self) -> FlussSparkSubmitHook:
        from fluss_orchestrate.airflow.operators.submitting import FlussSparkSubmitHook
        from fluss_orchestrate.core.clusters import secret_variables

        # The provider's operator keeps each argument of its hook under that name.
        names = list(inspect.signature(SparkSubmitHook.__init__).parameters)[1:]
        kept = {name.lstrip("_"): value for name, value in vars(self).items()}
        given = {name: kept[name] for name in names if name in kept}
        secrets = secret_variables(self.hook.get_config())
        return FlussSparkSubmitHook(master=self.master, secrets=secrets, **given)
