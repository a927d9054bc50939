"""Apache Fluss in Airflow: hook, assets, operators, sensors, triggers.

Every name is importable from here and imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fluss_orchestrate.lazy import lazy_names

if TYPE_CHECKING:
    from fluss_orchestrate.airflow.assets import fluss_table_asset
    from fluss_orchestrate.airflow.contracts import ContractTarget
    from fluss_orchestrate.airflow.errors import FlussTaskError, FlussTaskFailedError
    from fluss_orchestrate.airflow.hooks import FlussHook
    from fluss_orchestrate.airflow.notifiers import FlussLagNotifier
    from fluss_orchestrate.airflow.operators.bulk_load import FlussBulkLoadOperator
    from fluss_orchestrate.airflow.operators.checkpoints import (
        FlussCheckpointAbandonOperator,
        FlussCheckpointRetireOperator,
    )
    from fluss_orchestrate.airflow.operators.checks import (
        FlussCheckFailedError,
        FlussFreshnessCheckOperator,
        FlussLagCheckOperator,
        FlussRowCountCheckOperator,
    )
    from fluss_orchestrate.airflow.operators.lake import (
        FlussCheckpointResetOperator,
        FlussMaintainLakeOperator,
        FlussTierToLakeOperator,
    )
    from fluss_orchestrate.airflow.operators.mirrors import (
        FlussMirrorCheckOperator,
        FlussMirrorDatabaseOperator,
        FlussMirrorOperator,
    )
    from fluss_orchestrate.airflow.operators.provisioning import (
        FlussCreateDatabaseOperator,
        FlussDropPartitionsOperator,
        FlussPartitionWindowOperator,
        FlussProvisionTablesOperator,
    )
    from fluss_orchestrate.airflow.operators.scanning import (
        FlussIncrementalScanOperator,
        FlussToIcebergOperator,
        FlussToSqlOperator,
    )
    from fluss_orchestrate.airflow.operators.writing import FlussWriteOperator
    from fluss_orchestrate.airflow.receipts import receipt_from
    from fluss_orchestrate.airflow.sensors import (
        FlussLakeSnapshotSensor,
        FlussOffsetSensor,
        FlussPartitionSensor,
        FlussTableSensor,
    )
    from fluss_orchestrate.airflow.targets import (
        FlussTarget,
        IcebergTarget,
        ParquetTarget,
        SqlTarget,
    )
    from fluss_orchestrate.airflow.triggers.loading import FlussLoadTrigger
    from fluss_orchestrate.airflow.triggers.waiting import FlussConditionTrigger
    from fluss_orchestrate.airflow.triggers.watching import (
        FlussLakeSnapshotTrigger,
        FlussOffsetTrigger,
    )

__getattr__ = lazy_names(
    __name__,
    {
        "operators.checkpoints": (
            "FlussCheckpointAbandonOperator",
            "FlussCheckpointRetireOperator",
        ),
        "operators.checks": (
            "FlussCheckFailedError",
            "FlussFreshnessCheckOperator",
            "FlussLagCheckOperator",
            "FlussRowCountCheckOperator",
        ),
        "notifiers": ("FlussLagNotifier",),
        "assets": ("fluss_table_asset",),
        "errors": ("FlussTaskError", "FlussTaskFailedError"),
        "hooks": ("FlussHook",),
        "operators.bulk_load": ("FlussBulkLoadOperator",),
        "operators.lake": (
            "FlussCheckpointResetOperator",
            "FlussMaintainLakeOperator",
            "FlussTierToLakeOperator",
        ),
        "operators.mirrors": (
            "FlussMirrorCheckOperator",
            "FlussMirrorDatabaseOperator",
            "FlussMirrorOperator",
        ),
        "operators.provisioning": (
            "FlussCreateDatabaseOperator",
            "FlussDropPartitionsOperator",
            "FlussPartitionWindowOperator",
            "FlussProvisionTablesOperator",
        ),
        "operators.scanning": (
            "FlussIncrementalScanOperator",
            "FlussToIcebergOperator",
            "FlussToSqlOperator",
        ),
        "operators.writing": ("FlussWriteOperator",),
        "receipts": ("receipt_from",),
        "sensors": (
            "FlussLakeSnapshotSensor",
            "FlussOffsetSensor",
            "FlussPartitionSensor",
            "FlussTableSensor",
        ),
        "triggers.loading": ("FlussLoadTrigger",),
        "triggers.waiting": ("FlussConditionTrigger",),
        "triggers.watching": ("FlussLakeSnapshotTrigger", "FlussOffsetTrigger"),
        "contracts": ("ContractTarget",),
        "targets": ("FlussTarget", "IcebergTarget", "ParquetTarget", "SqlTarget"),
    },
)

__all__ = [
    "ContractTarget",
    "FlussBulkLoadOperator",
    "FlussCheckFailedError",
    "FlussCheckpointAbandonOperator",
    "FlussCheckpointResetOperator",
    "FlussCheckpointRetireOperator",
    "FlussConditionTrigger",
    "FlussCreateDatabaseOperator",
    "FlussDropPartitionsOperator",
    "FlussFreshnessCheckOperator",
    "FlussHook",
    "FlussIncrementalScanOperator",
    "FlussLagCheckOperator",
    "FlussLagNotifier",
    "FlussLakeSnapshotSensor",
    "FlussLakeSnapshotTrigger",
    "FlussLoadTrigger",
    "FlussMaintainLakeOperator",
    "FlussMirrorCheckOperator",
    "FlussMirrorDatabaseOperator",
    "FlussMirrorOperator",
    "FlussOffsetSensor",
    "FlussOffsetTrigger",
    "FlussPartitionSensor",
    "FlussPartitionWindowOperator",
    "FlussProvisionTablesOperator",
    "FlussRowCountCheckOperator",
    "FlussTableSensor",
    "FlussTarget",
    "FlussTaskError",
    "FlussTaskFailedError",
    "FlussTierToLakeOperator",
    "FlussToIcebergOperator",
    "FlussToSqlOperator",
    "FlussWriteOperator",
    "IcebergTarget",
    "ParquetTarget",
    "SqlTarget",
    "fluss_table_asset",
    "receipt_from",
]
