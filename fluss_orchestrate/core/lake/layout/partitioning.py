"""The partition of an Iceberg table that the rows of a bucket belong to.

It has the values of the partition columns, and then the bucket: the column `__bucket`, or the
transform `bucket(n, key)` of a table with a bucket key. Only a table with neither, which is one
without a bucket key and without system columns, has no value for the bucket.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from fluss_client import TableInfo
from fluss_client.engine import parse_partition_name
from fluss_orchestrate.core.lake.data_files import partition_key
from fluss_orchestrate.core.lake.errors import LakeError
from fluss_orchestrate.core.lake.layout.system_columns import BUCKET
from fluss_orchestrate.core.plan import BucketRange, Place

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionKey
    from pyiceberg.table import Table


def has_bucket_field(table: Table) -> bool:
    """Return whether the partition of a data file tells its bucket."""
    from pyiceberg.transforms import BucketTransform

    fields = table.spec().fields
    if not fields:
        return False
    source = table.schema().find_column_name(fields[-1].source_id)
    return source == BUCKET or isinstance(fields[-1].transform, BucketTransform)


def check_bucket_counts(table: Table, info: TableInfo, places: Iterable[Place]) -> None:
    """Raise if a partition has another number of buckets than the Iceberg table is made for.

    Query engines look for a key in the bucket that the transform `bucket(n, key)` says. They would
    miss the rows of a partition that has another number of buckets.

    Args:
        table: The Iceberg table.
        info: The Fluss table.
        places: All buckets of all partitions.

    Raises:
        LakeError: There is such a partition.
    """
    from pyiceberg.transforms import BucketTransform

    fields = table.spec().fields
    transform = fields[-1].transform if fields else None
    if not isinstance(transform, BucketTransform):
        return
    counts: dict[int | None, int] = {}
    for partition_id, bucket in places:
        counts[partition_id] = max(counts.get(partition_id, 0), bucket + 1)
    for partition_id, count in counts.items():
        if count != transform.num_buckets:
            raise LakeError(
                info.table_path,
                f"partition {partition_id} has {count} buckets, and its Iceberg table is "
                f"partitioned by {transform} of the key: readers of the lake would look for keys "
                "in the wrong bucket. Rescaled tables cannot have a lake in Iceberg; copy the rows "
                "to a new table",
            )


def partition_values(info: TableInfo, part: BucketRange) -> tuple[Any, ...]:
    """The values of the partition columns of a bucket."""
    if part.partition is None:
        return ()
    return tuple(parse_partition_name(part.partition, info.partition_keys).values())


def partition_of(table: Table, info: TableInfo, part: BucketRange) -> PartitionKey | None:
    """The partition of the Iceberg table that the rows of a bucket belong to; None without any.

    Raises:
        LakeError: The Iceberg table is partitioned in another way.
    """
    values = partition_values(info, part)
    fields = table.spec().fields
    by_bucket = has_bucket_field(table)
    columns = fields[:-1] if by_bucket else fields
    names = [table.schema().find_column_name(f.source_id) for f in columns]
    wanted = [] if part.partition is None else list(info.partition_keys)
    needs_bucket = bool(info.bucket_keys) or BUCKET in table.schema().column_names
    if names != wanted or by_bucket != needs_bucket:
        raise LakeError(
            info.table_path,
            f"its Iceberg table is partitioned by {[f.name for f in fields]}, not by the "
            f"partition columns {list(info.partition_keys)}"
            + (" and the bucket" if needs_bucket else ""),
        )
    if not fields:
        return None
    return partition_key(table, [*values, *([part.bucket] if by_bucket else [])])
