"""Which row of which file the user knows, for a row of a Parquet file that a task reads."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow.compute as pc
import pyarrow.parquet as pq

from fluss_orchestrate.spark.loading.fitting import SOURCE_BLOCK, SOURCE_FILE
from fluss_orchestrate.spark.loading.places import filesystem_of


@dataclass(frozen=True, slots=True)
class Origin:
    """A file and a row in it, counted from 1; where the row is not known, only the file."""

    file: str
    row: int | None
    after_byte: int = 0

    def __str__(self) -> str:
        if self.row is None:
            return f"a row of {self.file}"
        block = f" after byte {self.after_byte}" if self.after_byte else ""
        return f"{self.file}, row {self.row}{block}"


def origin_of(path: str, row: int) -> Origin:
    """Where a row comes from, the file's first being 0; staged rows know their own file."""
    system, inner = filesystem_of(path)
    with pq.ParquetFile(inner, filesystem=system) as opened:
        names = set(opened.schema_arrow.names)
        if SOURCE_FILE not in names:
            return Origin(path, row + 1)
        known = [name for name in (SOURCE_FILE, SOURCE_BLOCK) if name in names]
        told = opened.read(columns=known).slice(0, row + 1)
    file = told.column(SOURCE_FILE)[row].as_py()
    if SOURCE_BLOCK not in known:
        return Origin(file, None)
    block = told.column(SOURCE_BLOCK)[row].as_py()
    same = pc.and_(
        pc.equal(told.column(SOURCE_FILE), file), pc.equal(told.column(SOURCE_BLOCK), block)
    )
    return Origin(file, pc.sum(same).as_py(), block)
