"""The rows that all subjects store."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from benchmarks.place import Scale

SCHEMA = pa.schema(
    [("id", pa.int64()), ("price", pa.float64()), ("amount", pa.int64()), ("name", pa.string())]
)
KEY_SCHEMA = pa.schema(
    [pa.field("k", pa.int32(), nullable=False), ("a", pa.string()), ("b", pa.int64())]
)


@dataclass(frozen=True)
class Sizes:
    """How much work a case is."""

    batches: int
    batch_rows: int
    keys: int
    upsert_rows: int
    lookups: int
    single_lookups: int


SIZES = {
    Scale.TINY: Sizes(2, 1_000, 1_000, 500, 200, 50),
    Scale.QUICK: Sizes(20, 60_000, 100_000, 20_000, 20_000, 2_000),
    Scale.FULL: Sizes(100, 60_000, 1_000_000, 50_000, 100_000, 5_000),
}


def log_batch(rows: int) -> pa.RecordBatch:
    """One batch of a log."""
    chance = np.random.default_rng(1)
    return pa.record_batch(
        [
            pa.array(np.arange(rows)),
            pa.array(chance.random(rows)),
            pa.array(chance.integers(0, 1 << 40, rows)),
            pa.array([f"user-{i % 5000}" for i in range(rows)]),
        ],
        schema=SCHEMA,
    )


def key_batches(sizes: Sizes, tag: str) -> list[pa.RecordBatch]:
    """Every key once, in an order of chance."""
    keys = np.random.default_rng(2).permutation(sizes.keys).astype(np.int32)
    found = []
    for first in range(0, sizes.keys, sizes.upsert_rows):
        part = keys[first : first + sizes.upsert_rows]
        names = pa.array([f"{tag}{i}" for i in range(first, first + len(part))])
        numbers = pa.array(np.arange(first, first + len(part)))
        found.append(pa.record_batch([pa.array(part), names, numbers], schema=KEY_SCHEMA))
    return found


def python_rows(batch: pa.RecordBatch) -> list[tuple[object, ...]]:
    """A batch as SQLite's driver wants it."""
    return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
