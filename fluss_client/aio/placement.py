"""The partition and the bucket of each row, by its columns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_client.codec.buckets import assign_buckets
from fluss_client.codec.keys import encode_keys, key_encoding_for
from fluss_client.codec.partition_names import partition_names
from fluss_client.model.table import TableInfo


class Placement:
    """Places rows of one table; they need no more columns than those that place them."""

    def __init__(self, table: TableInfo) -> None:
        types = {column.name: column.type for column in table.schema.columns}
        self.bucket_count = table.num_buckets
        self._partition_keys = table.partition_keys
        self._partition_types = [types[name] for name in table.partition_keys]
        self._keys = table.bucket_keys or table.physical_primary_keys
        self._key_types = [types[name] for name in self._keys]
        if self._keys:
            # Also for a single bucket: it refuses tables whose keys no client can write.
            _, self._encoding = key_encoding_for(
                table.properties, table.bucket_keys, table.physical_primary_keys, types
            )

    @property
    def by_key(self) -> bool:
        """Whether a row's columns decide on its bucket."""
        return bool(self._keys)

    def partitions(self, rows: pa.RecordBatch) -> tuple[list[str], npt.NDArray[np.int64] | None]:
        """Distinct names, and which one each row belongs to; none in a table without partitions."""
        if not self._partition_keys:
            return [], None
        columns = [rows.column(name) for name in self._partition_keys]
        return partition_names(columns, self._partition_types)

    def buckets(self, rows: pa.RecordBatch) -> npt.NDArray[np.int64] | None:
        """The bucket of each row of a table with keys; None where there is only one."""
        if self.bucket_count == 1:
            return None
        columns = [rows.column(name) for name in self._keys]
        keys = encode_keys(columns, self._key_types, self._keys, self._encoding)
        return assign_buckets(keys, self.bucket_count, self._encoding).astype(np.int64)


def numbered(
    partitions: npt.NDArray[np.int64] | None,
    buckets: npt.NDArray[np.int64] | None,
    bucket_count: int,
) -> npt.NDArray[np.int64] | None:
    """Partition and bucket of each row in one number; None where all rows have the same place."""
    if partitions is None:
        return buckets
    if buckets is None:
        return partitions * bucket_count
    return partitions * bucket_count + buckets
