"""A client for Apache Fluss: the API of the Python guides, on a real cluster or embedded.

What the guides `await` returns a handle that has begun its work; await it, or call `.result()` in
code without an event loop. `fluss_client.aio` is the same client on your own event loop.

Each name is imported when it is first used, so that importing this package costs nothing.
"""

from typing import TYPE_CHECKING

from fluss_client._version import __version__
from fluss_client.lazy import lazy_dir, lazy_names

if TYPE_CHECKING:
    from fluss_client import errors
    from fluss_client.backend.contract import Capabilities
    from fluss_client.config import Config
    from fluss_client.error_codes import ErrorCode
    from fluss_client.errors import FlussError
    from fluss_client.facade.admin import FlussAdmin
    from fluss_client.facade.base import WriteResultHandle
    from fluss_client.facade.connection import FlussConnection
    from fluss_client.facade.handle import Handle
    from fluss_client.facade.table import (
        AppendWriter,
        BatchScanner,
        FlussTable,
        LogScanner,
        Lookuper,
        PrefixLookuper,
        TableAppend,
        TableLookup,
        TablePrefixLookup,
        TableScan,
        TableUpsert,
        UpsertWriter,
    )
    from fluss_client.model.cluster import (
        EARLIEST_OFFSET,
        LATEST_OFFSET,
        Acl,
        BucketCommit,
        ChangeType,
        ClusterHealth,
        ConfigEntry,
        HeartbeatResult,
        KvSnapshot,
        LakeSnapshot,
        OffsetSpec,
        ProducerOffsets,
        RemoteLogManifest,
        ServerNode,
        TieringTable,
    )
    from fluss_client.model.predicate import ColumnRef, Predicate, col
    from fluss_client.model.records import RecordBatch, ScanRecord, ScanRecords
    from fluss_client.model.schema import AggFunction, Column, Schema
    from fluss_client.model.table import (
        DatabaseDescriptor,
        DatabaseInfo,
        PartitionInfo,
        TableBucket,
        TableDescriptor,
        TableInfo,
        TablePath,
    )
    from fluss_client.model.types import DataType, DataTypes, Field

__all__ = [
    "EARLIEST_OFFSET",
    "LATEST_OFFSET",
    "Acl",
    "AggFunction",
    "AppendWriter",
    "BatchScanner",
    "BucketCommit",
    "Capabilities",
    "ChangeType",
    "ClusterHealth",
    "Column",
    "ColumnRef",
    "Config",
    "ConfigEntry",
    "DataType",
    "DataTypes",
    "DatabaseDescriptor",
    "DatabaseInfo",
    "ErrorCode",
    "Field",
    "FlussAdmin",
    "FlussConnection",
    "FlussError",
    "FlussTable",
    "Handle",
    "HeartbeatResult",
    "KvSnapshot",
    "LakeSnapshot",
    "LogScanner",
    "Lookuper",
    "OffsetSpec",
    "PartitionInfo",
    "Predicate",
    "PrefixLookuper",
    "ProducerOffsets",
    "RecordBatch",
    "RemoteLogManifest",
    "ScanRecord",
    "ScanRecords",
    "Schema",
    "ServerNode",
    "TableAppend",
    "TableBucket",
    "TableDescriptor",
    "TableInfo",
    "TableLookup",
    "TablePath",
    "TablePrefixLookup",
    "TableScan",
    "TableUpsert",
    "TieringTable",
    "UpsertWriter",
    "WriteResultHandle",
    "__version__",
    "col",
    "errors",
]

__getattr__ = lazy_names(
    __name__,
    {
        "backend.contract": ("Capabilities",),
        "config": ("Config",),
        "error_codes": ("ErrorCode",),
        "errors": ("FlussError",),
        "facade.admin": ("FlussAdmin",),
        "facade.base": ("WriteResultHandle",),
        "facade.connection": ("FlussConnection",),
        "facade.handle": ("Handle",),
        "facade.table": (
            "AppendWriter",
            "BatchScanner",
            "FlussTable",
            "LogScanner",
            "Lookuper",
            "PrefixLookuper",
            "TableAppend",
            "TableLookup",
            "TablePrefixLookup",
            "TableScan",
            "TableUpsert",
            "UpsertWriter",
        ),
        "model.cluster": (
            "EARLIEST_OFFSET",
            "LATEST_OFFSET",
            "Acl",
            "BucketCommit",
            "ChangeType",
            "ClusterHealth",
            "ConfigEntry",
            "HeartbeatResult",
            "KvSnapshot",
            "LakeSnapshot",
            "OffsetSpec",
            "ProducerOffsets",
            "RemoteLogManifest",
            "ServerNode",
            "TieringTable",
        ),
        "model.predicate": ("ColumnRef", "Predicate", "col"),
        "model.records": ("RecordBatch", "ScanRecord", "ScanRecords"),
        "model.schema": ("AggFunction", "Column", "Schema"),
        "model.table": (
            "DatabaseDescriptor",
            "DatabaseInfo",
            "PartitionInfo",
            "TableBucket",
            "TableDescriptor",
            "TableInfo",
            "TablePath",
        ),
        "model.types": ("DataType", "DataTypes", "Field"),
    },
)
__dir__ = lazy_dir(__name__, __all__)
