"""The core's errors as Airflow's: whether a retry helps decides which kind.

Sensors handle only Airflow's own exceptions as their `soft_fail` says, and a task whose error no
retry can mend should not use its retries up.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow.sdk.exceptions import AirflowException, AirflowFailException


class FlussTaskError(AirflowException):
    """A task failed in a way that may pass: Airflow retries it."""


class FlussTaskFailedError(AirflowFailException, FlussTaskError):
    """A task failed for good: Airflow fails it at once, whatever retries it has left."""


@contextmanager
def airflow_errors() -> Iterator[None]:
    """Raise the client's and the core's errors as Airflow's."""
    from fluss_client.errors import FlussError

    try:
        yield
    except FlussError as error:
        raise airflow_error(error) from error


def airflow_error(error: Exception) -> FlussTaskError:
    """The Airflow error for one of ours; it says whether a retry helps."""
    kind = type(error).__name__
    if retry_helps(error):
        return FlussTaskError(f"{kind}: {error} (a retry may help)")
    return FlussTaskFailedError(f"{kind}: {error} (a retry does not help: not retried)")


def retry_helps(error: BaseException) -> bool:
    """Whether the same task may succeed later without a change.

    What another run can end by itself counts too: its pending plan, its race for a checkpoint.
    """
    from fluss_client.errors import ClientError, FlussError, UnknownServerError, WriteError
    from fluss_orchestrate.core.errors import CheckpointConflictError, PendingPlanError
    from fluss_orchestrate.spark.errors import SubmitError

    # A load that Spark has broken off is resumed by the next try.
    if isinstance(error, (CheckpointConflictError, PendingPlanError, SubmitError)):
        return True
    if isinstance(error, WriteError) and isinstance(error.__cause__, FlussError):
        return retry_helps(error.__cause__)
    if isinstance(error, ClientError):
        return error.is_retriable
    if isinstance(error, FlussError):
        return error.is_retriable or isinstance(error, UnknownServerError)
    return True
