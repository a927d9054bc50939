"""The rows that every subject writes and reads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("score", pa.float64()),
        pa.field("ts", pa.timestamp("us")),
    ]
)
BATCH_ROWS = 65_536


@dataclass(frozen=True)
class Sizes:
    """How much each case moves."""

    arrow_rows: int
    dict_rows: int
    upsert_rows: int
    lookups: int
    many_lookups: int
    peer_lookups: int


QUICK = Sizes(2_000_000, 200_000, 200_000, 2_000, 100_000, 20)
FULL = Sizes(8_000_000, 500_000, 500_000, 5_000, 500_000, 30)


NAMES = 10_000


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
        made.append(
            pa.RecordBatch.from_arrays(
                [pa.array(ids), names.take(who), scores, times], schema=SCHEMA
            )
        )
    return made


def dict_rows(rows: int) -> list[dict[str, object]]:
    """The same rows as Python dicts."""
    table = pa.Table.from_batches(batches(rows))
    return table.to_pylist()


def nbytes(rows: list[pa.RecordBatch]) -> int:
    """Arrow bytes."""
    return sum(batch.nbytes for batch in rows)
