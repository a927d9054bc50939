"""The lake of a table: its status, waiting for it, reading it, and tiering."""

from fluss_orchestrate.core.lake.catalog import (
    catalog_properties,
    has_lake,
    load_lake_table,
    open_catalog,
    redacted,
)
from fluss_orchestrate.core.lake.covers import (
    LakeTarget,
    Target,
    freeze_target,
    lake_covers,
    wait_for_snapshot,
    wait_for_snapshot_blocking,
)
from fluss_orchestrate.core.lake.equality_deletes import read_with_deletes
from fluss_orchestrate.core.lake.errors import (
    CatalogError,
    CatalogUnreachableError,
    CommitConflictError,
    CommitUnknownError,
    EqualityDeleteError,
    LakeContendedError,
    LakeError,
    LakeLayoutError,
    LakeOffsetsUnknownError,
    LakeRangeError,
    LakeTimesUnknownError,
    NoLakeError,
    RowDeltaError,
    TieringContendedError,
    TieringFencedError,
    TieringNotAllowedError,
    TieringVerifyError,
    WaitTimedOutError,
)
from fluss_orchestrate.core.lake.maintenance import (
    LakeMaintenance,
    MaintenanceSettings,
    maintain_lake,
    pin_lake,
)
from fluss_orchestrate.core.lake.reader import lake_reader, read_lake_offsets
from fluss_orchestrate.core.lake.row_delta import (
    RowDelta,
    RowDeltaWriter,
    commit_row_delta,
)
from fluss_orchestrate.core.lake.state import read_receipt, read_table
from fluss_orchestrate.core.lake.status import BucketLag, LakeStatus, lake_status
from fluss_orchestrate.core.lake.tiering import tier_table
from fluss_orchestrate.core.lake.tiering_worker import TieringWorker

__all__ = [
    "BucketLag",
    "CatalogError",
    "CatalogUnreachableError",
    "CommitConflictError",
    "CommitUnknownError",
    "EqualityDeleteError",
    "LakeContendedError",
    "LakeError",
    "LakeLayoutError",
    "LakeMaintenance",
    "LakeOffsetsUnknownError",
    "LakeRangeError",
    "LakeStatus",
    "LakeTarget",
    "LakeTimesUnknownError",
    "MaintenanceSettings",
    "NoLakeError",
    "RowDelta",
    "RowDeltaError",
    "RowDeltaWriter",
    "Target",
    "TieringContendedError",
    "TieringFencedError",
    "TieringNotAllowedError",
    "TieringVerifyError",
    "TieringWorker",
    "WaitTimedOutError",
    "catalog_properties",
    "commit_row_delta",
    "freeze_target",
    "has_lake",
    "lake_covers",
    "lake_reader",
    "lake_status",
    "load_lake_table",
    "maintain_lake",
    "open_catalog",
    "pin_lake",
    "read_lake_offsets",
    "read_receipt",
    "read_table",
    "read_with_deletes",
    "redacted",
    "tier_table",
    "wait_for_snapshot",
    "wait_for_snapshot_blocking",
]
