"""The lake of a table: how far it is, waiting for it, reading it, and filling it."""

from fluss_orchestrate.core.lake.catalog import (
    catalog_properties,
    has_lake,
    load_lake_table,
    open_catalog,
    redacted,
)
from fluss_orchestrate.core.lake.covers import LakeTarget, Target, covers, freeze_target
from fluss_orchestrate.core.lake.errors import (
    CommitConflictError,
    KeyTableTieringError,
    LakeError,
    LakeRangeError,
    NoLakeError,
    TieringContendedError,
    TieringFencedError,
    TieringNotAllowedError,
    TieringVerifyError,
    WaitTimedOutError,
)
from fluss_orchestrate.core.lake.reader import lake_reader, read_lake_offsets
from fluss_orchestrate.core.lake.state import read_receipt, read_table
from fluss_orchestrate.core.lake.status import BucketLag, LakeStatus, lake_status
from fluss_orchestrate.core.lake.tiering import tier
from fluss_orchestrate.core.lake.tiering_worker import TieringWorker
from fluss_orchestrate.core.lake.waiting import wait_for_snapshot, wait_for_snapshot_blocking

__all__ = [
    "BucketLag",
    "CommitConflictError",
    "KeyTableTieringError",
    "LakeError",
    "LakeRangeError",
    "LakeStatus",
    "LakeTarget",
    "NoLakeError",
    "Target",
    "TieringContendedError",
    "TieringFencedError",
    "TieringNotAllowedError",
    "TieringVerifyError",
    "TieringWorker",
    "WaitTimedOutError",
    "catalog_properties",
    "covers",
    "freeze_target",
    "has_lake",
    "lake_reader",
    "lake_status",
    "load_lake_table",
    "open_catalog",
    "read_lake_offsets",
    "read_receipt",
    "read_table",
    "redacted",
    "tier",
    "wait_for_snapshot",
    "wait_for_snapshot_blocking",
]
