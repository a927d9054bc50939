"""A batch of upserts and deletes, ready to be merged into the key state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_client.backend.embedded.key_rows import row_format, with_schema_id
from fluss_client.codec.blobs import Blobs, offsets_of
from fluss_client.codec.columns import to_wire
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
    """As the key state keeps them; empty for a delete."""
    deletes: Bools
    rows: pa.RecordBatch
    nbytes: int

    @property
    def row_count(self) -> int:
        return len(self.keys)

    def without_deletes(self) -> UpsertPayload:
        """The upserts alone."""
        kept = np.flatnonzero(~self.deletes)
        return UpsertPayload(
            self.schema_id,
            self.keys.take(kept),
            self.values.take(kept),
            np.zeros(kept.size, np.bool_),
            self.rows,
            self.nbytes,
        )


def encode_upsert(
    table: TableInfo,
    keys: Blobs,
    rows: Blobs | None,
    deletes: Bools | None,
    arrow: Sequence[pa.RecordBatch] = (),
) -> UpsertPayload:
    """The CPU work of an upsert that needs no look at the key state."""
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
    given = _joined(arrow) if arrow else _decoded(table, kept)
    wire = to_wire(given, table.schema.wire)
    if wire.num_rows != len(kept):
        raise RowError(f"{len(kept)} encoded rows, but {wire.num_rows} as Arrow")
    return UpsertPayload(table.schema_id, keys, values, gone, wire, nbytes)


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _decoded(table: TableInfo, rows: Blobs) -> pa.RecordBatch:
    schema = table.schema
    types = [column.type for column in schema.columns]
    return decode_rows(rows, types, schema.get_column_names(), row_format(table))
