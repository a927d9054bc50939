"""What a sink is: it writes the rows of a plan exactly once, under the plan's id.

A sink gets the plan and a function `read`, which is `IncrementalScan.read`. `read` takes the plan,
or a part of it (`range_plan`, `plan.split`), and returns the rows, the same rows in every call. So
a sink chooses itself whether it uses one reader for the whole plan or one reader per range.

Every sink except `FunctionSink` promises: however often `write` is called for a plan, by however
many processes at once, and wherever a process dies, the sink holds the rows of the plan once. The
plan is committed to its checkpoint after `write` has returned.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import pyarrow as pa

from fluss_client.errors import ConfigError
from fluss_orchestrate.core.checkpoints.position import TablePosition
from fluss_orchestrate.core.plan import BucketRange, ScanPlan
from fluss_orchestrate.core.sinks.errors import SinkSchemaError

ReadPlan = Callable[[ScanPlan], pa.RecordBatchReader]


@dataclass(frozen=True, slots=True)
class SinkResult:
    """What a sink holds of one plan.

    Attributes:
        rows: The rows of the plan in the sink.
        bytes: Their size in the sink, as far as it is known.
        details: Facts that only this kind of sink has, as plain values for a receipt; no secrets.
        moved: The rows that this call has written; None if it has written all of them.
    """

    rows: int
    bytes: int = 0
    details: Mapping[str, Any] = field(default_factory=dict)
    moved: int | None = None


class SinkForm(enum.StrEnum):
    """What a sink makes of the rows of a plan.

    `append` adds rows as they come. Changes of a key table need the column `_change_type`, so that
    a deleted row is not taken for a row.

    `changes` adds changes with their kind, offset and commit time: the history of a key table.

    `mirror` keeps the current row of each primary key, so that the sink equals the key table.

    `history` keeps every version of each primary key with the time from which and until which it
    was the current one (a slowly changing dimension of type 2).
    """

    APPEND = "append"
    CHANGES = "changes"
    MIRROR = "mirror"
    HISTORY = "history"

    @property
    def metadata_columns(self) -> tuple[str, ...]:
        """The metadata columns that a plan of a key table must have for this form."""
        return _METADATA_COLUMNS[self]

    @property
    def follows_state(self) -> bool:
        """Whether the sink is wrong unless it gets every change of the table, from the first."""
        return self in (SinkForm.MIRROR, SinkForm.HISTORY)


_METADATA_COLUMNS = {
    SinkForm.APPEND: ("_change_type",),
    SinkForm.CHANGES: ("_change_type", "_offset", "_timestamp"),
    SinkForm.MIRROR: ("_change_type",),
    SinkForm.HISTORY: ("_change_type", "_offset", "_timestamp", "_bucket", "_partition"),
}


def form_of(form: SinkForm | str, known: Collection[SinkForm]) -> SinkForm:
    """Return a form by its name.

    Args:
        form: The form, or its name.
        known: The forms that the sink has.

    Raises:
        ConfigError: The sink has no such form.
    """
    if form not in known:
        raise ConfigError(f"form is one of {', '.join(known)}, not '{form}'")
    return SinkForm(form)


class Sink(Protocol):
    """Writes plans. Calls block. One sink may be used for many plans, one after the other."""

    @property
    def identity(self) -> str:
        """The kind of the sink and the configured name, path or table that it writes to.

        A checkpoint belongs to one identity, so that two jobs that use the same checkpoint name by
        mistake do not divide the rows between two sinks. The identity contains no address and no
        credential, because those may change while the sink stays the same.
        """

    @property
    def form(self) -> SinkForm | None:
        """What the sink makes of the rows; None if that is not known, as of a function."""

    @property
    def exactly_once(self) -> bool:
        """Whether a repeated `write` leaves each row once."""

    def write(self, plan: ScanPlan, read: ReadPlan) -> SinkResult:
        """Write all rows of the plan, or raise. Does nothing if the sink holds the plan already.

        Args:
            plan: The plan.
            read: Returns the rows of the plan, or of a part of it.

        Returns:
            What the sink holds of the plan.
        """


@dataclass(frozen=True, slots=True)
class MirrorRows:
    """The rows of a mirror and the position that they belong to, read as one snapshot.

    Attributes:
        position: Where the mirror is: its rows are those of the table at these offsets.
        rows: The rows. A type that the sink stores with less precision than the table has its own
            type here, such as microseconds for nanoseconds.
    """

    position: TablePosition
    rows: pa.RecordBatchReader


class MirrorSink(Sink, Protocol):
    """A sink that keeps a mirror, and can read it back to prove that it equals its table."""

    def read_mirror(
        self, name: str, schema: pa.Schema
    ) -> AbstractContextManager[MirrorRows | None]:
        """Read the rows of a mirror; the block holds the snapshot.

        Args:
            name: The checkpoint.
            schema: The columns of the table that the mirror has, with the types of the table.

        Returns:
            The rows in the order of `schema`; None if the sink holds no plan of the checkpoint.
        """


class SchemaPolicy(enum.StrEnum):
    """What a sink does with columns that its table lacks.

    `error` refuses the plan. `add_columns` adds the columns at the end, nullable; it never drops
    or changes a column.
    """

    ERROR = "error"
    ADD_COLUMNS = "add_columns"


def columns_to_add(
    sink: str,
    present: Iterable[str],
    wanted: pa.Schema,
    policy: SchemaPolicy,
    held: Collection[str] = (),
) -> list[pa.Field]:
    """Return the columns of `wanted` that the sink lacks.

    Args:
        sink: The sink's name, for the error.
        present: The names of the columns that the sink has.
        wanted: The columns of the rows.
        policy: Whether the sink may add columns.
        held: The columns that rows of a mirror have been written with.

    Raises:
        SinkSchemaError: Columns are missing and the policy is `error`, or columns are missing that
            rows have been written with.
    """
    have = set(present)
    missing = [field for field in wanted if field.name not in have]
    lost = [field.name for field in missing if field.name in held]
    if lost:
        raise SinkSchemaError(
            sink,
            f"column {', '.join(lost)} was dropped or renamed there. Added again, it would be null "
            "in the rows that are there, and the mirrored table has values; nothing was written. "
            "Give it its name again if it was renamed; or `reset` the checkpoint to start, so that "
            "the next run writes all rows again, and adds the column with "
            "schema_policy='add_columns'",
            lost,
        )
    if missing and policy is SchemaPolicy.ERROR:
        names = [field.name for field in missing]
        raise SinkSchemaError(
            sink,
            f"it has no column {', '.join(names)}; add them there, or let the sink add them with "
            "schema_policy='add_columns'. To read without them (columns=), `abandon` the pending "
            "plan first, which pins its columns, and `reset` the checkpoint to current if it has "
            "committed plans",
            names,
        )
    return [field.with_nullable(True) for field in missing]


def identity_of(sink: Sink) -> str:
    """Return the sink's identity, or the name of its class if the sink has none.

    Sinks of users that were written for an earlier version have no identity.
    """
    return str(getattr(sink, "identity", "") or type(sink).__qualname__)


def needs_order(sink: Sink | None, plan: ScanPlan) -> bool:
    """Return whether a sink keeps the last row of a key, so that the order of rows counts.

    A sink that does so has a method `needs_order(plan)`.

    Args:
        sink: The sink; None for a caller, whose order is not known.
        plan: A plan of the table that is read.
    """
    asked = getattr(sink, "needs_order", None)
    return False if asked is None else bool(asked(plan))


def range_plan(plan: ScanPlan, part: BucketRange) -> ScanPlan:
    """Return the plan with only one of its ranges."""
    return replace(plan, ranges=(part,))
