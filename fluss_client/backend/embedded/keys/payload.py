"""The payload of an upsert: a batch of upserts and deletes, ready to be merged.

It is encoded on a worker thread before the write transaction begins, because that transaction
holds the write lock of the whole directory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_client.backend.rows import row_format
from fluss_client.codec.arrow_columns import as_wire, to_wire
from fluss_client.codec.binary.blobs import Blobs, join, offsets_of
from fluss_client.codec.kv_batch import HEADER_SIZE, kv_record_sizes
from fluss_client.codec.rows import decode_rows
from fluss_client.errors import RowError
from fluss_client.model.table import TableInfo

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class UpsertPayload:
    """Keys with their new values; `rows` holds the records that are not deletes, in order."""

    schema_id: int
    keys: Blobs
    values: Blobs
    """The values as the key state stores them; empty for a delete."""
    deletes: Bools
    rows: pa.RecordBatch
    nbytes: int

    @property
    def row_count(self) -> int:
        return len(self.keys)

    def without_deletes(self) -> UpsertPayload:
        """Return the payload without its deletes."""
        kept = np.flatnonzero(~self.deletes)
        return UpsertPayload(
            self.schema_id,
            self.keys.take(kept),
            self.values.take(kept),
            np.zeros(kept.size, np.bool_),
            self.rows,
            self.nbytes,
        )


def with_schema_id(rows: Blobs, schema_id: int) -> Blobs:
    """Return rows as values of the key state: each behind the id of its schema (2 bytes)."""
    front = np.frombuffer(schema_id.to_bytes(2, "little", signed=True), np.uint8)
    return join([np.broadcast_to(front, (len(rows), 2)), rows])


def encode_upsert(
    table: TableInfo,
    keys: Blobs,
    rows: Blobs | None,
    deletes: Bools | None,
    arrow: Sequence[pa.RecordBatch] = (),
) -> UpsertPayload:
    """Do the CPU work of an upsert that needs no read of the key state."""
    count = len(keys)
    if rows is None:
        rows, gone = Blobs.from_list([b""] * count), np.ones(count, np.bool_)
    else:
        gone = np.zeros(count, np.bool_) if deletes is None else deletes.astype(np.bool_)
    if len(rows) != count or gone.size != count:
        raise RowError(f"{count} keys, {len(rows)} rows and {gone.size} marks of deletes")
    if ((rows.lengths == 0) & ~gone).any():
        raise RowError("a row without bytes would delete its key; say so with deletes")
    kept = rows.take(np.flatnonzero(~gone)) if gone.any() else rows
    values = with_schema_id(kept, table.schema_id)
    if gone.any():
        lengths = np.zeros(count, np.int64)
        lengths[~gone] = values.lengths
        values = Blobs(values.data, offsets_of(lengths))
    nbytes = HEADER_SIZE + int(kv_record_sizes(keys, None).sum()) + kept.data.size
    if arrow:
        wire = as_wire(_joined(arrow), table.schema.wire)  # the writer has checked the values
    else:
        wire = to_wire(_decoded(table, kept), table.schema.wire)
    if wire.num_rows != len(kept):
        raise RowError(f"{len(kept)} encoded rows, but {wire.num_rows} as Arrow")
    return UpsertPayload(table.schema_id, keys, values, gone, wire, nbytes)


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _decoded(table: TableInfo, rows: Blobs) -> pa.RecordBatch:
    schema = table.schema
    types = [column.type for column in schema.columns]
    return decode_rows(rows, types, schema.get_column_names(), row_format(table))
