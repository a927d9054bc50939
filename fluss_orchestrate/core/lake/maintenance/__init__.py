"""Keeping the lake of a table healthy: few files, few snapshots, nothing that nobody refers to."""

from fluss_orchestrate.core.lake.maintenance.run import (
    LakeMaintenance,
    MaintenanceSettings,
    maintain_lake,
    pin_lake,
)

__all__ = ["LakeMaintenance", "MaintenanceSettings", "maintain_lake", "pin_lake"]
