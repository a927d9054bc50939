"""Errors of sinks. They stand under the client's root, `FlussError`."""

from __future__ import annotations

from collections.abc import Sequence

from fluss_client.errors import ClientError


class SinkError(ClientError):
    """A sink cannot take a plan; `sink` says which."""

    def __init__(self, sink: str, message: str) -> None:
        super().__init__(f"{sink}: {message}")
        self.sink = sink


class SinkSchemaError(SinkError):
    """The rows' columns do not fit the sink; `columns` names those."""

    def __init__(self, sink: str, message: str, columns: Sequence[str]) -> None:
        super().__init__(sink, message)
        self.columns = tuple(columns)


class SinkChangesError(SinkError):
    """Changes of a key table would be taken for rows, because nothing says what change they are.

    `table` is the key table.
    """

    def __init__(self, sink: str, table: str) -> None:
        super().__init__(
            sink,
            f"{table} has a primary key, so a plan of it gives changes: without the column "
            "_change_type, deleted rows and old images would be written as rows. Add "
            "metadata_columns=['_change_type'] under a new checkpoint, or after a reset",
        )
        self.table = table


class SinkValueError(SinkError):
    """A value that the sink cannot hold; nothing of the plan was written.

    `column` is the value's column, `row` its place among the plan's rows, counted from 0 (None
    where the database did not tell), `kind` says what it is. The value itself is not kept.
    """

    def __init__(
        self, sink: str, message: str, column: str | None, row: int | None, kind: str
    ) -> None:
        super().__init__(sink, message)
        self.column = column
        self.row = row
        self.kind = kind


class SinkPositionError(SinkError):
    """The sink's own position and the checkpoint do not agree; nothing was written.

    The sink is right: what it holds was written together with its position.
    """

    def __init__(self, sink: str, name: str, plan_id: str, message: str) -> None:
        super().__init__(
            sink,
            f"plan {plan_id} of '{name}' does not go on where this sink is: {message}. Compare "
            "both; then `reset` the checkpoint to the sink's position, or, if the sink's rows "
            "were put right by hand, call the sink's reset_position",
        )
        self.name = name
        self.plan_id = plan_id


class SinkContendedError(SinkError):
    """Others kept committing to the sink; nothing was written, the plan may be written again."""

    retriable = True
