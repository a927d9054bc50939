"""`load_rows`: rows from anywhere into a Fluss table, once under a load id."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from fluss_client import FlussConnection, TablePath
from fluss_client.errors import RowError
from fluss_orchestrate.core.checkpoints.events import now_ms
from fluss_orchestrate.core.checkpoints.fluss_rows import REPLICAS_WANTED
from fluss_orchestrate.core.identity import TableIdentity
from fluss_orchestrate.core.loading.errors import RowsUsedError, checked_load_id
from fluss_orchestrate.core.loading.ledger import DEFAULT_LEDGER, open_ledger
from fluss_orchestrate.core.loading.sending import (
    Loaded,
    PinnedLoad,
    Progress,
)
from fluss_orchestrate.core.loading.units import BatchRows, LoadTarget, Unit
from fluss_orchestrate.core.metrics import record_receipt
from fluss_orchestrate.core.receipts import Receipt
from fluss_orchestrate.core.sinks.base import SchemaPolicy

PINS_KIND = "load"
_read: weakref.WeakSet[pa.RecordBatchReader] = weakref.WeakSet()
"""Readers that a load of this process has read from."""


def load_rows(
    connection: FlussConnection,
    table: TablePath | str,
    rows: Any,
    load_id: str,
    *,
    schema_policy: SchemaPolicy | str = SchemaPolicy.ERROR,
    create_partitions: bool = False,
    progress: Progress | None = None,
    ledger: TablePath = DEFAULT_LEDGER,
    ledger_replicas: int = REPLICAS_WANTED,
) -> Receipt:
    """Append rows to a log table, or upsert them into a key table, once under `load_id`.

    Called again with the same id and the same rows in the same order, whatever became of earlier
    calls, it leaves each row once. In a key table, columns that the rows do not have keep their
    values. There, a column `_change_type` says what a row is: a delete (`-D`, `delete` or 4), left
    out (`-U`, `update_before` or 2), or an upsert (the other signs, words and codes of
    `ChangeType`). Rows with deletes need all columns.

    Args:
        connection: The cluster.
        table: Where to.
        rows: An Arrow table, batch or reader, or a frame that offers an Arrow stream (pandas,
            polars, DuckDB). A reader gives its rows once, so that a second call needs a new one.
        load_id: Stands for these rows for good.
        schema_policy: What to do with columns that the table does not have.
        create_partitions: Create partitions that the rows need.
        progress: Called with the rows and bytes that were sent so far.
        ledger: The table that keeps what is known of loads.
        ledger_replicas: How many replicas it gets when it is created.

    Raises:
        ConfigError: The load id is empty.
        RowsDifferError: The load was begun with other rows.
        RowsUsedError: The rows are a reader that an earlier call has read.
        RowError: Rows do not fit, or lack columns, or have an unknown change type.
        PinExpiredError: The load was begun more than six days ago and not finished.
        MirroredTableError: The table is a mirror.
    """
    started_ms = now_ms()
    checked_load_id(load_id)
    target = LoadTarget(connection, table, SchemaPolicy(schema_policy))
    reader = as_reader(rows)
    _check_unread(reader, target, load_id)
    load = PinnedLoad(
        connection,
        open_ledger(connection, ledger, ledger_replicas),
        target,
        PINS_KIND,
        load_id,
        columns=reader.schema.names,
        create_partitions=create_partitions,
        progress=progress,
    )
    loaded = load.done()
    again = loaded is not None
    if not again:
        load.enter()
    cutter = target.cutter(reader.schema)

    def units(batch_rows: BatchRows) -> Iterator[Unit]:
        return cutter.units(_marked(reader), batch_rows, 0, with_digest=True)

    if loaded is None:
        if isinstance(rows, pa.Table | pa.RecordBatch):
            cutter.check(rows)
        loaded = load.run(units)
    else:
        load.verify(units, loaded)
    receipt = _receipt(connection, target, load_id, loaded, started_ms, again)
    return receipt if again else record_receipt(receipt)


def _receipt(
    connection: FlussConnection,
    target: LoadTarget,
    load_id: str,
    loaded: Loaded,
    started_ms: int,
    again: bool,
) -> Receipt:
    info = target.info
    return Receipt(
        kind="upsert" if info.has_primary_key() else "append",
        table=TableIdentity.of(connection.config.resolved_alias(), info),
        run_key=load_id,
        ranges=loaded.ranges,
        rows=loaded.rows,
        bytes=loaded.bytes,
        started_ms=started_ms,
        finished_ms=now_ms(),
        details={"exactly_once": True, "was_done_before": again},
    )


def load_is_known(
    connection: FlussConnection,
    table: TablePath | str,
    load_id: str,
    *,
    ledger: TablePath = DEFAULT_LEDGER,
    ledger_replicas: int = REPLICAS_WANTED,
) -> bool:
    """Return whether a load of this id into the table was begun or finished."""
    checked_load_id(load_id)
    target = LoadTarget(connection, table, SchemaPolicy.ERROR)
    pins = open_ledger(connection, ledger, ledger_replicas)
    return PinnedLoad(connection, pins, target, PINS_KIND, load_id).is_known()


def load_receipt(
    connection: FlussConnection,
    table: TablePath | str,
    load_id: str,
    *,
    ledger: TablePath = DEFAULT_LEDGER,
    ledger_replicas: int = REPLICAS_WANTED,
) -> Receipt | None:
    """Return the receipt of a load that is done, from the ledger, or None. Blocks."""
    checked_load_id(load_id)
    target = LoadTarget(connection, table, SchemaPolicy.ERROR)
    pins = open_ledger(connection, ledger, ledger_replicas)
    loaded = PinnedLoad(connection, pins, target, PINS_KIND, load_id).done()
    if loaded is None:
        return None
    return _receipt(connection, target, load_id, loaded, now_ms(), True)


def _marked(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Return the batches of a reader, and note that it is used when the first one is read."""
    _read.add(reader)
    yield from reader


def _check_unread(reader: pa.RecordBatchReader, target: LoadTarget, load_id: str) -> None:
    """Raise if the reader was used: Arrow shows it as a reader without rows."""
    if reader in _read:
        raise RowsUsedError(
            str(target.path),
            load_id,
            "the rows are a reader that an earlier load has read, to its end or in part, and a "
            "reader gives its rows once. Nothing was sent. Load again under the same id with a new "
            "reader over all rows, or with a pyarrow.Table",
        )


def as_reader(rows: Any) -> pa.RecordBatchReader:
    """Return a reader of any object that holds rows in Arrow's form."""
    if isinstance(rows, pa.RecordBatchReader):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(rows.schema, [rows])
    if isinstance(rows, pa.Table):
        return rows.to_reader()
    if hasattr(rows, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(rows)
    raise RowError(
        f"rows must be an Arrow table, batch or reader, or a frame that offers an Arrow stream, "
        f"not {type(rows).__name__}"
    )
