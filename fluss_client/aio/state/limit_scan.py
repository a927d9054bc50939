"""Read all rows of a small bucket of a key table with one limit scan.

The server collects the rows of a limit scan in its memory, several times over. So it is asked only
if it counts few rows, and if these take few bytes, judged by the size of the first of them.
"""

from __future__ import annotations

from importlib.util import find_spec

import pyarrow as pa

from fluss_client.backend.contract import Backend
from fluss_client.config import Config
from fluss_client.errors import (
    AuthorizationError,
    InvalidTableError,
    StateUnavailableError,
    UnsupportedByServerError,
)
from fluss_client.model.table import TableBucket, TableInfo

SAMPLE_ROWS = 100
"""How many rows are read to judge the size of all."""


async def scan_small_bucket(
    backend: Backend,
    table: TableInfo,
    bucket: TableBucket,
    config: Config,
    columns: tuple[int, ...] | None,
) -> pa.RecordBatch:
    """Return all rows of a bucket, as they were at some moment during the call.

    Args:
        backend: The backend.
        table: The key table.
        bucket: The bucket to read.
        config: The configuration of the connection.
        columns: The indexes of the columns to read; None reads all.

    Raises:
        StateUnavailableError: The bucket has too many rows, or too many bytes, or the server does
            not count them.
        ScanLostError: The connection broke after the request; it is not sent again.
    """
    rows_max = config.scanner_state_limit_scan_rows_max
    bytes_max = config.scanner_state_limit_scan_bytes_max

    def unavailable(rows: int | None, nbytes: int | None = None) -> StateUnavailableError:
        return StateUnavailableError(
            table.table_path, bucket, rows, rows_max, _hint(backend), nbytes, bytes_max
        )

    rows = await _row_count(backend, table, bucket)
    if rows is None or rows > rows_max:
        raise unavailable(rows)
    if rows > SAMPLE_ROWS:
        sample = await backend.limit_scan(table, bucket, SAMPLE_ROWS, None)
        nbytes = sample.nbytes * rows // max(1, sample.num_rows)
        if nbytes > bytes_max:
            raise unavailable(rows, nbytes)
    # One row more than allowed shows that rows came since they were counted, and were cut off.
    scanned = await backend.limit_scan(table, bucket, rows_max + 1, columns)
    if scanned.num_rows > rows_max:
        raise unavailable(scanned.num_rows)
    return scanned


async def _row_count(backend: Backend, table: TableInfo, bucket: TableBucket) -> int | None:
    try:
        counts = await backend.get_table_stats(table, [bucket])
    except (InvalidTableError, UnsupportedByServerError, AuthorizationError):
        return None
    return counts.get(bucket)


def _hint(backend: Backend) -> str:
    if backend.capabilities.kv_snapshots and find_spec("rocksdict") is None:
        return "KV snapshots need a package: pip install 'fluss-orchestrate[keys]'"
    return (
        "Servers make a snapshot every kv.snapshot.interval (10 minutes by default): wait for "
        "the next one, or set table.log.ttl so that the changelog is kept"
    )
