"""Conditions that sensors wait for: tables, partitions, rows, lake snapshots."""

from fluss_orchestrate.core.conditions.base import (
    Condition,
    Outcome,
    condition_from_json,
    holds,
    wait_until,
)
from fluss_orchestrate.core.conditions.lake import LakeCovers, LakeFresh, NewSnapshot
from fluss_orchestrate.core.conditions.rows import OffsetsReached, RowsCame
from fluss_orchestrate.core.conditions.tables import PartitionExists, TableExists

__all__ = [
    "Condition",
    "LakeCovers",
    "LakeFresh",
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
