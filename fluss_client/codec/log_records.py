"""The body of INDEXED and COMPACTED log batches: records back to back.

    record   i32 length of the rest (little-endian), u8 change type, row in the table's log format

Change types are 0 +A, 1 +I, 2 -U, 3 +U, 4 -D; an append-only batch holds 0 in every record.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from fluss_client.codec.blobs import Blobs, Bytes, join
from fluss_client.codec.columns import as_wire
from fluss_client.codec.crc32c import BytesLike
from fluss_client.codec.records import LENGTH_SIZE, record_spans
from fluss_client.codec.rows import RowFormat, decode_rows, encode_rows
from fluss_client.errors import RowError
from fluss_client.model.schema import Schema

_CHANGE_TYPE_SIZE = 1
_RECORD_SIZE_MIN = _CHANGE_TYPE_SIZE + 1


def encode_log_records(
    batch: pa.RecordBatch, schema: Schema, row_format: RowFormat, change_types: bytes | None = None
) -> BytesLike:
    """The batch's rows as records; without `change_types` all of them are appends."""
    if change_types is not None and len(change_types) != batch.num_rows:
        raise RowError(f"{len(change_types)} change types for {batch.num_rows} rows")
    rows = encode_rows(batch, [column.type for column in schema.columns], row_format)
    heads = np.zeros((len(rows), LENGTH_SIZE + _CHANGE_TYPE_SIZE), np.uint8)
    lengths = (rows.lengths + _CHANGE_TYPE_SIZE).astype("<i4")
    heads[:, :LENGTH_SIZE] = lengths.view(np.uint8).reshape(-1, LENGTH_SIZE)
    if change_types is not None:
        heads[:, LENGTH_SIZE] = np.frombuffer(change_types, np.uint8)
    return pa.py_buffer(join([heads, rows]).data)


def decode_log_records(
    body: memoryview,
    count: int,
    schema: Schema,
    row_format: RowFormat,
    wire_schema: pa.Schema,
    columns: list[int] | None,
) -> tuple[Bytes, pa.RecordBatch]:
    """Change types and rows of `count` records, as the chosen columns' wire types."""
    starts, lengths = record_spans(body, count, _RECORD_SIZE_MIN)
    data = np.frombuffer(body, np.uint8)
    rows = Blobs.from_spans(data, starts + _CHANGE_TYPE_SIZE, lengths - _CHANGE_TYPE_SIZE)
    types = [column.type for column in schema.columns]
    batch = decode_rows(rows, types, schema.get_column_names(), row_format, columns)
    return data[starts], as_wire(batch, wire_schema)
