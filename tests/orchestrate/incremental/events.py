"""Tables of events: `id` counts up, so that a lost or doubled row shows at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from fluss_client import FlussTable
from fluss_client.errors import LeaderNotAvailableError
from fluss_client.model.cluster import OffsetSpec
from fluss_client.runtime import runtime
from fluss_orchestrate.core.errors import NotYetError
from tests.contract.tables import Tables
from tests.waiting import wait_until

T = TypeVar("T")
FINAL_S = 60.0
COLUMNS: dict[str, pa.DataType] = {"id": pa.int64(), "text": pa.string(), "day": pa.string()}


def rows(ids: Iterable[int], day: str = "d1") -> pa.Table:
    """Rows with these ids."""
    numbers = list(ids)
    return pa.table(
        {"id": numbers, "text": [f"row {n}" for n in numbers], "day": [day] * len(numbers)},
        schema=pa.schema(list(COLUMNS.items())),
    )


class EventTables(Tables):
    """Makes tables that surely have leaders."""

    def events(self, buckets: int = 4, **descriptor: Any) -> FlussTable:
        """A log table, bucketed by id."""
        return self.sure(COLUMNS, None, buckets=buckets, bucket_keys=["id"], **descriptor)

    def days(self, *days: str, buckets: int = 2, **descriptor: Any) -> FlussTable:
        """A log table with one partition per day."""
        return self.sure(
            COLUMNS,
            None,
            buckets=buckets,
            bucket_keys=["id"],
            partition_keys=["day"],
            partitions=[{"day": day} for day in days],
            **descriptor,
        )

    def keyed(self, buckets: int = 2, **descriptor: Any) -> FlussTable:
        """A key table, by id."""
        return self.sure(COLUMNS, ["id"], buckets=buckets, **descriptor)

    def sure(
        self,
        columns: Mapping[str, pa.DataType],
        keys: Sequence[str] | None,
        **options: Any,
    ) -> FlussTable:
        """A table that has leaders; Fluss 0.9 may miss a creation, and then another one is made."""
        for _ in range(5):
            table = self.create(columns, keys, **options)
            try:
                self.latest(table)
                return table
            except LeaderNotAvailableError:
                continue
        raise AssertionError("no table got its leaders")

    def latest(self, table: FlussTable) -> int:
        """The sum of all high watermarks."""
        backend = self.connection.backend
        info = table.get_table_info()

        async def ask() -> int:
            ids: list[int | None] = [None]
            if info.is_partitioned():
                found = await backend.list_partitions(info.table_path, None)
                ids = [p.partition_id for p in found]
            total = 0
            for partition_id in ids:
                buckets = range(info.num_buckets)
                answer = await backend.list_offsets(
                    info, partition_id, buckets, OffsetSpec.latest()
                )
                total += sum(answer.values())
            return total

        return runtime().call(ask())

    def recreate(self, table: FlussTable) -> FlussTable:
        """Drop the table and create it again under its name."""
        info = table.get_table_info()
        path = info.table_path
        self.admin.drop_table(path).result()
        from fluss_client import TableDescriptor

        made = TableDescriptor(
            info.schema,
            bucket_count=info.num_buckets,
            bucket_keys=info.bucket_keys,
            partition_keys=info.partition_keys,
        )
        self.admin.create_table(path, made).result()
        again = self.open(path)
        self.latest(again)
        return again


def once_final(look: Callable[[], T]) -> T:
    """What `look` gives when no row before the time that it asks for can come any more."""
    found: list[T] = []

    def is_final() -> bool:
        try:
            found.append(look())
        except NotYetError:
            return False
        return True

    wait_until("the time to be final", is_final, FINAL_S)
    return found[0]
