"""The bucket counts by which rows are placed, for partitions that are known by their names only.

A partition keeps the count that it was created with. One that does not exist yet will have the
count of the table as it is then, which may differ from the one that is known here. So whoever sends
placed rows passes the count on: the server refuses rows that were placed by another one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fluss_client import FlussConnection, TableInfo
from fluss_client.engine import Backend, backend_of, run_blocking
from fluss_client.errors import PartitionNotExistError

CountOf = Callable[[str | None], int]
"""Returns the bucket count of a partition by its name; of the table, for None."""


def counts_of(backend: Backend, info: TableInfo) -> CountOf:
    """Return the bucket counts of the partitions of a table, asked for as they are needed. Blocks.

    The counts of partitions that do not exist yet are asked for again each time.
    """
    known: dict[str, int] = {}

    async def ask(name: str) -> int:
        try:
            partition_id = await backend.partition_id(info, name)
        except PartitionNotExistError:
            newest = await backend.get_table_info(info.table_path)
            return newest.num_buckets
        known[name] = await backend.bucket_count(info, partition_id)
        return known[name]

    def count(name: str | None) -> int:
        if name is None:
            return info.num_buckets
        return known[name] if name in known else run_blocking(ask(name))

    return count


def listed_counts(connection: FlussConnection, info: TableInfo) -> Mapping[str | None, int]:
    """Return the bucket counts of all partitions by name. Blocks.

    The value of None is that of the table, which partitions get that are created later.
    """
    if not info.is_partitioned():
        return {None: info.num_buckets}
    backend = backend_of(connection)

    async def ask() -> dict[str | None, int]:
        newest = await backend.get_table_info(info.table_path)
        listed = await backend.list_partitions(info.table_path, None)
        found: dict[str | None, int] = {None: newest.num_buckets}
        return found | {p.partition_name: newest.bucket_count_of(p) for p in listed}

    return run_blocking(ask())
