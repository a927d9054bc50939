"""Triggers for Apache Fluss; each is imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fluss_orchestrate.lazy import lazy_names

if TYPE_CHECKING:
    from fluss_orchestrate.airflow.triggers.waiting import FlussConditionTrigger
    from fluss_orchestrate.airflow.triggers.watching import (
        FlussLakeSnapshotTrigger,
        FlussOffsetTrigger,
    )

__getattr__ = lazy_names(
    __name__,
    {
        "waiting": ("FlussConditionTrigger",),
        "watching": ("FlussLakeSnapshotTrigger", "FlussOffsetTrigger"),
    },
)

__all__ = ["FlussConditionTrigger", "FlussLakeSnapshotTrigger", "FlussOffsetTrigger"]
