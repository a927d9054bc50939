"""The client on your own event loop, with the surface of the official client's release.

`from fluss_client import aio as fluss` runs code written for it.
"""

from fluss_client._version import __version__
from fluss_client.aio.admin import FlussAdmin
from fluss_client.aio.connection import FlussConnection
from fluss_client.aio.lookup.lookuper import (
    Lookuper,
    PrefixLookuper,
    TableLookup,
    TablePrefixLookup,
)
from fluss_client.aio.scanning.log_scanner import LogScanner
from fluss_client.aio.scanning.scan import BatchScanner, TableScan
from fluss_client.aio.table import FlussTable
from fluss_client.aio.writing.writer import (
    AppendWriter,
    TableAppend,
    TableUpsert,
    UpsertWriter,
    WriteResultHandle,
)
from fluss_client.config import Config
from fluss_client.error_codes import ErrorCode
from fluss_client.errors import FlussError
from fluss_client.model.cluster import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    ChangeType,
    LakeSnapshot,
    OffsetSpec,
    ServerNode,
)
from fluss_client.model.predicate import ColumnRef, Predicate, col
from fluss_client.model.records import RecordBatch, ScanRecord, ScanRecords
from fluss_client.model.schema import Schema
from fluss_client.model.table import (
    DatabaseDescriptor,
    DatabaseInfo,
    PartitionInfo,
    TableBucket,
    TableDescriptor,
    TableInfo,
    TablePath,
)

__all__ = [
    "EARLIEST_OFFSET",
    "LATEST_OFFSET",
    "AppendWriter",
    "BatchScanner",
    "ChangeType",
    "ColumnRef",
    "Config",
    "DatabaseDescriptor",
    "DatabaseInfo",
    "ErrorCode",
    "FlussAdmin",
    "FlussConnection",
    "FlussError",
    "FlussTable",
    "LakeSnapshot",
    "LogScanner",
    "Lookuper",
    "OffsetSpec",
    "PartitionInfo",
    "Predicate",
    "PrefixLookuper",
    "RecordBatch",
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
    "UpsertWriter",
    "WriteResultHandle",
    "__version__",
    "col",
]
