"""The extension surface of the client: what a package built on it needs beyond the public API.

`fluss_orchestrate` uses `fluss_client`, `fluss_client.aio`, `fluss_client.errors`,
`fluss_client.testing` and this module, and nothing deeper; a test enforces it. Names here are
stable within one release of this project, and carry no promise to others.

- **Blocking code**: `run_blocking` runs a coroutine on the client's I/O thread.
- **Behind a connection**: `async_connection`, `backend_of`, `is_closed` and `table_info`.
- **The backend contract**: `Backend` and the requests that it takes.
- **Range reads**: `read_ranges` and `RangeReader` read exactly the offsets [start, stop).
- **Pinned writes**: `append_pinned` and `upsert_pinned` send a batch under a writer id and a
  sequence number that were fixed beforehand, so that any process can send it again.
- **Bucket counts**: `bucket_counts` and `all_buckets`. Partitions of a table may have different
  counts; `Backend.bucket_count` knows the count of one.
- **Rows and keys**: routing of rows to partitions and buckets, keys and values as bytes.
- **State reads**: `StateReader` and `BlockingState` read the key state of a bucket, exact at an
  offset.
- **Retries**: `Backoff`, `Deadline` and `retrying`, which the client itself uses.
- **Files**: `open_storage` opens local disks and object stores by URI, `storage_error` tells why a
  call to one failed, `room_needed` that a disk has no room.
- **Dropped tables**: `Existence` tells whether a table and its partitions still exist,
  `existing_partitions` lists them with the system partition of late rows.
- **Embedded directories**: `check_directory` and `vacuum_directory`.
"""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fluss_client.aio.buckets import all_buckets, bucket_counts
from fluss_client.aio.connection import FlussConnection as AsyncConnection
from fluss_client.aio.existence import Existence, existing_partitions
from fluss_client.aio.lookup.keys import KeyMaker
from fluss_client.aio.projection import Projection
from fluss_client.aio.scanning.errors import OffsetUnavailableError
from fluss_client.aio.scanning.ranges import RangeReader, read_ranges
from fluss_client.aio.state.reader import (
    CHANGELOG_IMAGE,
    BlockingState,
    StateReader,
    StateSource,
    check_old_rows,
    has_old_rows,
)
from fluss_client.aio.writing.accumulator import Deletes, rows_max_of
from fluss_client.aio.writing.arrow_input import ArrowInput
from fluss_client.aio.writing.pinned import PINNED_BATCHES_MAX, append_pinned, upsert_pinned
from fluss_client.aio.writing.routing import Placement, counts_of_rows, grouped, numbered
from fluss_client.backend.contract import (
    Backend,
    BucketWrite,
    FetchPosition,
    FetchRequest,
    LogSlice,
    Payload,
    WriteRoute,
)
from fluss_client.codec.auto_partition import (
    ENABLED,
    AutoPartition,
    TimeUnit,
    auto_partition_of,
    time_zone,
)
from fluss_client.codec.binary.blobs import Blobs
from fluss_client.codec.kv_batch import decode_value
from fluss_client.codec.partition_names import parse_partition_name, partition_names, spec_to_name
from fluss_client.codec.rows import RowFormat, decode_row_scalar, encode_rows
from fluss_client.config import OPTIONS, find_option
from fluss_client.facade.connection import FlussConnection
from fluss_client.model.arrow import from_arrow
from fluss_client.model.iceberg import iceberg_type
from fluss_client.model.table import HISTORICAL_PARTITION, KV_FORMAT, TableInfo, TablePath
from fluss_client.model.type_text import parse_type
from fluss_client.model.types import Root, require_arrow_map
from fluss_client.net.retry import Backoff, Deadline, retrying
from fluss_client.options import duration_ms
from fluss_client.runtime import runtime, workers
from fluss_client.storage.failures import FAILURES, explain, room_needed, storage_error
from fluss_client.storage.filesystems import Storage, as_filesystem, open_storage
from fluss_client.storage.locations import Location, parse_location
from fluss_client.storage.properties import (
    StorageProperties,
    environment_storage,
    storage_properties,
)

if TYPE_CHECKING:
    from fluss_client.backend.embedded.maintenance import Vacuumed

T = TypeVar("T")


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the client's I/O thread and wait for its result.

    Args:
        coroutine: The coroutine to run; it may use connections of `fluss_client.aio` that belong
            to a blocking `FlussConnection`.

    Returns:
        What the coroutine returns.

    Raises:
        ReentrantCallError: If it is called on the I/O thread itself, which would wait forever.
    """
    return runtime().call(coroutine)


def async_connection(connection: FlussConnection | AsyncConnection) -> AsyncConnection:
    """Return the async connection behind a connection.

    Args:
        connection: A blocking connection, or an async one, which is returned as it is.

    Returns:
        The async connection. If it belongs to a blocking one, its coroutines run on the I/O
        thread only: pass them to `run_blocking`.

    Raises:
        ForkedError: If the connection was made by the parent of this process.
    """
    return connection if isinstance(connection, AsyncConnection) else connection.core


def backend_of(connection: FlussConnection | AsyncConnection) -> Backend:
    """Return the backend of a `connection`; its coroutines run where those of the connection do.

    Raises:
        ForkedError: If the connection was made by the parent of this process.
    """
    return async_connection(connection).backend


def is_closed(connection: FlussConnection) -> bool:
    """Return whether a `connection` was closed."""
    return connection.core.closed


def table_info(connection: FlussConnection, path: TablePath | str) -> TableInfo:
    """Return the description of a table from the cluster. Blocks.

    Args:
        connection: The connection to use.
        path: The table, as a path or as `database.table`.

    Raises:
        TableNotExistError: If there is no such table.
    """
    path = TablePath.parse(path) if isinstance(path, str) else path
    return run_blocking(backend_of(connection).get_table_info(path))


def check_directory(path: str | Path) -> list[str]:
    """Return every problem of the embedded directory at `path`, or an empty list. Blocks."""
    from fluss_client.backend.embedded.maintenance import check

    return check(path)


def vacuum_directory(path: str | Path) -> Vacuumed:
    """Delete expired and dropped data of the embedded directory at `path`, and shrink it. Blocks.

    Returns:
        How many batches expired, and the size of the directory before and after.
    """
    from fluss_client.backend.embedded.maintenance import vacuum

    return vacuum(path)


__all__ = [
    "CHANGELOG_IMAGE",
    "ENABLED",
    "FAILURES",
    "HISTORICAL_PARTITION",
    "KV_FORMAT",
    "OPTIONS",
    "PINNED_BATCHES_MAX",
    "ArrowInput",
    "AutoPartition",
    "Backend",
    "Backoff",
    "Blobs",
    "BlockingState",
    "BucketWrite",
    "Deadline",
    "Deletes",
    "Existence",
    "FetchPosition",
    "FetchRequest",
    "KeyMaker",
    "Location",
    "LogSlice",
    "OffsetUnavailableError",
    "Payload",
    "Placement",
    "Projection",
    "RangeReader",
    "Root",
    "RowFormat",
    "StateReader",
    "StateSource",
    "Storage",
    "StorageProperties",
    "TimeUnit",
    "WriteRoute",
    "all_buckets",
    "append_pinned",
    "as_filesystem",
    "async_connection",
    "auto_partition_of",
    "backend_of",
    "bucket_counts",
    "check_directory",
    "check_old_rows",
    "counts_of_rows",
    "decode_row_scalar",
    "decode_value",
    "duration_ms",
    "encode_rows",
    "environment_storage",
    "existing_partitions",
    "explain",
    "find_option",
    "from_arrow",
    "grouped",
    "has_old_rows",
    "iceberg_type",
    "is_closed",
    "numbered",
    "open_storage",
    "parse_location",
    "parse_partition_name",
    "parse_type",
    "partition_names",
    "read_ranges",
    "require_arrow_map",
    "retrying",
    "room_needed",
    "rows_max_of",
    "run_blocking",
    "runtime",
    "spec_to_name",
    "storage_error",
    "storage_properties",
    "table_info",
    "time_zone",
    "upsert_pinned",
    "vacuum_directory",
    "workers",
]
