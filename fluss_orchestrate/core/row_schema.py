"""The key of the rows of a plan, as metadata of their Arrow schema.

A sink that writes rows by key must know the key. The schema of the rows says it, so that it reaches
the sink through everything that passes rows on (filters, transformations, Spark).
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa

_PRIMARY_KEY = b"fluss.primary-key"
_PARTITION_KEY = b"fluss.partition-key"


def with_keys(
    schema: pa.Schema, primary_key: Sequence[str], partition_key: Sequence[str]
) -> pa.Schema:
    """Return the schema with the names of the columns of the keys in its metadata."""
    keys = {_PRIMARY_KEY: json.dumps(list(primary_key))}
    if partition_key:
        keys[_PARTITION_KEY] = json.dumps(list(partition_key))
    return schema.with_metadata({**(schema.metadata or {}), **keys})


def primary_key_of(schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns of the primary key; empty if the rows are those of a log table."""
    return _names(schema, _PRIMARY_KEY)


def partition_key_of(schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns of the partition key; empty if the table has no partitions."""
    return _names(schema, _PARTITION_KEY)


def _names(schema: pa.Schema, key: bytes) -> tuple[str, ...]:
    text = (schema.metadata or {}).get(key)
    return () if text is None else tuple(json.loads(text))
