"""Appends under numbers that were fixed beforehand: sent any number of times, written once."""

from __future__ import annotations

import concurrent.futures
from typing import Any

import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client import errors
from fluss_client.aio.writing.pinned import append_pinned
from fluss_client.runtime import runtime
from tests.contract.tables import Tables, done


def batches(*sizes: int) -> list[pa.RecordBatch]:
    return [pa.record_batch({"id": pa.array(range(size), pa.int64())}) for size in sizes]


class Unit:
    """One writer id for one bucket of one table."""

    def __init__(self, tables: Tables) -> None:
        self.table = tables.create({"id": pa.int64()}, buckets=2)
        self.info = self.table.get_table_info()
        self.bucket = fluss.TableBucket(self.info.table_id, 1)
        self.backend = tables.connection.backend
        self.writer_id = runtime().call(self.backend.init_writer([self.info.table_path]))

    def append(self, data: list[pa.RecordBatch], first: int = 0, **options: Any) -> list[int]:
        work = append_pinned(
            self.backend, self.info, self.bucket, data, self.writer_id, first, **options
        )
        return runtime().call(work)


@pytest.fixture
def unit(tables: Tables) -> Unit:
    return Unit(tables)


def test_sending_again_gives_the_same_offsets(tables: Tables, unit: Unit) -> None:
    data = batches(3, 4, 5, 1, 2)
    assert unit.append(data) == [0, 3, 7, 12, 13]
    assert unit.append(data) == [0, 3, 7, 12, 13]
    assert unit.append(data[2:], first=2) == [7, 12, 13]
    assert tables.log(unit.table).num_rows == 15
    latest = done(
        tables.admin.list_offsets(unit.info.table_path, [0, 1], fluss.OffsetSpec.latest())
    )
    assert latest == {0: 0, 1: 15}


def test_many_at_once_write_once(tables: Tables, unit: Unit) -> None:
    data = batches(10, 20, 30)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = {tuple(job) for job in pool.map(lambda _: unit.append(data), range(8))}
    assert found == {(0, 10, 30)}
    assert tables.log(unit.table).num_rows == 60


def test_a_gap_and_what_is_long_past_are_refused(tables: Tables, unit: Unit) -> None:
    with pytest.raises(errors.WriteError) as caught:
        unit.append(batches(1), first=1)
    assert isinstance(caught.value.__cause__, errors.OutOfOrderSequenceError)
    unit.append(batches(1, 1, 1, 1, 1))
    unit.append(batches(1, 1, 1), first=5)
    with pytest.raises(errors.WriteError) as caught:
        unit.append(batches(1))
    assert isinstance(caught.value.__cause__, errors.OutOfOrderSequenceError)
    assert tables.log(unit.table).num_rows == 8
