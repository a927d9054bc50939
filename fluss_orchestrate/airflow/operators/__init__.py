"""Operators for Apache Fluss; each is imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fluss_orchestrate.lazy import lazy_names

if TYPE_CHECKING:
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
    from fluss_orchestrate.airflow.operators.provisioning import (
        FlussCreateDatabaseOperator,
        FlussDropPartitionsOperator,
        FlussPartitionWindowOperator,
        FlussProvisionTablesOperator,
    )
    from fluss_orchestrate.airflow.operators.scanning import FlussIncrementalScanOperator
    from fluss_orchestrate.airflow.operators.transfers import (
        FlussToIcebergOperator,
        FlussToSqlOperator,
    )
    from fluss_orchestrate.airflow.operators.writing import FlussWriteOperator

__getattr__ = lazy_names(
    __name__,
    {
        "checkpoints": (
            "FlussCheckpointAbandonOperator",
            "FlussCheckpointRetireOperator",
        ),
        "checks": (
            "FlussCheckFailedError",
            "FlussFreshnessCheckOperator",
            "FlussLagCheckOperator",
            "FlussRowCountCheckOperator",
        ),
        "transfers": (
            "FlussToIcebergOperator",
            "FlussToSqlOperator",
        ),
        "bulk_load": ("FlussBulkLoadOperator",),
        "lake": (
            "FlussCheckpointResetOperator",
            "FlussMaintainLakeOperator",
            "FlussTierToLakeOperator",
        ),
        "provisioning": (
            "FlussCreateDatabaseOperator",
            "FlussDropPartitionsOperator",
            "FlussPartitionWindowOperator",
            "FlussProvisionTablesOperator",
        ),
        "scanning": ("FlussIncrementalScanOperator",),
        "writing": ("FlussWriteOperator",),
    },
)

__all__ = [
    "FlussBulkLoadOperator",
    "FlussCheckFailedError",
    "FlussCheckpointAbandonOperator",
    "FlussCheckpointResetOperator",
    "FlussCheckpointRetireOperator",
    "FlussCreateDatabaseOperator",
    "FlussDropPartitionsOperator",
    "FlussFreshnessCheckOperator",
    "FlussIncrementalScanOperator",
    "FlussLagCheckOperator",
    "FlussMaintainLakeOperator",
    "FlussPartitionWindowOperator",
    "FlussProvisionTablesOperator",
    "FlussRowCountCheckOperator",
    "FlussTierToLakeOperator",
    "FlussToIcebergOperator",
    "FlussToSqlOperator",
    "FlussWriteOperator",
]
