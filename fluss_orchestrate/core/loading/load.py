"""`load_rows`: rows from anywhere into a Fluss table, once under a load id."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from fluss_client.errors import RowError
from fluss_client.facade.connection import FlussConnection
from fluss_client.model.table import TablePath
from fluss_orchestrate.core.checkpoints.events import now_ms
from fluss_orchestrate.core.checkpoints.fluss_rows import REPLICAS_WANTED
from fluss_orchestrate.core.identity import TableIdentity
from fluss_orchestrate.core.loading.sending import (
    DEFAULT_LEDGER,
    BatchRows,
    PinnedLoad,
    Progress,
    open_ledger,
)
from fluss_orchestrate.core.loading.target import LoadTarget
from fluss_orchestrate.core.loading.units import Unit
from fluss_orchestrate.core.metrics import record_receipt
from fluss_orchestrate.core.receipts import Receipt
from fluss_orchestrate.core.schema_policy import SchemaPolicy

PINS_KIND = "load"


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

    `rows` is an Arrow table, batch or reader, or a frame that offers an Arrow stream (pandas,
    polars, DuckDB). Called again with the same id and the same rows in the same order, whatever
    became of earlier calls, it leaves each row once; `RowsDifferError` if the rows are others. In
    a key table, rows with `_change_type` `-D` are deletes and `-U` are left out.
    """
    started_ms = now_ms()
    target = LoadTarget(connection, table, SchemaPolicy(schema_policy))
    pins = open_ledger(connection, ledger, ledger_replicas)
    load = PinnedLoad(
        connection,
        pins,
        target,
        PINS_KIND,
        load_id,
        create_partitions=create_partitions,
        progress=progress,
    )
    reader = as_reader(rows)
    cutter = target.cutter(reader.schema)

    def units(batch_rows: BatchRows) -> Iterator[Unit]:
        return cutter.units(reader, batch_rows, 0, with_digest=True)

    loaded = load.done()
    again = loaded is not None
    if loaded is None:
        loaded = load.run(units)
    else:
        load.verify(units, loaded)
    info = target.info
    receipt = Receipt(
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
    return receipt if again else record_receipt(receipt)


def load_is_known(
    connection: FlussConnection,
    table: TablePath | str,
    load_id: str,
    *,
    ledger: TablePath = DEFAULT_LEDGER,
    ledger_replicas: int = REPLICAS_WANTED,
) -> bool:
    """Whether rows were loaded, or began to be loaded, into the table under this id."""
    target = LoadTarget(connection, table, SchemaPolicy.ERROR)
    pins = open_ledger(connection, ledger, ledger_replicas)
    return PinnedLoad(connection, pins, target, PINS_KIND, load_id).is_known()


def as_reader(rows: Any) -> pa.RecordBatchReader:
    """A reader of whatever holds rows in Arrow's way."""
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
