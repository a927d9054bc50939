"""The keys of look-ups as bytes, with their bucket and partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_client.codec.binary.blobs import Blobs
from fluss_client.codec.buckets import assign_buckets, bucket_of
from fluss_client.codec.keys import (
    KeyEncoding,
    encode_key_scalar,
    encode_keys,
    key_encoding_for,
)
from fluss_client.codec.partition_names import partition_name, partition_names
from fluss_client.errors import RowError
from fluss_client.model.arrow import arrow_type
from fluss_client.model.table import TableInfo
from fluss_client.model.types import DataType

KeyLike = Mapping[str, Any] | Sequence[Any]
"""A key: a mapping by column name, or values in the order of the key columns."""


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """Columns that are encoded together."""

    names: tuple[str, ...]
    types: tuple[DataType, ...]
    encoding: KeyEncoding


@dataclass(frozen=True, slots=True)
class EncodedKeys:
    """The bytes and the partition of each key, and what decides on its bucket."""

    keys: Blobs
    hashed: Blobs
    """The columns of each key that decide on its bucket."""
    partitions: tuple[str, ...]
    """Distinct partition names; empty for a table without partitions."""
    partition_codes: npt.NDArray[np.int64] | None


class KeyMaker:
    """Encodes keys of one table.

    Args:
        table: The table.
        columns: The columns that a caller passes, in that order.
        key_columns: Those of them that the server expects as the key.
    """

    def __init__(
        self, table: TableInfo, columns: Sequence[str], key_columns: Sequence[str]
    ) -> None:
        schema = table.schema
        types = {c.name: c.type for c in schema.columns}
        primary, bucket = key_encoding_for(
            table.properties, table.bucket_keys, table.physical_primary_keys, types
        )
        bucket_keys = table.bucket_keys or table.physical_primary_keys
        self.columns = tuple(columns)
        self._types = types
        self._key = self._group(key_columns, primary)
        self._bucket = self._group(bucket_keys, bucket)
        self._same = self._key.names == self._bucket.names and primary is bucket
        self._partition = tuple(table.partition_keys)

    def _group(self, names: Sequence[str], encoding: KeyEncoding) -> KeyColumns:
        return KeyColumns(tuple(names), tuple(self._types[n] for n in names), encoding)

    def values(self, key: KeyLike) -> dict[str, Any]:
        """Return the value of each column of a key.

        Args:
            key: A mapping of the key's columns to values, or the values in the order of the
                columns.

        Raises:
            RowError: A column is missing, unknown or null.
        """
        if isinstance(key, Mapping):
            if key.keys() != set(self.columns):
                raise RowError(
                    f"a key has the columns {list(self.columns)}, not {list(key.keys())}"
                )
            values = dict(key)
        elif isinstance(key, str | bytes) or not isinstance(key, Sequence):
            raise RowError(f"a key is a dict, list or tuple, not {type(key).__name__}")
        elif len(key) != len(self.columns):
            raise RowError(f"a key has the columns {list(self.columns)}, not {len(key)} values")
        else:
            values = dict(zip(self.columns, key, strict=True))
        for name, value in values.items():
            if value is None:
                raise RowError(f"column '{name}' is part of the key and must not be null")
        return values

    def encode_one(self, key: KeyLike) -> tuple[bytes, bytes, str | None]:
        """Return the bytes of one key, what `bucket` takes, and its partition name.

        Args:
            key: A mapping of the key's columns to values, or the values in the order of the
                columns.

        Raises:
            RowError: A column is missing, unknown or null, or a value does not fit its type.
        """
        values = self.values(key)
        encoded = self._scalar(self._key, values)
        hashed = encoded if self._same else self._scalar(self._bucket, values)
        name = None
        if self._partition:
            name = partition_name(
                [values[p] for p in self._partition], [self._types[p] for p in self._partition]
            )
        return encoded, hashed, name

    def bucket(self, hashed: bytes, bucket_count: int) -> int:
        """Return the bucket of a key in a partition with so many buckets.

        Args:
            hashed: The second result of `encode_one`.
            bucket_count: The bucket count of the key's partition.
        """
        return bucket_of(hashed, bucket_count, self._bucket.encoding) if bucket_count > 1 else 0

    def buckets(self, hashed: Blobs, bucket_count: int) -> npt.NDArray[np.int32]:
        """Return the bucket of each of some keys in a partition with so many buckets.

        Args:
            hashed: Values of `EncodedKeys.hashed`.
            bucket_count: The bucket count of the keys' partition.
        """
        return assign_buckets(hashed, bucket_count, self._bucket.encoding)

    def _scalar(self, group: KeyColumns, values: Mapping[str, Any]) -> bytes:
        wanted = [values[name] for name in group.names]
        return encode_key_scalar(wanted, group.types, group.names, group.encoding)

    def encode_many(self, keys: pa.Table | pa.RecordBatch | Sequence[KeyLike]) -> EncodedKeys:
        """Return the bytes and partitions of many keys, and what `buckets` takes.

        Args:
            keys: Arrow data with the key's columns, or a sequence of keys as `encode_one` takes
                them.

        Raises:
            RowError: A column is missing, unknown or null, or a value does not fit its type.
        """
        columns = self._columns_of(keys)
        encoded = self._vector(self._key, columns)
        hashed = encoded if self._same else self._vector(self._bucket, columns)
        if not self._partition:
            return EncodedKeys(encoded, hashed, (), None)
        names, codes = partition_names(
            [columns[p] for p in self._partition], [self._types[p] for p in self._partition]
        )
        return EncodedKeys(encoded, hashed, tuple(names), codes.astype(np.int64))

    def _vector(self, group: KeyColumns, columns: Mapping[str, pa.Array]) -> Blobs:
        wanted = [columns[name] for name in group.names]
        return encode_keys(wanted, group.types, group.names, group.encoding)

    def _columns_of(
        self, keys: pa.Table | pa.RecordBatch | Sequence[KeyLike]
    ) -> dict[str, pa.Array]:
        columns: dict[str, pa.Array] = {}
        if isinstance(keys, pa.Table | pa.RecordBatch):
            for name in self.columns:
                if name not in keys.schema.names:
                    raise RowError(
                        f"the keys need a column '{name}'; {keys.schema.names} are there"
                    )
                column = keys.column(name)
                if isinstance(column, pa.ChunkedArray):
                    column = column.combine_chunks()
                    if isinstance(column, pa.ChunkedArray):
                        column = pa.concat_arrays(column.chunks)
                columns[name] = _cast(column, self._types[name], name)
            return columns
        rows = [self.values(key) for key in keys]
        for name in self.columns:
            target = arrow_type(self._types[name])
            try:
                columns[name] = pa.array([row[name] for row in rows], target)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise RowError(f"column '{name}' of a key: {error}") from None
        return columns


def _cast(column: pa.Array, data_type: DataType, name: str) -> pa.Array:
    target = arrow_type(data_type)
    if column.type.equals(target):
        return column
    try:
        return column.cast(target)
    except pa.ArrowException as error:
        raise RowError(f"column '{name}' of the keys: {error}") from None
