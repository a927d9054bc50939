"""`submit_load`: submit the packaged load job and bring back its receipt.

Nothing here imports pyspark.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fluss_client import Config, FlussConnection
from fluss_orchestrate.core.clusters import ClusterRef, secret_variables
from fluss_orchestrate.core.errors import SubmitError
from fluss_orchestrate.core.loading.ledger import finished_receipt
from fluss_orchestrate.core.receipts import Receipt
from fluss_orchestrate.core.spark_submit.load_spec import BulkLoadSpec
from fluss_orchestrate.core.spark_submit.submit import OnLog, OnStarted, SparkSubmit, SubmitResult

# A file, not an import: spark-submit runs it in another process, which has Spark.
APPLICATION = Path(__file__).parents[2] / "spark" / "bulk_load.py"
ERROR_MARK = "fluss-orchestrate: error: "
RECEIPT_MARK = "fluss-orchestrate: receipt: "
_TELLING = ("Exception:", "Error:", "ERROR ", "error:")
SHOWN_LINES_MAX = 5


def submit_load(
    submit: SparkSubmit,
    spec: BulkLoadSpec,
    cluster: Config | ClusterRef,
    *,
    on_log: OnLog | None = None,
    on_started: OnStarted | None = None,
    timeout_s: float | None = None,
) -> Receipt:
    """Run a bulk load with spark-submit, and wait until every row is in the table.

    Call it again with the same spec to resume the load, whatever happened to earlier calls.

    Args:
        submit: How to submit.
        spec: The load.
        cluster: The cluster. The secrets of a `Config` go to the driver and the executors by
            environment variables; with a `ClusterRef`, they find their own.
        on_log: Called with each line of Spark's log.
        on_started: Called with the `RunningSubmit` when the application has started.
        timeout_s: How long to wait; None waits without end.

    Returns:
        The receipt of the load.

    Raises:
        SubmitError: The submit failed; the message says why in one sentence.
    """
    ref = cluster
    if isinstance(cluster, Config):
        submit = submit.with_secrets(secret_variables(cluster))
        ref = ClusterRef.of(cluster)
    assert isinstance(ref, ClusterRef)
    with tempfile.TemporaryDirectory(prefix="fluss-load-") as name:
        receipt_file = Path(name) / "receipt.json"
        arguments = job_arguments(spec, ref)
        if submit.deploy_mode == "client":
            arguments += ["--receipt", str(receipt_file)]
        result = submit.run(
            str(APPLICATION),
            arguments,
            on_log=on_log,
            on_started=on_started,
            timeout_s=timeout_s,
        )
        if result.exit_code != 0:
            raise failure(submit, spec, result)
        if receipt_file.exists():
            return Receipt.from_json(json.loads(receipt_file.read_text()))
    return recorded_receipt(ref.connection(), spec, result)


def job_arguments(spec: BulkLoadSpec, ref: ClusterRef) -> list[str]:
    """The arguments of `bulk_load.py`."""
    return ["--spec", spec.to_json(), "--cluster", json.dumps(ref.to_json(), sort_keys=True)]


def recorded_receipt(
    connection: FlussConnection, spec: BulkLoadSpec, result: SubmitResult
) -> Receipt:
    """The receipt of a load whose driver ended well, from where it was recorded as done."""
    found = finished_receipt(connection, spec.table, spec.load_id)
    if found is None:
        raise SubmitError(
            f"load {spec.load_id} into {spec.table}: spark-submit ended well and the load is not "
            "recorded as done; look into the driver's log",
            result.exit_code,
            result.log_tail,
        )
    return found


def failure(submit: SparkSubmit, spec: BulkLoadSpec, result: SubmitResult) -> SubmitError:
    """What went wrong, in the words of the job itself if it had any."""
    where = f"load {spec.load_id} into {spec.table} on {submit.master}"
    return SubmitError(f"{where}: {explain(result.log_tail)}", result.exit_code, result.log_tail)


def explain(log_tail: Sequence[str]) -> str:
    """The line of a log that tells most about why it ended."""
    for line in reversed(log_tail):
        if ERROR_MARK in line:
            return line.partition(ERROR_MARK)[2]
    telling = [line.strip() for line in log_tail if any(word in line for word in _TELLING)]
    last = telling[-1:] or [line.strip() for line in log_tail if line.strip()][-SHOWN_LINES_MAX:]
    return "spark-submit failed: " + (" | ".join(last) or "it said nothing")
