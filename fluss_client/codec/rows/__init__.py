"""Rows of key-value tables: Arrow batches to row bytes and back, whole columns at a time."""

from fluss_client.codec.rows.batch import decode_rows, encode_rows
from fluss_client.codec.rows.physical import RowFormat
from fluss_client.codec.rows.scalar import decode_row_scalar

__all__ = ["RowFormat", "decode_row_scalar", "decode_rows", "encode_rows"]
