"""Errors of the Spark part. They stand under the client's root, `FlussError`."""

from __future__ import annotations

from fluss_client.errors import ClientError


class SparkSetupError(ClientError):
    """Spark, as it is installed or started here, cannot do this; says what to do."""


class FrameChangedError(ClientError):
    """The table was changed since a frame was planned, and its rows of then cannot be read."""


class SubmitError(ClientError):
    """A spark-submit did not end well; `log_tail` holds its last lines, secrets left out."""

    def __init__(
        self, message: str, exit_code: int | None = None, log_tail: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.log_tail = log_tail
