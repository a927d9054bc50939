"""Partitions and buckets of whole batches."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from fluss_client.aio.writing.accumulator import RecordSlice
from fluss_client.aio.writing.routing import Router
from fluss_client.codec.buckets import bucket_of
from fluss_client.codec.keys import KeyEncoding, encode_keys
from fluss_client.config import Config
from fluss_client.errors import PartitionNotExistError, RowError, UnsupportedError
from fluss_client.model.table import TableInfo
from tests.unit.aio.fake_backend import table_of

SCHEMA = pa.schema([("id", pa.int32()), ("day", pa.string()), ("v", pa.int64())])


def batch_of(rows: int, days: Sequence[str] = ("d0",)) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "id": pa.array(np.arange(rows) % 97, pa.int32()),
            "day": pa.array([days[at % len(days)] for at in range(rows)]),
            "v": pa.array(np.arange(rows)),
        }
    )


class Partitions:
    """Answers which id a partition has."""

    def __init__(self, **ids: int) -> None:
        self.ids = ids

    def __call__(self, names: Sequence[str]) -> list[int]:
        for name in names:
            if name not in self.ids:
                raise PartitionNotExistError(f"no partition '{name}'")
        return [self.ids[name] for name in names]


def router(table: TableInfo, partitions: Partitions | None = None, **settings: object) -> Router:
    properties = {key.replace("__", "."): value for key, value in settings.items()}
    return Router(table, Config(properties), partitions or Partitions())


def by_place(slices: Sequence[RecordSlice]) -> dict[tuple[int | None, int], list[int]]:
    found: dict[tuple[int | None, int], list[int]] = {}
    for part in slices:
        place = (part.bucket.partition_id, part.bucket.bucket_id)
        found.setdefault(place, []).extend(part.rows.column("v").to_pylist())
    return found


@pytest.mark.parametrize("buckets", [1, 2, 16])
def test_a_bucket_key_decides_and_order_is_kept(buckets: int) -> None:
    table = table_of(SCHEMA, bucket_keys=["id"], buckets=buckets)
    batch = batch_of(1000)
    found = by_place(router(table).split(batch))
    keys = encode_keys(
        [batch.column("id")], [table.schema.column("id").type], ["id"], KeyEncoding.COMPACTED
    )
    expected: dict[tuple[int | None, int], list[int]] = {}
    for value, key in zip(batch.column("v").to_pylist(), keys, strict=True):
        place = (None, bucket_of(key, buckets, KeyEncoding.COMPACTED))
        expected.setdefault(place, []).append(value)
    assert found == expected


def test_partitions_and_buckets_together() -> None:
    table = table_of(
        SCHEMA, primary_keys=["id", "day"], partition_keys=["day"], bucket_keys=["id"], buckets=3
    )
    partitions = Partitions(mon=10, tue=20)
    routes = router(table, partitions)
    batch = batch_of(300, ["mon", "tue"])
    deletes = np.arange(300) % 5 == 0
    slices = routes.split(batch, deletes)
    assert {part.bucket.partition_id for part in slices} == {10, 20}
    for part in slices:
        day = "mon" if part.bucket.partition_id == 10 else "tue"
        values = part.rows.column("v").to_numpy()
        assert set(part.rows.column("day").to_pylist()) == {day}
        assert (np.diff(values) > 0).all()
        assert part.deletes is not None
        assert (part.deletes == (values % 5 == 0)).all()
    assert sum(part.rows.num_rows for part in slices) == 300
    partitions.ids["mon"] = 11
    assert {p.bucket.partition_id for p in routes.split(batch)} == {11, 20}


def test_a_missing_partition_is_named() -> None:
    table = table_of(SCHEMA, partition_keys=["day"])
    with pytest.raises(PartitionNotExistError, match="'tue'"):
        router(table, Partitions(mon=10)).split(batch_of(4, ["mon", "tue"]))


def test_a_null_in_a_key_is_named() -> None:
    table = table_of(SCHEMA, bucket_keys=["id"], buckets=2)
    batch = pa.record_batch({"id": pa.array([1, None], pa.int32()), "day": ["a", "b"], "v": [1, 2]})
    with pytest.raises(RowError, match="column 'id'"):
        router(table).split(batch)


def test_rows_of_one_bucket_are_not_copied() -> None:
    for table in (table_of(SCHEMA), table_of(SCHEMA, bucket_keys=["id"], buckets=1)):
        batch = batch_of(100)
        slices = router(table).split(batch)
        assert [part.rows.num_rows for part in slices] == [100]
        for ours, theirs in zip(slices[0].rows.columns, batch.columns, strict=True):
            assert ours.buffers()[1].address == theirs.buffers()[1].address


def test_slices_are_cut_to_the_batch_size() -> None:
    batch = batch_of(10_000)
    for table in (table_of(SCHEMA), table_of(SCHEMA, bucket_keys=["id"], buckets=2)):
        slices = router(table, writer__batch_size=4096).split(batch)
        assert all(part.nbytes <= 4096 for part in slices)
        assert sum(part.rows.num_rows for part in slices) == 10_000


def test_a_row_above_the_batch_size_stands_alone() -> None:
    schema = pa.schema([("s", pa.string())])
    batch = pa.record_batch({"s": ["a"] * 50 + ["b" * 5000] + ["c"] * 50})
    slices = router(table_of(schema), writer__batch_size=1024).split(batch)
    assert [part.rows.num_rows for part in slices if part.nbytes > 1024] == [1]
    rejoined = [value for part in slices for value in part.rows.column("s").to_pylist()]
    assert rejoined == batch.column("s").to_pylist()


def test_sticky_stays_for_a_batch_and_moves_on_when_told() -> None:
    table = table_of(SCHEMA, buckets=8)
    batch = batch_of(100)
    routes = router(table, writer__batch_size=batch.nbytes * 4)
    places = [routes.split(batch)[0].bucket.bucket_id for _ in range(40)]
    runs = [places[at : at + 4] for at in range(0, 40, 4)]
    assert all(len(set(run)) == 1 for run in runs)
    assert all(a[0] != b[0] for a, b in itertools.pairwise(runs))
    before = routes.split(batch)[0].bucket
    routes.batch_closed()
    assert routes.split(batch)[0].bucket != before


def test_round_robin_goes_row_by_row_or_batch_by_batch() -> None:
    table = table_of(SCHEMA, buckets=3)
    routes = router(table, writer__bucket__no_key_assigner="round_robin")
    found = by_place(routes.split(batch_of(7), single=True))
    assert found == {(None, 0): [0, 3, 6], (None, 1): [1, 4], (None, 2): [2, 5]}
    places = [routes.split(batch_of(5))[0].bucket.bucket_id for _ in range(6)]
    assert Counter(places) == {0: 2, 1: 2, 2: 2}
    assert places[0] == 1, "turns go on where the rows stopped"


def test_no_rows_make_no_slices() -> None:
    table = table_of(SCHEMA, partition_keys=["day"], bucket_keys=["id"], buckets=2)
    assert router(table).split(batch_of(0)) == []


def test_keys_that_no_client_can_write_are_refused_when_the_writer_is_made() -> None:
    table = table_of(
        SCHEMA,
        primary_keys=["id", "day"],
        buckets=1,
        properties={"table.datalake.format": "iceberg"},
    )
    with pytest.raises(UnsupportedError, match="Iceberg buckets by one column"):
        router(table)
