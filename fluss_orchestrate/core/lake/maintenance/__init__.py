"""Maintenance of the lake of a table: few files, few snapshots, no unreferenced files."""

from fluss_orchestrate.core.lake.maintenance.run import (
    LakeMaintenance,
    MaintenanceSettings,
    maintain_lake,
    pin_lake,
)

__all__ = ["LakeMaintenance", "MaintenanceSettings", "maintain_lake", "pin_lake"]
