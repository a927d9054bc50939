"""Tables and partitions that exist before the data arrives, and go away on time."""

from fluss_orchestrate.core.provisioning.apply import apply, plan
from fluss_orchestrate.core.provisioning.changes import (
    AddColumns,
    Change,
    CreateDatabase,
    CreatePartition,
    CreateTable,
    ProvisionPlan,
    RebuildNeededError,
    SetOptions,
)
from fluss_orchestrate.core.provisioning.spec import ColumnSpec, TableSpec, load_specs
from fluss_orchestrate.core.provisioning.window import (
    PartitionWindow,
    WindowPlan,
    apply_window,
    plan_window,
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
    "SetOptions",
    "TableSpec",
    "WindowPlan",
    "apply",
    "apply_window",
    "load_specs",
    "plan",
    "plan_window",
]
