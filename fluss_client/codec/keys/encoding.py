"""Decides which encoding the keys of a table have.

| `table.datalake.format` | kv format 1, or bucket key = physical primary key | other bucket key |
|-------------------------|----------------------------------------------------|------------------|
| none, lance             | compacted                                          | compacted        |
| iceberg, paimon         | the lake's                                         | compacted        |

The physical primary key is the primary key without the partition columns. The bucket key is always
in the lake's encoding, or compacted without a lake. Bucket keys for Hudi are not supported.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence

from fluss_client.errors import UnsupportedError
from fluss_client.model.types import DataType

LAKE_FORMAT_OPTION = "table.datalake.format"
KV_VERSION_OPTION = "table.kv.format-version"


class KeyEncoding(enum.Enum):
    """How the bytes of a key are made; it decides too which hash finds the bucket."""

    COMPACTED = "compacted"
    ICEBERG = "iceberg"
    PAIMON = "paimon"


_OF_LAKE = {
    "": KeyEncoding.COMPACTED,
    "lance": KeyEncoding.COMPACTED,
    "iceberg": KeyEncoding.ICEBERG,
    "paimon": KeyEncoding.PAIMON,
}


def key_encoding_for(
    properties: Mapping[str, str],
    bucket_keys: Sequence[str],
    physical_primary_keys: Sequence[str],
    types: Mapping[str, DataType] | None = None,
) -> tuple[KeyEncoding, KeyEncoding]:
    """Return the encodings of a table's primary key and of its bucket key.

    A log table has no primary key: its first encoding has no meaning.

    Args:
        properties: The options of the table.
        bucket_keys: The bucket key; empty if it is the physical primary key.
        physical_primary_keys: The primary key without the partition columns.
        types: The types of the columns by name; they are checked if given.

    Raises:
        UnsupportedError: A server creates such a table, but no client can write it: Iceberg takes
            one key column, of some types only.
    """
    lake = properties.get(LAKE_FORMAT_OPTION, "").strip().lower()
    if lake not in _OF_LAKE:
        raise UnsupportedError(
            f"{LAKE_FORMAT_OPTION}={lake}: this client writes keys for paimon, iceberg and lance"
        )
    version = properties.get(KV_VERSION_OPTION, "1").strip()
    if version not in ("1", "2"):
        raise UnsupportedError(f"{KV_VERSION_OPTION}={version}: this client knows 1 and 2")
    bucket_keys = bucket_keys or physical_primary_keys
    bucket = _OF_LAKE[lake]
    own = version == "1" or list(bucket_keys) == list(physical_primary_keys)
    primary = bucket if own else KeyEncoding.COMPACTED
    for names, encoding in ((bucket_keys, bucket), (physical_primary_keys, primary)):
        if names:
            known = None if types is None else [types[name] for name in names]
            check_key_columns(names, known, encoding)
    return primary, bucket


def check_key_columns(
    names: Sequence[str], types: Sequence[DataType] | None, encoding: KeyEncoding
) -> None:
    """Raise UnsupportedError if this encoding has no form for these columns."""
    if encoding is KeyEncoding.ICEBERG and len(names) != 1:
        raise UnsupportedError(
            f"Iceberg buckets by one column, not by ({', '.join(names)}): Fluss clients cannot "
            "write this table; create it with a bucket key of one column"
        )
    if types is None:
        return
    iceberg = encoding is KeyEncoding.ICEBERG
    for name, data_type in zip(names, types, strict=True):
        if data_type.is_nested or (iceberg and data_type.layout.iceberg_key is None):
            raise UnsupportedError(
                f"column '{name}': {data_type.text} cannot be a key in {encoding.value} encoding"
            )
