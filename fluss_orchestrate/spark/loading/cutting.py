"""Parquet files cut into splits and units: the same files always at the same rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from fluss_client.aio.batching import rows_max_of
from fluss_client.aio.pinned import PINNED_BATCHES_MAX
from fluss_client.model.table import TableInfo
from fluss_orchestrate.core.loading.sources import SourceError
from fluss_orchestrate.spark.loading.places import InputFile, filesystem_of
from fluss_orchestrate.spark.loading.split import Split

SPLIT_BYTES = 64 << 20
SPLIT_UNITS_MAX = 64
SAMPLE_ROWS = 4_096
BATCH_ROWS_MAX = 200_000
SPREAD_MAX = 4
"""Units of a table with keys spread over its buckets, so they may have this many times the rows."""
FOOTERS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Footer:
    """What a Parquet file says about itself."""

    file: InputFile
    groups: tuple[tuple[int, int], ...]
    """Rows and uncompressed bytes of each row group."""
    schema: pa.Schema

    @property
    def rows(self) -> int:
        """All rows."""
        return sum(rows for rows, _ in self.groups)


def read_footers(files: Sequence[InputFile]) -> list[Footer]:
    """The footers of all files; `SourceError` names one that is no Parquet, or differs."""
    with ThreadPoolExecutor(FOOTERS_AT_ONCE) as pool:
        footers = list(pool.map(_footer, files))
    first = footers[0].schema
    for footer in footers:
        if not footer.schema.equals(first):
            what = _difference(footer.schema, first)
            where = footers[0].file.path
            raise SourceError(footer.file.path, f"has other columns than {where}: {what}")
    return footers


def _footer(file: InputFile) -> Footer:
    system, path = filesystem_of(file.path)
    try:
        with pq.ParquetFile(path, filesystem=system) as opened:
            meta = opened.metadata
            groups = [meta.row_group(i) for i in range(meta.num_row_groups)]
            schema = opened.schema_arrow.remove_metadata()
            return Footer(file, tuple((g.num_rows, g.total_byte_size) for g in groups), schema)
    except (pa.ArrowException, OSError) as error:
        raise SourceError(file.path, f"cannot be read as Parquet: {error}") from error


def _difference(one: pa.Schema, other: pa.Schema) -> str:
    fields = {str(f) for f in one} ^ {str(f) for f in other}
    return ", ".join(sorted(fields)) or "their order"


def digest_of_input(files: Iterable[InputFile]) -> str:
    """A digest of which files the input is made of, as they were."""
    hasher = hashlib.blake2b(digest_size=16)
    for file in files:
        hasher.update(f"{file.path}\0{file.size}\0{file.modified_ns}\n".encode())
    return hasher.hexdigest()


def batch_rows_of(info: TableInfo, footers: Sequence[Footer], batch_bytes: int) -> int:
    """How many rows make a batch of about `batch_bytes`, by a sample and by the widest rows."""
    widths = [size / rows for footer in footers for rows, size in footer.groups if rows]
    width = max([1.0, _sampled_width(footers), *widths])
    return max(1, min(BATCH_ROWS_MAX, rows_max_of(info), int(batch_bytes / width)))


def _sampled_width(footers: Sequence[Footer]) -> float:
    for footer in footers:
        if footer.rows:
            system, path = filesystem_of(footer.file.path)
            try:
                with pq.ParquetFile(path, filesystem=system) as opened:
                    batch = next(opened.iter_batches(SAMPLE_ROWS))
            except (pa.ArrowException, OSError) as error:
                raise SourceError(footer.file.path, f"cannot be read: {error}") from error
            return float(batch.nbytes) / int(batch.num_rows)
    return 1.0


def unit_rows_of(info: TableInfo, batch_rows: int) -> int:
    """How many rows make a unit: five batches in a bucket, more where rows spread over buckets."""
    spread = min(info.num_buckets, SPREAD_MAX) if info.bucket_keys else 1
    # All of them may turn out to go to one bucket.
    return min(batch_rows * spread, rows_max_of(info)) * PINNED_BATCHES_MAX


def cut(footers: Sequence[Footer], unit_rows: int) -> list[Split]:
    """All splits of the input, in order."""
    splits: list[Split] = []
    first_unit = 0
    for footer in footers:
        first_row = 0
        for groups, rows in _grouped(footer, unit_rows):
            units = [unit_rows] * (rows // unit_rows) + [rows % unit_rows] * (rows % unit_rows > 0)
            path = footer.file.path
            splits.append(Split(len(splits), first_unit, path, groups, first_row, tuple(units)))
            first_unit += len(units)
            first_row += rows
    return splits


def _grouped(footer: Footer, unit_rows: int) -> Iterator[tuple[tuple[int, ...], int]]:
    """Row groups that make a split together, with their rows; empty ones are left out."""
    held: list[int] = []
    rows = size = 0
    for number, (group_rows, group_bytes) in enumerate(footer.groups):
        if not group_rows:
            continue
        full = size + group_bytes > SPLIT_BYTES or rows + group_rows > unit_rows * SPLIT_UNITS_MAX
        if held and full:
            yield tuple(held), rows
            held, rows, size = [], 0, 0
        held.append(number)
        rows += group_rows
        size += group_bytes
    if held:
        yield tuple(held), rows
