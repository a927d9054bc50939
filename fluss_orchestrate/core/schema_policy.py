"""What a sink does when a plan has columns that it lacks."""

from __future__ import annotations

import enum
from collections.abc import Iterable

import pyarrow as pa

from fluss_orchestrate.core.sink_errors import SinkSchemaError


class SchemaPolicy(enum.StrEnum):
    """`error` refuses; `add_columns` adds them at the end, nullable, and never drops or changes."""

    ERROR = "error"
    ADD_COLUMNS = "add_columns"


def columns_to_add(
    sink: str, present: Iterable[str], wanted: pa.Schema, policy: SchemaPolicy
) -> list[pa.Field]:
    """The columns of `wanted` that the sink lacks, or `SinkSchemaError` if it may not add them."""
    have = set(present)
    missing = [field for field in wanted if field.name not in have]
    if missing and policy is SchemaPolicy.ERROR:
        names = [field.name for field in missing]
        raise SinkSchemaError(
            sink,
            f"it has no column {', '.join(names)}; add them there, or let the sink add them with "
            "schema_policy='add_columns'. To read without them (columns=), `abandon` the pending "
            "plan first, which pins its columns, and `reset` the checkpoint to current if it has "
            "committed plans",
            names,
        )
    return [field.with_nullable(True) for field in missing]
