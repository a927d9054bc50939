"""Dropping partitions that are not needed any more, checked right before the drop.

Guards are called again for each partition right before its drop, because readers and writers
continue between a plan and its execution. The ends of the partition's logs are recorded right after
the drop, so that scans that have read it to its end forget it, and others know exactly what they
have lost. Rows that a writer adds in the few milliseconds between the last check of the ends and
the drop are lost without a record: a server cannot refuse them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from fluss_client import FlussConnection, OffsetSpec, PartitionInfo, TableInfo, TablePath
from fluss_client.engine import backend_of, run_blocking
from fluss_client.errors import ClientError, PartitionNotExistError
from fluss_orchestrate.core.checkpoints import CheckpointStore
from fluss_orchestrate.core.checkpoints.dropped import (
    NO_RECORDS,
    last_drop_to_add_to,
    record_dropped,
)
from fluss_orchestrate.core.identity import TableIdentity
from fluss_orchestrate.core.incremental.planning.observation import offsets_of
from fluss_orchestrate.core.provisioning.guards import (
    PartitionGuard,
    first_reason,
    store_or_default,
    usual_guards,
)
from fluss_orchestrate.core.provisioning.spec import check_partition_texts

MakeGuards = Callable[[], Sequence[PartitionGuard]]
"""Returns new guards, which check the current state; an empty list forces the drop."""


class PartitionNeededError(ClientError):
    """A partition is still needed; `reasons` says by whom, by partition.

    `dropped` are those that were dropped before this was found.
    """

    def __init__(
        self, table: TablePath, reasons: Mapping[str, str], dropped: Sequence[str] = ()
    ) -> None:
        shown = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        done = f"only {', '.join(dropped)} was dropped" if dropped else "nothing was dropped"
        super().__init__(f"{table}: {done}, because of {shown}. Let them finish, or force the drop")
        self.table = table
        self.reasons = dict(reasons)
        self.dropped = tuple(dropped)


class PartitionDropper:
    """Drops partitions of one table one by one, and records each drop in the checkpoint store."""

    def __init__(
        self,
        connection: FlussConnection,
        path: TablePath,
        make_guards: MakeGuards,
        store: CheckpointStore | None,
    ) -> None:
        """Prepare it. Without `store`, drops are recorded in the default store if it exists."""
        self._connection = connection
        self._path = path
        self._make_guards = make_guards
        self._admin = connection.get_admin().result()
        self._alias = connection.config.resolved_alias()
        self._store = store_or_default(connection, store)

    def drop(self, partition: PartitionInfo) -> str | None:
        """Drop a partition unless a guard keeps it, and return the reason if it is kept.

        A partition that does not exist any more was dropped by another process; nothing is
        recorded.
        """
        since = NO_RECORDS
        if self._store is not None:
            since = last_drop_to_add_to(self._store, self._alias, self._path)
        table = self._admin.get_table_info(self._path).result()
        listed = self._admin.list_partition_infos(self._path).result()
        found = {p.partition_name: p.partition_id for p in listed}.get(partition.partition_name)
        if found is None:
            return None
        if found != partition.partition_id:
            return "it was dropped and created again since it was planned to go"
        guards = self._make_guards()
        try:
            before = self._ends(table, partition)
            reason = first_reason(guards, table, partition)
            ends = self._ends(table, partition)
        except PartitionNotExistError:
            return None
        if guards and reason is None and ends != before:
            reason = "rows are being written to it"
        if reason is not None:
            return reason
        spec = dict(partition.spec)
        self._admin.drop_partition(self._path, spec, ignore_if_not_exists=True).result()
        if self._store is not None:
            identity = TableIdentity.of(self._alias, table)
            record_dropped(self._store, identity, partition, ends, since)
        return None

    def _ends(self, table: TableInfo, partition: PartitionInfo) -> dict[int, int]:
        """Return the end of each bucket, by the id of the partition: its name may have a new id."""
        backend = backend_of(self._connection)
        ids = [partition.partition_id]
        places = run_blocking(offsets_of(backend, table, ids, OffsetSpec.latest()))
        if not places:
            raise PartitionNotExistError(f"{self._path} has no {partition.partition_name} any more")
        return {bucket: end for (_, bucket), end in places.items()}


def drop_partitions(
    connection: FlussConnection,
    table: TablePath | str,
    partitions: Iterable[Mapping[str, str]],
    *,
    store: CheckpointStore | None = None,
    force: bool = False,
) -> list[PartitionInfo]:
    """Drop partitions, each given by its column values; may be repeated.

    Args:
        connection: Where the table is.
        table: Its path.
        partitions: A value for each partition column, as text, per partition.
        store: Whose checkpoints are asked, and where the drops are recorded; else the default.
        force: Drop also what the lake or a checkpoint still needs.

    Returns:
        Those that were there.

    Raises:
        PartitionNeededError: The lake or a checkpoint still needs one of them. Nothing was
            dropped, unless the need arose while the others were being dropped.
    """
    path = TablePath.parse(table) if isinstance(table, str) else table
    wanted = [dict(spec) for spec in partitions]
    for spec in wanted:
        check_partition_texts(str(path), spec)
    admin = connection.get_admin().result()
    existing = admin.list_partition_infos(path).result()
    found = [p for p in existing if dict(p.spec) in wanted]

    retired: set[str] = set()

    def guards() -> Sequence[PartitionGuard]:
        return () if force else usual_guards(connection, store, retired)

    dropper = PartitionDropper(connection, path, guards, store)
    info = admin.get_table_info(path).result()
    checks = guards()
    _raise_if_needed(path, {p.partition_name: first_reason(checks, info, p) for p in found})
    dropped: list[str] = []
    for partition in found:
        name = partition.partition_name
        _raise_if_needed(path, {name: dropper.drop(partition)}, dropped)
        dropped.append(name)
    return found


def _raise_if_needed(
    path: TablePath, reasons: Mapping[str, str | None], dropped: Sequence[str] = ()
) -> None:
    needed = {name: reason for name, reason in reasons.items() if reason is not None}
    if needed:
        raise PartitionNeededError(path, needed, dropped)
