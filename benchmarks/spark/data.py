"""The files that are loaded, and how much of them there is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.place import Scale

ROW_GROUP_ROWS = 200_000


@dataclass(frozen=True)
class Sizes:
    """Rows, the files they are in, and the cores that Spark gets one after the other."""

    rows: int
    files: int
    cores: tuple[int, ...]


SIZES = {
    Scale.TINY: Sizes(8_000, 2, (2,)),
    Scale.QUICK: Sizes(2_000_000, 8, (1, 2)),
    Scale.FULL: Sizes(16_000_000, 16, (1, 2)),
}


def write_input(folder: Path, sizes: Sizes) -> int:
    """Write Parquet files; gives their size as Arrow."""
    each = sizes.rows // sizes.files
    size = 0
    for number in range(sizes.files):
        ids = np.arange(number * each, (number + 1) * each)
        words = pa.array(np.char.add("word-", (ids % 10**8).astype(str)))
        table = pa.table({"id": ids, "v": ids * 0.5, "word": words})
        size += table.nbytes
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=ROW_GROUP_ROWS)
    return size
