"""Conditions that sensors wait for: tables, partitions, rows, lake snapshots."""

from fluss_orchestrate.core.conditions.base import (
    Condition,
    Outcome,
    condition_from_json,
    holds,
    wait_until,
)
from fluss_orchestrate.core.conditions.lake import LakeCovers, LakeFresh, NewSnapshot
from fluss_orchestrate.core.conditions.tables import (
    OffsetsReached,
    PartitionExists,
    RowsCame,
    TableExists,
)
from fluss_orchestrate.core.polling import LookReport

__all__ = [
    "Condition",
    "LakeCovers",
    "LakeFresh",
    "LookReport",
    "NewSnapshot",
    "OffsetsReached",
    "Outcome",
    "PartitionExists",
    "RowsCame",
    "TableExists",
    "condition_from_json",
    "holds",
    "wait_until",
]
