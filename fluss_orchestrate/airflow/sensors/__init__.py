"""Sensors for Apache Fluss; each is imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fluss_orchestrate.lazy import lazy_names

if TYPE_CHECKING:
    from fluss_orchestrate.airflow.sensors.lake import FlussLakeSnapshotSensor
    from fluss_orchestrate.airflow.sensors.offsets import FlussOffsetSensor
    from fluss_orchestrate.airflow.sensors.tables import FlussPartitionSensor, FlussTableSensor

__getattr__ = lazy_names(
    __name__,
    {
        "lake": ("FlussLakeSnapshotSensor",),
        "offsets": ("FlussOffsetSensor",),
        "tables": ("FlussPartitionSensor", "FlussTableSensor"),
    },
)

__all__ = [
    "FlussLakeSnapshotSensor",
    "FlussOffsetSensor",
    "FlussPartitionSensor",
    "FlussTableSensor",
]
