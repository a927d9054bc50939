"""The tables of a run; every subject works on tables that are made here."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

import fluss_client as fluss
from benchmarks.client.data import DAY_SCHEMA, ORDER_SCHEMA, SCHEMA, day_name

_numbers = itertools.count()


class Tables:
    """Makes tables in one database."""

    def __init__(self, connection: fluss.FlussConnection, database: str) -> None:
        self.connection = connection
        self._admin = connection.get_admin().result()
        self._database = database

    def new(self, *, key: bool = False, buckets: int = 1) -> fluss.TablePath:
        """An empty table."""
        schema = fluss.Schema(SCHEMA, primary_keys=["id"] if key else None)
        path = self._make(fluss.TableDescriptor(schema, bucket_count=buckets))
        # The first write of a table waits for its leaders, which is no part of any case.
        self._admin.list_offsets(path, list(range(buckets)), fluss.OffsetSpec.latest()).result()
        return path

    def new_by_day(self, days: int) -> fluss.TablePath:
        """An empty table with partitions."""
        schema = fluss.Schema(DAY_SCHEMA)
        path = self._make(fluss.TableDescriptor(schema, bucket_count=1, partition_keys=["day"]))
        names = [day_name(day) for day in range(days)]
        for name in names:
            self._admin.create_partition(path, {"day": name}).result()
        latest = fluss.OffsetSpec.latest()
        for name in names:
            self._admin.list_partition_offsets(path, name, [0], latest).result()
        return path

    def new_orders(self) -> fluss.TablePath:
        """An empty table whose rows are found by a prefix of their key."""
        schema = fluss.Schema(ORDER_SCHEMA, primary_keys=["id", "line"])
        return self._make(fluss.TableDescriptor(schema, bucket_count=1, bucket_keys=["id"]))

    @contextmanager
    def fresh(self, *, key: bool = False, buckets: int = 1) -> Iterator[fluss.TablePath]:
        """An empty table for the block."""
        path = self.new(key=key, buckets=buckets)
        try:
            yield path
        finally:
            self._admin.drop_table(path, ignore_if_not_exists=True).result()

    def fill(self, path: fluss.TablePath, batches: Sequence[pa.RecordBatch]) -> fluss.TablePath:
        """Write batches into a table, acknowledged."""
        table = self.connection.get_table(path).result()
        made = table.new_upsert() if table.has_primary_key() else table.new_append()
        with made.create_writer() as writer:
            for batch in batches:
                writer.write_arrow_batch(batch)
        return path

    def partition_ids(self, path: fluss.TablePath) -> list[int]:
        """The ids of a table's partitions."""
        return [info.partition_id for info in self._admin.list_partition_infos(path).result()]

    def _make(self, descriptor: fluss.TableDescriptor) -> fluss.TablePath:
        path = fluss.TablePath(self._database, f"t{next(_numbers)}")
        self._admin.create_table(path, descriptor).result()
        return path
