"""Apache Fluss in Airflow: hook, assets, operators, sensors, triggers.

Every name is importable from here and imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fluss_orchestrate.lazy import lazy_names

if TYPE_CHECKING:
    from fluss_orchestrate.airflow.assets import fluss_table_asset
    from fluss_orchestrate.airflow.errors import FlussTaskError, FlussTaskFailedError
    from fluss_orchestrate.airflow.hooks import FlussHook
    from fluss_orchestrate.airflow.operators.lake import (
        FlussCheckpointResetOperator,
        FlussTierToLakeOperator,
    )
    from fluss_orchestrate.airflow.operators.provisioning import (
        FlussCreateDatabaseOperator,
        FlussDropPartitionsOperator,
        FlussPartitionWindowOperator,
        FlussProvisionTablesOperator,
    )
    from fluss_orchestrate.airflow.operators.scanning import FlussIncrementalScanOperator
    from fluss_orchestrate.airflow.operators.writing import FlussWriteOperator
    from fluss_orchestrate.airflow.receipts import receipt_from
    from fluss_orchestrate.airflow.targets import (
        FlussTarget,
        IcebergTarget,
        ParquetTarget,
        SqlTarget,
    )

__getattr__ = lazy_names(
    __name__,
    {
        "assets": ("fluss_table_asset",),
        "errors": ("FlussTaskError", "FlussTaskFailedError"),
        "hooks": ("FlussHook",),
        "operators.lake": ("FlussCheckpointResetOperator", "FlussTierToLakeOperator"),
        "operators.provisioning": (
            "FlussCreateDatabaseOperator",
            "FlussDropPartitionsOperator",
            "FlussPartitionWindowOperator",
            "FlussProvisionTablesOperator",
        ),
        "operators.scanning": ("FlussIncrementalScanOperator",),
        "operators.writing": ("FlussWriteOperator",),
        "receipts": ("receipt_from",),
        "targets": ("FlussTarget", "IcebergTarget", "ParquetTarget", "SqlTarget"),
    },
)

__all__ = [
    "FlussCheckpointResetOperator",
    "FlussCreateDatabaseOperator",
    "FlussDropPartitionsOperator",
    "FlussHook",
    "FlussIncrementalScanOperator",
    "FlussPartitionWindowOperator",
    "FlussProvisionTablesOperator",
    "FlussTarget",
    "FlussTaskError",
    "FlussTaskFailedError",
    "FlussTierToLakeOperator",
    "FlussWriteOperator",
    "IcebergTarget",
    "ParquetTarget",
    "SqlTarget",
    "fluss_table_asset",
    "receipt_from",
]
