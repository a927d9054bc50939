"""Errors of checkpoints, incremental scans and spark-submit: what was found, and what to do next.

Each has fields besides its text, so that a shell can decide without reading the message. Their base
class is the client's `FlussError`.
"""

from __future__ import annotations

from collections.abc import Sequence

from fluss_client import TablePath
from fluss_client.errors import ClientError
from fluss_orchestrate.core.identity import TableIdentity
from fluss_orchestrate.core.plan import BucketRange

RANGES_SHOWN_MAX = 5


def show_ranges(ranges: Sequence[BucketRange]) -> str:
    """Return ranges as text: the first few, and how many more there are."""
    shown = "; ".join(_show(r) for r in ranges[:RANGES_SHOWN_MAX])
    more = len(ranges) - RANGES_SHOWN_MAX
    return f"{shown}; and {more} more" if more > 0 else shown


def _show(r: BucketRange) -> str:
    where = f"bucket {r.bucket}"
    if r.partition_id is not None:
        where = f"partition {r.partition or '?'} (id {r.partition_id}) {where}"
    stop = "…" if r.stop < 0 else str(r.stop)
    return f"{where} [{r.start}, {stop})"


class CheckpointError(ClientError):
    """A checkpoint cannot be used in this way; `name` says which."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"checkpoint '{name}': {message}")
        self.name = name


class CheckpointStoreError(ClientError):
    """The database of the checkpoints does not answer; nothing is known to be recorded."""

    retriable = True


class CheckpointNotFoundError(CheckpointError):
    """There is no checkpoint of this name in the store."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "there is none; `list` shows those of this store")


class CheckpointRetiredError(CheckpointError):
    """The checkpoint was retired; a reset makes it usable again."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "it was retired; use another name, or `reset` it to bring it back")


class LateRowsError(ClientError):
    """A table takes rows of expired partitions, and the scan or read does not read them.

    Attributes:
        table: The table.
    """

    def __init__(
        self,
        table: TablePath,
        reason: str,
        way_out: str = "Read them with on_late_rows='read', which is the default",
    ) -> None:
        super().__init__(
            f"{table} takes rows for partitions that have expired, and this would miss them: "
            f"{reason}. {way_out}, or leave them out with on_late_rows='note': plans and receipts "
            "then say so"
        )
        self.table = table


class CheckpointConflictError(CheckpointError):
    """The store is not in the state that the caller expects; nothing was recorded.

    `sequence` and `plan_id` name the plan that was to be committed.
    """

    def __init__(self, name: str, message: str, sequence: int = -1, plan_id: str = "") -> None:
        super().__init__(name, message)
        self.sequence = sequence
        self.plan_id = plan_id


class CheckpointHistoryError(CheckpointError):
    """The position after an event cannot be built: the store lacks events that it had.

    `sequence` is the event.
    """

    def __init__(self, name: str, sequence: int) -> None:
        super().__init__(
            name,
            f"the position after event {sequence} cannot be built: an event before it is missing "
            "in the store, or is another one; the store lost events, or was restored or exchanged. "
            "Restore it, or `reset` the checkpoint to the receipt of its last run or to offsets of "
            "every bucket, after a look at what the sink holds",
        )
        self.sequence = sequence


class PendingPlanError(CheckpointError):
    """The plan of another run is pending, and the policy does not allow to adopt it."""

    def __init__(self, name: str, run_key: str, plan_id: str, sequence: int, since_ms: int) -> None:
        super().__init__(
            name,
            f"plan {plan_id} of run '{run_key}' is pending; let that run finish, plan with "
            "on_pending='adopt' to finish it in its place, or `abandon` it if its rows must not "
            "be read",
        )
        self.run_key = run_key
        self.plan_id = plan_id
        self.sequence = sequence
        self.since_ms = since_ms


class IncompleteReadError(CheckpointError):
    """A run ended before all rows were read; it was not committed, and gets the same plan again."""

    def __init__(self, name: str, plan_id: str) -> None:
        super().__init__(
            name,
            f"the rows of plan {plan_id} were not read to their end, so it was not committed; "
            "read a reader until it is exhausted, plan less with max_offsets, say how many rows "
            "were read elsewhere with rows=, or leave the rows out on purpose with skip(reason)",
        )
        self.plan_id = plan_id


class CheckpointBindingError(CheckpointError):
    """The checkpoint belongs to another table, projection or sink than this run has.

    `expected` is what the checkpoint belongs to, `found` what the run has, both as text.
    """

    def __init__(self, name: str, expected: str, found: str) -> None:
        super().__init__(
            name,
            f"it belongs to {expected}, and this run has {found}; use another checkpoint name, or "
            "make the change on purpose: `abandon` its pending plan if there is one, then `reset` "
            "it, with --to current to keep its position",
        )
        self.expected = expected
        self.found = found


class RowsTakenError(CheckpointError):
    """Another checkpoint (`owner`) brings the same rows (`ranges`) into the same sink."""

    def __init__(
        self, name: str, owner: str, sink: str, ranges: Sequence[BucketRange], hint: str = ""
    ) -> None:
        super().__init__(
            name,
            f"checkpoint '{owner}' brings these rows into the same sink ({sink}): "
            f"{show_ranges(ranges)}; written twice they would be there twice. "
            + (
                hint
                or "Use another sink, or leave these rows out with on_covered='skip'; if the sink "
                f"does not hold them any more, `reset` '{owner}' first"
            ),
        )
        self.owner = owner
        self.ranges = tuple(ranges)


class RowsOutOfOrderError(CheckpointError):
    """A sink that keeps the last row of a key would get older rows (`ranges`) after newer ones."""

    def __init__(
        self, name: str, owner: str, sink: str, ranges: Sequence[BucketRange], why: str = ""
    ) -> None:
        why = why or (
            f"checkpoint '{owner}' has brought rows from after these into it, which the older rows "
            "would overwrite. Run intervals in their order; write into a log table, or into a key "
            "table with table.merge-engine=versioned; or leave these rows out"
        )
        super().__init__(name, f"{sink} keeps the last row of each key, and {why}")
        self.owner = owner
        self.ranges = tuple(ranges)


class EarlierRowsPendingError(RowsOutOfOrderError):
    """Rows from before these are not committed yet by another interval; try again after that."""

    retriable = True

    def __init__(self, name: str, owner: str, sink: str, ranges: Sequence[BucketRange]) -> None:
        why = (
            f"checkpoint '{owner}' brings rows from before these into it, and has not committed "
            "them: they could overwrite newer rows. Run intervals one after the other, or try "
            "again when it is committed"
        )
        super().__init__(name, owner, sink, ranges, why)


class GuardError(ClientError):
    """The log is not what the checkpoint expects; `ranges` are the places."""

    def __init__(
        self, table: TableIdentity, message: str, ranges: Sequence[BucketRange] = ()
    ) -> None:
        super().__init__(f"{table.path}: {message}")
        self.table = table
        self.ranges = tuple(ranges)


class PositionUnknownError(GuardError):
    """A receipt or a plan names only some places of the table; `places` are the others.

    They are pairs of partition id and bucket.
    """

    def __init__(self, table: TableIdentity, places: Sequence[tuple[int | None, int]]) -> None:
        super().__init__(
            table,
            f"this receipt or plan does not say where {len(places)} bucket(s) were, such as bucket "
            f"{places[0][1]}"
            + ("" if places[0][0] is None else f" of partition id {places[0][0]}")
            + "; rows of those would be left out. Give the receipt of an increment, a time, or "
            "offsets of every bucket",
        )
        self.places = tuple(places)


class RetentionPassedError(GuardError):
    """Retention deleted rows before they were read; `ranges` are those."""

    def __init__(self, table: TableIdentity, ranges: Sequence[BucketRange], hint: str = "") -> None:
        super().__init__(
            table,
            f"retention has deleted what was not read yet: {show_ranges(ranges)}; "
            + (
                hint
                or "read it from the lake with on_retention='lake', or go on without it with "
                "on_retention='earliest', and raise table.log.ttl or run more often"
            ),
            ranges,
        )


class TableIdentityChangedError(GuardError):
    """The table is not the one that the checkpoint was made for."""

    def __init__(self, expected: TableIdentity, found: TableIdentity | None) -> None:
        if found is None:
            what = "it does not exist any more"
        elif expected.path != found.path or expected.cluster != found.cluster:
            what = f"this is {found.uri} with id {found.table_id}"
        else:
            what = f"it was dropped and created again with id {found.table_id}"
        super().__init__(
            expected,
            f"the checkpoint is about {expected.uri} with id {expected.table_id}, but {what}; "
            "`abandon` its pending plan if there is one, then `reset` the checkpoint to begin with "
            "the new table, or plan under another name",
        )
        self.expected = expected
        self.found = found


class PartitionGoneError(GuardError):
    """Partitions were dropped, and it is not known that they were read to their end."""

    def __init__(self, table: TableIdentity, ranges: Sequence[BucketRange]) -> None:
        super().__init__(
            table,
            f"partitions were dropped; what came after the last read is lost: "
            f"{show_ranges(ranges)}; if they were finished, plan with on_partition_gone='forget' "
            "(`abandon` a pending plan that reads them first). Partitions that a window or the "
            "command line drops, with this checkpoint store, are let go without that once they "
            "were read to their end",
            ranges,
        )


class PartitionUnseenError(GuardError):
    """Partitions were created and dropped since the last plan, of this table or of another one.

    `ids` are the ranges of their ids, first and last. No server knows to which table they belonged.
    """

    def __init__(self, table: TableIdentity, ids: Sequence[tuple[int, int]]) -> None:
        shown = [str(a) if a == b else f"{a} to {b}" for a, b in ids[:RANGES_SHOWN_MAX]]
        more = "" if len(ids) <= RANGES_SHOWN_MAX else f" and {len(ids) - RANGES_SHOWN_MAX} more"
        super().__init__(
            table,
            f"since the last plan, partitions with ids {', '.join(shown)}{more} were created and "
            "dropped again in this cluster. If they were of this table, their rows were never "
            "read. If they were not, plan with on_partition_unseen='note', once or always",
        )
        self.ids = tuple(ids)


class LogWentBackwardsError(GuardError):
    """The log ends before the checkpoint's position, or has other rows than were read."""

    def __init__(self, table: TableIdentity, ranges: Sequence[BucketRange], what: str) -> None:
        super().__init__(
            table,
            f"the log went backwards: {what}: {show_ranges(ranges)}; a server lost rows that had "
            "been read; compare the sink with the table, `abandon` a pending plan, and `reset` "
            "the checkpoint to where both agree",
            ranges,
        )


class NotYetError(ClientError):
    """The requested end is not reached yet; try again after `retry_after_ms`."""

    retriable = True

    def __init__(self, message: str, retry_after_ms: int, ranges: Sequence[BucketRange] = ()):
        super().__init__(message)
        self.retry_after_ms = retry_after_ms
        self.ranges = tuple(ranges)


class SparkSetupError(ClientError):
    """Spark, as it is installed or started here, cannot do this; the message says what to do."""


class SubmitError(ClientError):
    """A spark-submit failed.

    Args:
        message: What happened.
        exit_code: The exit code of spark-submit; None if it has none.
        log_tail: The last lines of its log, without secrets.
    """

    def __init__(
        self, message: str, exit_code: int | None = None, log_tail: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.log_tail = log_tail
