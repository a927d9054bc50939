"""A key table of one bucket that changes, and its last images without a changelog."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.client.data import NAMES
from benchmarks.place import CONNECT_S
from fluss_client import FlussConnection, OffsetSpec, Schema, TableDescriptor, TablePath

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("score", pa.float64()),
        pa.field("ts", pa.timestamp("us")),
    ]
)
BATCH_ROWS = 50_000
Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Changes:
    """Some changes: rows that are upserted, then keys that are deleted."""

    upserts: pa.RecordBatch
    deletes: Ids


def rows_of(ids: Ids, seed: int) -> pa.RecordBatch:
    """Rows with these keys: names that come again, prices in cents."""
    random = np.random.default_rng(seed)
    names = pa.array([f"customer-{number:06}" for number in range(NAMES)])
    count = len(ids)
    columns = [
        pa.array(ids),
        names.take(pa.array(random.zipf(1.3, count) % NAMES)),
        pa.array(random.integers(100, 100_000, count) / 100),
        pa.array(1_700_000_000_000_000 + random.integers(0, 1 << 40, count)).cast(SCHEMA[3].type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def every_key(keys: int) -> Iterator[Changes]:
    """One row for each key, in their order."""
    return updates(np.arange(keys, dtype=np.int64), seed=0)


def updates(ids: Ids, seed: int) -> Iterator[Changes]:
    """One row for each of these keys, in this order."""
    for start in range(0, len(ids), BATCH_ROWS):
        yield Changes(rows_of(ids[start : start + BATCH_ROWS], seed + start), ids[:0])


def random_changes(keys: int, count: int, deleted: float, seed: int = 5) -> Iterator[Changes]:
    """So many changes of random keys; `deleted` is the share of them that delete a row."""
    random = np.random.default_rng(seed)
    for start in range(0, count, BATCH_ROWS):
        ids = random.integers(0, keys, min(BATCH_ROWS, count - start), dtype=np.int64)
        cut = len(ids) - int(len(ids) * deleted)
        yield Changes(rows_of(ids[:cut], seed + start), ids[cut:])


def last_images(changes: Sequence[Changes]) -> tuple[pa.Table, Ids]:
    """The last row of each key that has one after the changes, and the keys that have none."""
    rows = pa.Table.from_batches([one.upserts for one in changes])
    ids, row_numbers, at = [], [], 0
    for one in changes:
        count = one.upserts.num_rows
        ids += [one.upserts.column("id").to_numpy(), one.deletes]
        row_numbers += [np.arange(at, at + count), np.full(len(one.deletes), -1)]
        at += count
    keys, from_the_end = np.unique(np.concatenate(ids)[::-1], return_index=True)
    last = np.concatenate(row_numbers)[::-1][from_the_end]
    return rows.take(pa.array(last[last >= 0])), keys[last < 0]


class KeyTable:
    """A key table of one bucket."""

    def __init__(
        self, connection: FlussConnection, path: TablePath, properties: Mapping[str, str] = {}
    ) -> None:
        self.connection = connection
        self.path = path
        self._admin = connection.get_admin().result(CONNECT_S)
        schema = Schema(SCHEMA, primary_keys=["id"])
        descriptor = TableDescriptor(schema, bucket_count=1, properties=dict(properties))
        self._admin.create_table(path, descriptor).result(CONNECT_S)

    def change(self, changes: Iterable[Changes]) -> None:
        """Write changes; all are acknowledged at the end."""
        table = self.connection.get_table(self.path).result(CONNECT_S)
        with table.new_upsert().create_writer() as writer:
            for one in changes:
                writer.write_arrow_batch(one.upserts)
                if len(one.deletes):
                    writer.delete_arrow(pa.table({"id": one.deletes}))

    def end(self) -> int:
        """The offset behind the last change."""
        found = self._admin.list_offsets(self.path, [0], OffsetSpec.latest()).result(CONNECT_S)
        return cast("int", found[0])

    def changelog(self, start: int) -> pa.Table:
        """All changes from an offset on, with their kind in the column `_change_type`."""
        table = self.connection.get_table(self.path).result(CONNECT_S)
        scanner = table.new_scan().create_record_batch_log_scanner().result(CONNECT_S)
        scanner.subscribe(0, start)
        try:
            return scanner.to_arrow()
        finally:
            scanner.close()
