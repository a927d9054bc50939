"""Provisioning: tables and partitions are created before the data arrives, and dropped on time."""

from fluss_orchestrate.core.provisioning.apply import (
    AddColumns,
    Change,
    CreateDatabase,
    CreatePartition,
    CreateTable,
    ProvisionPlan,
    RebuildNeededError,
    RescaleTable,
    SetOptions,
    apply_tables,
    plan_tables,
)
from fluss_orchestrate.core.provisioning.spec import ColumnSpec, TableSpec, load_table_specs
from fluss_orchestrate.core.provisioning.window import (
    PartitionWindow,
    WindowPlan,
    apply_partition_window,
    plan_partition_window,
)

__all__ = [
    "AddColumns",
    "Change",
    "ColumnSpec",
    "CreateDatabase",
    "CreatePartition",
    "CreateTable",
    "PartitionWindow",
    "ProvisionPlan",
    "RebuildNeededError",
    "RescaleTable",
    "SetOptions",
    "TableSpec",
    "WindowPlan",
    "apply_partition_window",
    "apply_tables",
    "load_table_specs",
    "plan_partition_window",
    "plan_tables",
]
