"""Errors of sinks. All derive from `FlussError`, the root of the client's errors."""

from __future__ import annotations

from collections.abc import Sequence

from fluss_client.errors import ClientError


class SinkError(ClientError):
    """A sink cannot write a plan.

    Attributes:
        sink: The sink's table or name.
    """

    def __init__(self, sink: str, message: str) -> None:
        super().__init__(f"{sink}: {message}")
        self.sink = sink


class SinkSchemaError(SinkError):
    """The columns of the rows do not fit the sink.

    Attributes:
        columns: The names of the columns that do not fit.
    """

    def __init__(self, sink: str, message: str, columns: Sequence[str]) -> None:
        super().__init__(sink, message)
        self.columns = tuple(columns)


class SinkChangesError(SinkError):
    """Changes of a key table would be misread: columns that say what they are, are not read.

    Attributes:
        table: The key table.
        missing: The metadata columns that the sink needs.
    """

    def __init__(self, sink: str, table: str, missing: Sequence[str] = ("_change_type",)) -> None:
        shown = ", ".join(f"'{name}'" for name in missing)
        super().__init__(
            sink,
            f"{table} has a primary key, so a plan of it gives changes: without "
            f"{', '.join(missing)}, deleted rows and old images would be written as rows. Add "
            f"metadata_columns=[{shown}] under a new checkpoint, or after a reset; or keep a copy "
            "of the current rows with form='mirror'",
        )
        self.table = table
        self.missing = tuple(missing)


class SinkFormError(SinkError):
    """The plan cannot be written in the form of the sink; nothing was written."""


class ContractChangedError(SinkError):
    """A pending plan was begun with another contract; nothing was written.

    Attributes:
        name: The checkpoint.
        plan_id: The plan.
    """

    def __init__(self, sink: str, name: str, plan_id: str) -> None:
        super().__init__(
            sink,
            f"plan {plan_id} of '{name}' was begun with other rules or another quarantine, which "
            "may hold rows of it already: with these rules, rows of the plan would be missing or "
            "be there twice. Run it with the contract that it was begun with, and change the "
            "contract then; or delete what the sink and the quarantine hold of the plan "
            "(ParquetSink.discard), and `abandon` it",
        )
        self.name = name
        self.plan_id = plan_id


class SinkValueError(SinkError):
    """The sink cannot store a value; nothing of the plan was written.

    The value itself is not kept, because errors are logged.

    Attributes:
        column: The column of the value; None if the database did not name it.
        row: The index of the row in the plan, counted from 0; None if the database did not name it.
        kind: What kind of value it is.
    """

    def __init__(
        self, sink: str, message: str, column: str | None, row: int | None, kind: str
    ) -> None:
        super().__init__(sink, message)
        self.column = column
        self.row = row
        self.kind = kind


class SinkPositionError(SinkError):
    """The position that the sink stores and the checkpoint do not agree; nothing was written.

    The sink's position is correct: it was written in the same transaction as the rows.

    Attributes:
        name: The checkpoint.
        plan_id: The plan that was refused.
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
    """Other writers kept committing to the sink; nothing was written. The plan can be retried."""

    retriable = True
