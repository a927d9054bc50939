"""Spark jobs as steps of Dagster: our bulk load, and any script of one's own through Pipes.

Each is a spark-submit in a session of its own. When a run is cancelled or a step fails, everything
that it started ends with it. Secrets go by environment, never as arguments.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import dagster as dg

from fluss_client import Config, FlussConnection
from fluss_orchestrate.core.clusters import ClusterRef, secret_variables
from fluss_orchestrate.core.spark_submit.job import explain, submit_load
from fluss_orchestrate.core.spark_submit.load_spec import BulkLoadSpec, LoadSource
from fluss_orchestrate.core.spark_submit.submit import RunningSubmit, SparkSubmit, SubmitResult
from fluss_orchestrate.dagster.runs import StepContext, run_key_of
from fluss_orchestrate.dagster.work import load_result

if TYPE_CHECKING:
    from fluss_orchestrate.dagster.resource import FlussResource

APPLICATION_ID = "fluss/spark_application_id"
MASTER = "fluss/spark_master"
CLUSTER_EXTRA = "fluss_cluster"


@dataclass
class _Seen:
    """What was learned of a submit while it ran."""

    running: list[RunningSubmit] = field(default_factory=list)

    @property
    def application_id(self) -> str:
        return str(self.running[-1].application_id or "") if self.running else ""


def log_to_stderr(line: str) -> None:
    """Spark's words go where a step's other output goes; Dagster keeps them with the run."""
    print(line, file=sys.stderr, flush=True)


def bulk_load_asset(
    connection: FlussConnection,
    context: StepContext,
    source: LoadSource,
    table: str,
    submit: SparkSubmit | None,
    timeout_s: float | None,
    asset_key: dg.AssetKey | None,
    options: Mapping[str, Any],
) -> dg.MaterializeResult[Any]:
    """Load in bulk under the run's name; a retry resumes the same load."""
    chosen = submit or SparkSubmit()
    spec = BulkLoadSpec(
        source=source, table=table, load_id=run_key_of(context, asset_key), **options
    )
    seen = _Seen()
    receipt = submit_load(
        chosen,
        spec,
        connection.config,
        on_log=log_to_stderr,
        on_started=seen.running.append,
        timeout_s=timeout_s,
    )
    result = load_result(connection, receipt, asset_key)
    metadata = {**(result.metadata or {}), MASTER: chosen.master}
    if seen.application_id:
        metadata[APPLICATION_ID] = seen.application_id
    return dg.MaterializeResult(
        asset_key=asset_key, metadata=metadata, data_version=result.data_version
    )


class PipesFlussSparkClient(dg.PipesClient):
    """Runs a PySpark script with spark-submit, and takes what it reports through Dagster Pipes.

    The script begins with `open_dagster_pipes(params_loader=PipesCliArgsParamsLoader())`. With
    `fluss=`, it finds the cluster as the extra `fluss_cluster` (`ClusterRef.from_json`), and its
    secrets in its environment. Use it as `dg.ResourceParam[PipesFlussSparkClient]`.

    Args:
        submit: How to submit; by default `SparkSubmit()`.
        context_injector: How the script gets the context; by default by a temporary file.
        message_reader: How the script reports; by default by a temporary file.
        timeout_s: How long a script may run; None sets no limit.
    """

    def __init__(
        self,
        submit: SparkSubmit | None = None,
        *,
        context_injector: dg.PipesContextInjector | None = None,
        message_reader: dg.PipesMessageReader | None = None,
        timeout_s: float | None = None,
    ) -> None:
        self._submit = submit or SparkSubmit()
        self._context_injector = context_injector or dg.PipesTempFileContextInjector()
        self._message_reader = message_reader or dg.PipesTempFileMessageReader()
        self._timeout_s = timeout_s

    def run(  # type: ignore[override]
        self,
        *,
        context: dg.OpExecutionContext | dg.AssetExecutionContext,
        application: str,
        arguments: Sequence[str] = (),
        fluss: FlussResource | None = None,
        extras: dict[str, Any] | None = None,
        submit: SparkSubmit | None = None,
    ) -> dg.PipesClientCompletedInvocation:
        """Submit a script, wait for it, and return what it reported.

        The metadata also has Spark's master and the application id.

        Args:
            context: The context of the asset or the op.
            application: The Python file to run.
            arguments: Its arguments.
            fluss: The cluster that the script uses.
            extras: Values for the script.
            submit: How to submit; by default as the constructor says.
        """
        chosen = submit or self._submit
        given = dict(extras or {})
        if fluss is not None:
            config = Config(fluss.settings())
            chosen = chosen.with_secrets(secret_variables(config))
            given[CLUSTER_EXTRA] = ClusterRef.of(config).to_json()
        seen = _Seen()
        with dg.open_pipes_session(
            context=context,
            context_injector=self._context_injector,
            message_reader=self._message_reader,
            extras=given,
        ) as session:
            bootstrap = session.get_bootstrap_cli_arguments()
            flags = [word for pair in bootstrap.items() for word in pair]
            result = chosen.run(
                application,
                [*arguments, *flags],
                on_log=log_to_stderr,
                on_started=seen.running.append,
                timeout_s=self._timeout_s,
            )
            _check(application, chosen, result)
        return dg.PipesClientCompletedInvocation(session, metadata=_told(chosen, result))


def _check(application: str, submit: SparkSubmit, result: SubmitResult) -> None:
    if result.exit_code != 0:
        raise dg.Failure(
            f"{application} on {submit.master} ended with {result.exit_code}: "
            f"{explain(result.log_tail)}",
            metadata=_told(submit, result),
        )


def _told(submit: SparkSubmit, result: SubmitResult) -> dict[str, Any]:
    """Where it ran, and under which id; a local Spark tells its own to its script only."""
    known = {} if result.application_id is None else {APPLICATION_ID: result.application_id}
    return {MASTER: submit.master, **known}
