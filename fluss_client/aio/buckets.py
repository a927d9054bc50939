"""The buckets of a table: how many each partition has.

`Backend.bucket_count` is the source of every bucket count. A partition keeps the count that it was
created with. So a table whose count was changed has partitions with different counts, and
`TableInfo.num_buckets` says only how many buckets the next partition gets.
"""

from __future__ import annotations

from fluss_client.aio.existence import existing_partitions
from fluss_client.backend.contract import Backend
from fluss_client.model.table import TableBucket, TableInfo


async def bucket_counts(backend: Backend, table: TableInfo) -> dict[int | None, int]:
    """Return the bucket count of every partition of a table.

    The system partition of a log table that takes rows of expired partitions is among them. That of
    a key table is not: it has changes, and no state.

    Args:
        backend: The backend of the table.
        table: The table.

    Returns:
        The counts by partition id, in the order of the server's list. A table without partitions
        has one entry, with the id None.

    Raises:
        InvalidBucketRoutingError: The server did not say how many buckets a partition has.
    """
    if not table.is_partitioned():
        return {None: table.num_buckets}
    if table.has_primary_key():
        partitions = await backend.list_partitions(table.table_path, None)
    else:
        partitions = await existing_partitions(backend, table)
    return {info.partition_id: table.bucket_count_of(info) for info in partitions}


async def all_buckets(backend: Backend, table: TableInfo) -> list[TableBucket]:
    """Return every bucket of a table, partition by partition.

    Args:
        backend: The backend of the table.
        table: The table.
    """
    return [
        TableBucket(table.table_id, bucket, partition_id=partition_id)
        for partition_id, count in (await bucket_counts(backend, table)).items()
        for bucket in range(count)
    ]
