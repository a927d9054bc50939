"""Offsets by bucket as JSON text: [[table id, partition id or null, bucket, offset], ...]."""

from __future__ import annotations

import json
from collections.abc import Mapping

from fluss_client.model.table import TableBucket


def offsets_to_text(offsets: Mapping[TableBucket, int]) -> str:
    """The map as text."""
    return json.dumps(
        [[b.table_id, b.partition_id, b.bucket_id, offset] for b, offset in offsets.items()]
    )


def offsets_from_text(text: str) -> dict[TableBucket, int]:
    """The map in a text."""
    return {
        TableBucket(table_id, bucket_id, partition_id=partition_id): offset
        for table_id, partition_id, bucket_id, offset in json.loads(text)
    }
