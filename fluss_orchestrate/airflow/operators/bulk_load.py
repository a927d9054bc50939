"""Large loads on Spark, from a DAG, once, with a receipt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fluss_orchestrate.airflow.flows import Flow, path_node, table_node
from fluss_orchestrate.airflow.operators.base import FlussOperator
from fluss_orchestrate.airflow.run_keys import run_key

if TYPE_CHECKING:
    from airflow.sdk import Context

    from fluss_orchestrate.spark.load_spec import BulkLoadSpec
    from fluss_orchestrate.spark.submit import SparkSubmit


class FlussBulkLoadOperator(FlussOperator):
    """Load rows into a table by spark-submit, exactly once under the task run's id.

    `source` says where rows come from, as a mapping with the fields of the core's `LoadSource`:
    `{"kind": "parquet", "paths": ["..."]}`. `options` are further fields of `BulkLoadSpec`, such
    as `transform_sql`, `columns`, `staging` or `dead_letter`.

    The master is that of the Airflow connection `spark_conn_id` (type `spark`, with its deploy
    mode and queue), or `master`. Every try resumes the same load. The Fluss password goes to
    Spark by environment, never as an argument. A kill ends the driver, its JVM and its Python
    workers: all that spark-submit has started.
    """

    template_fields = ("fluss_conn_id", "table", "source", "load_id", "options", "master", "conf")
    template_fields_renderers = {"source": "json", "options": "json", "conf": "json"}

    def __init__(
        self,
        *,
        table: str,
        source: Mapping[str, Any],
        load_id: str | None = None,
        spark_conn_id: str | None = None,
        master: str | None = None,
        conf: Mapping[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.source = source
        self.load_id = load_id
        self.spark_conn_id = spark_conn_id
        self.master = master
        self.conf = conf
        self.options = options

    def work(self, context: Context) -> dict[str, Any]:
        """Submit, wait, and give the receipt."""
        from fluss_orchestrate.spark.job import bulk_load

        spec = self._spec(context)
        receipt = bulk_load(
            self._submit(), spec, self.hook.get_config(), on_log=lambda line: self.log.info(line)
        )
        self.log.info("%s: %d rows loaded", self.table, receipt.rows)
        self.hook.report_write(self.table, receipt)
        sources = tuple(path_node(path) for path in spec.source.paths)
        self.flow = Flow(receipt, sources, (table_node(self.hook.get_conn(), self.table),))
        return receipt.to_json()

    def _spec(self, context: Context) -> BulkLoadSpec:
        from fluss_client.errors import ConfigError
        from fluss_orchestrate.spark.load_spec import BulkLoadSpec, LoadSource

        try:
            return BulkLoadSpec(
                source=LoadSource(**self.source),
                table=self.table,
                load_id=self.load_id or run_key(context),
                **(self.options or {}),
            )
        except TypeError as error:
            raise ConfigError(f"{self.task_id}: the load cannot be understood: {error}") from error

    def _submit(self) -> SparkSubmit:
        from fluss_orchestrate.spark.submit import SparkSubmit

        given: dict[str, Any] = {"name": self.task_id, "conf": dict(self.conf or {})}
        if self.spark_conn_id is not None:
            given |= _from_connection(self.hook.get_connection(self.spark_conn_id))
        if self.master is not None:
            given["master"] = self.master
        return SparkSubmit(**given)


def _from_connection(connection: Any) -> dict[str, Any]:
    """What a connection of the Spark provider's type says of where to submit."""
    extra = connection.extra_dejson
    host = connection.host or "yarn"
    found: dict[str, Any] = {"master": f"{host}:{connection.port}" if connection.port else host}
    if extra.get("deploy-mode"):
        found["deploy_mode"] = extra["deploy-mode"]
    if extra.get("queue"):
        found["extra_arguments"] = ("--queue", str(extra["queue"]))
    return found
