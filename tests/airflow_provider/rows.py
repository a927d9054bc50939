"""Rows and tables that these tests use."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from fluss_orchestrate.core.provisioning import TableSpec


def numbers_spec(database: str, name: str = "numbers", **options: Any) -> TableSpec:
    """A log table of numbered words."""
    value = {"table": f"{database}.{name}", "columns": {"id": "bigint", "word": "string"}}
    return TableSpec.from_mapping({**value, "buckets": 2, **options})


def numbered(start: int, stop: int) -> pa.Table:
    """The rows with these numbers."""
    ids = list(range(start, stop))
    return pa.table({"id": pa.array(ids, pa.int64()), "word": [f"w{n}" for n in ids]})
