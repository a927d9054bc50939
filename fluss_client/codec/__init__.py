"""Bytes and values: record batches, rows, keys, partition names. Pure, no I/O."""
