"""Dropping partitions by name, unless somebody still needs their rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fluss_client import FlussConnection
from fluss_client.errors import ClientError
from fluss_client.model.table import PartitionInfo, TablePath
from fluss_orchestrate.core.checkpoints import CheckpointStore
from fluss_orchestrate.core.provisioning.guards import usual_guards


class PartitionNeededError(ClientError):
    """A partition is still needed; nothing was dropped. `reasons` says by whom, by partition."""

    def __init__(self, table: TablePath, reasons: Mapping[str, str]) -> None:
        shown = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        super().__init__(
            f"{table}: nothing was dropped, because of {shown}. Let them finish, or force the drop"
        )
        self.table = table
        self.reasons = dict(reasons)


def drop_partitions(
    connection: FlussConnection,
    table: TablePath | str,
    partitions: Iterable[Mapping[str, str]],
    *,
    store: CheckpointStore | None = None,
    force: bool = False,
) -> list[PartitionInfo]:
    """Drop partitions, each given by its column values; gives those that were there.

    One that the lake or a checkpoint still needs is a `PartitionNeededError`, and nothing is
    dropped, unless `force`. May be repeated.
    """
    admin = connection.get_admin().result()
    path = TablePath.parse(table) if isinstance(table, str) else table
    wanted = [dict(spec) for spec in partitions]
    existing = admin.list_partition_infos(path).result()
    found = [p for p in existing if dict(p.spec) in wanted]
    if not force:
        info = admin.get_table_info(path).result()
        guards = usual_guards(connection, store)
        reasons = {
            p.partition_name: reason
            for p in found
            for reason in (guard.reason_to_keep(info, p) for guard in guards)
            if reason is not None
        }
        if reasons:
            raise PartitionNeededError(path, reasons)
    for partition in found:
        admin.drop_partition(path, dict(partition.spec), ignore_if_not_exists=True).result()
    return found
