"""Records of dropped partitions, in every kind of store."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from fluss_client.model.table import PartitionInfo, TablePath
from fluss_orchestrate.core.checkpoints import CheckpointStore, compact
from fluss_orchestrate.core.checkpoints.dropped import (
    NO_RECORDS,
    DroppedPlace,
    drops_after,
    last_drop,
    last_drop_to_add_to,
    record_dropped,
)
from fluss_orchestrate.core.errors import CheckpointRetiredError
from fluss_orchestrate.core.identity import TableIdentity
from tests.orchestrate.checkpoints.memory_log import MemoryEventLog
from tests.orchestrate.checkpoints.plans import TABLE


def partition(number: int) -> PartitionInfo:
    return PartitionInfo(number, f"d{number}", {"day": f"d{number}"})


def table_of(name: str) -> TableIdentity:
    return replace(TABLE, path=TablePath("shop", name.replace("/", "_")))


def test_what_was_dropped_is_known_to_everybody(
    open_store: Callable[[], CheckpointStore], name: str
) -> None:
    table = table_of(name)
    where = table.cluster, table.path
    store = open_store()
    assert last_drop(store, *where) == NO_RECORDS
    assert drops_after(store, *where, NO_RECORDS).of(table) == {}
    record_dropped(store, table, partition(4), {0: 10, 1: 0})
    record_dropped(store, table, partition(5), {0: 7})
    other = replace(table, table_id=99)
    record_dropped(store, other, partition(6), {0: 1})
    found = drops_after(open_store(), *where, NO_RECORDS)
    assert found.last == 2
    assert found.of(table) == {
        (4, 0): DroppedPlace("d4", 10, 0),
        (4, 1): DroppedPlace("d4", 0, 0),
        (5, 0): DroppedPlace("d5", 7, 1),
    }
    assert drops_after(open_store(), *where, 0).of(table).keys() == {(5, 0)}
    assert found.of(other).keys() == {(6, 0)}
    assert not any("dropped" in one for one in store.names())


def test_a_drop_by_many_at_once_is_recorded_once(store: CheckpointStore, name: str) -> None:
    table = table_of(name)

    def record(number: int) -> None:
        record_dropped(store, table, partition(number), {0: 3})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(record, [1, 1, 2, 1]))
    assert last_drop(store, table.cluster, table.path) == 1


def test_a_long_name_fits(store: CheckpointStore) -> None:
    table = replace(TABLE, path=TablePath("d" * 190, "t" * 190))
    record_dropped(store, table, partition(1), {0: 3})
    assert drops_after(store, table.cluster, table.path, NO_RECORDS).of(table).keys() == {(1, 0)}


def test_a_store_that_was_moved_takes_no_more() -> None:
    old, new = CheckpointStore(MemoryEventLog()), CheckpointStore(MemoryEventLog())
    record_dropped(old, TABLE, partition(1), {0: 3})
    compact(old, new)
    with pytest.raises(CheckpointRetiredError, match=r"drops of shop\.orders"):
        last_drop_to_add_to(old, TABLE.cluster, TABLE.path)
    assert last_drop_to_add_to(new, TABLE.cluster, TABLE.path) == 0
    assert drops_after(new, TABLE.cluster, TABLE.path, NO_RECORDS).of(TABLE).keys() == {(1, 0)}
