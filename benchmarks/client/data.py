"""The rows that every subject writes and reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa

from benchmarks.place import Scale

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("score", pa.float64()),
        pa.field("ts", pa.timestamp("us")),
    ]
)
DAY_SCHEMA = SCHEMA.append(pa.field("day", pa.string()))
ORDER_SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("line", pa.int32(), nullable=False),
        pa.field("what", pa.string()),
    ]
)
BATCH_ROWS = 65_536
NAMES = 10_000
LINES = 10
"""Rows under each prefix."""

Row = dict[str, object]


@dataclass(frozen=True)
class Sizes:
    """How much each case moves."""

    arrow_rows: int
    dict_rows: int
    upsert_rows: int
    lookups: int
    many_lookups: int
    peer_lookups: int
    orders: int
    partitions: int
    polls: int


SIZES = {
    Scale.TINY: Sizes(20_000, 2_000, 2_000, 20, 500, 2, 20, 3, 1),
    Scale.QUICK: Sizes(2_000_000, 200_000, 200_000, 2_000, 100_000, 10, 2_000, 100, 3),
    Scale.FULL: Sizes(8_000_000, 500_000, 500_000, 5_000, 500_000, 30, 10_000, 100, 20),
}


def batches(rows: int, seed: int = 7) -> list[pa.RecordBatch]:
    """Rows as orders have them: rising ids and times, names that come again, prices in cents."""
    random = np.random.default_rng(seed)
    names = pa.array([f"customer-{number:06}" for number in range(NAMES)])
    made = []
    for start in range(0, rows, BATCH_ROWS):
        count = min(BATCH_ROWS, rows - start)
        ids = np.arange(start, start + count, dtype=np.int64)
        who = pa.array(random.zipf(1.3, count) % NAMES)
        times = pa.array(1_700_000_000_000_000 + ids * 1000).cast(pa.timestamp("us"))
        scores = pa.array(random.integers(100, 100_000, count) / 100)
        columns = [pa.array(ids), names.take(who), scores, times]
        made.append(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
    return made


def day_batches(rows: int, days: int) -> list[pa.RecordBatch]:
    """The same rows in as many partitions, one batch for each."""
    whole = pa.Table.from_batches(batches(rows)).combine_chunks()
    each = rows // days
    made = []
    for day in range(days):
        part = whole.slice(day * each, each).to_batches()[0]
        named = pa.array([day_name(day)] * part.num_rows)
        made.append(pa.RecordBatch.from_arrays([*part.columns, named], schema=DAY_SCHEMA))
    return made


def day_name(day: int) -> str:
    """The name of a partition."""
    return f"d{day:05}"


def dict_rows(rows: int) -> list[Row]:
    """The same rows as Python dicts."""
    return cast("list[Row]", pa.Table.from_batches(batches(rows)).to_pylist())


def order_lines(orders: int) -> pa.RecordBatch:
    """Some lines of each order: what a prefix look-up finds together."""
    ids = np.repeat(np.arange(orders, dtype=np.int64), LINES)
    lines = np.tile(np.arange(LINES, dtype=np.int32), orders)
    what = pa.array(np.char.add("article-", (ids * LINES + lines).astype(str)))
    return pa.RecordBatch.from_arrays([pa.array(ids), pa.array(lines), what], schema=ORDER_SCHEMA)


def nbytes(rows: list[pa.RecordBatch]) -> int:
    """Arrow bytes."""
    return sum(batch.nbytes for batch in rows)
