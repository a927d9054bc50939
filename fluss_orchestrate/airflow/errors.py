"""The errors of the core as errors of Airflow: the class says whether Airflow retries the task.

Sensors apply `soft_fail` only to exceptions of Airflow, and a task should not use up its retries
for an error that no retry can mend.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from fluss_orchestrate.airflow.version_compat import AirflowException, AirflowFailException

log = logging.getLogger(__name__)
MISTAKES = (TypeError, ValueError, AttributeError, KeyError)
"""What Python raises for arguments that cannot be meant."""


class FlussTaskError(AirflowException):
    """A task failed in a way that may pass. Airflow retries it."""


class FlussTaskFailedError(AirflowFailException, FlussTaskError):
    """A task failed for good. Airflow fails it at once, whatever retries it has left."""


@contextmanager
def airflow_errors() -> Iterator[None]:
    """Raise errors of the client and of the core as errors of Airflow.

    The error of Airflow is the only one in the traceback, so that the task log ends in its
    sentence. The traceback of the original error is logged with level DEBUG.

    Raises:
        FlussTaskError: If a retry may help.
        FlussTaskFailedError: If no retry can help.
    """
    from fluss_client.errors import FlussError

    try:
        yield
    except FlussError as error:
        log.debug("the error in full", exc_info=error)
        raise airflow_error(error) from None


@contextmanager
def argument_errors(what: str) -> Iterator[None]:
    """Raise what Python raises for wrong arguments as one sentence that fails the task at once.

    Only for code that checks and converts arguments: where rows are read or written, a
    `ValueError` may be another matter.

    Args:
        what: What the arguments are for.

    Raises:
        ConfigError: If the block raises one of `MISTAKES`.
    """
    from fluss_client.errors import ConfigError, FlussError

    try:
        yield
    except MISTAKES as error:
        if isinstance(error, FlussError):
            raise
        raise ConfigError(f"{what} cannot be understood: {error}") from error


def airflow_error(error: Exception) -> FlussTaskError:
    """Return the error of Airflow for one of ours. Its text says whether a retry helps."""
    kind = type(error).__name__
    if retry_helps(error):
        return FlussTaskError(f"{kind}: {error} (a retry may help)")
    return FlussTaskFailedError(f"{kind}: {error} (a retry does not help: not retried)")


def retry_helps(error: BaseException) -> bool:
    """Return whether the same task may succeed later without a change.

    Errors that another run can end by itself count too: its pending plan, its race for a
    checkpoint.
    """
    from fluss_client.errors import ClientError, FlussError, UnknownServerError, WriteError
    from fluss_orchestrate.core.errors import (
        CheckpointConflictError,
        PendingPlanError,
        SubmitError,
    )

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
