"""Offsets: earliest, latest, by time, per partition."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client import errors
from tests.contract.tables import Tables, done, eventually
from tests.waiting import within

LOG = {"id": pa.int32()}
FUTURE_MS = 4_102_444_800_000  # the year 2100


def _rows(count: int) -> pa.Table:
    return pa.table({"id": pa.array(range(count), pa.int32())})


@pytest.mark.supports("Admin.listOffsets")
def test_offsets_of_an_empty_and_a_filled_bucket(tables: Tables) -> None:
    table = tables.create(LOG, buckets=3, bucket_keys=["id"])
    path = table.get_table_path()

    def offsets(spec: fluss.OffsetSpec) -> dict[int, int]:
        found: dict[int, int] = done(tables.admin.list_offsets(path, [0, 1, 2], spec))
        return found

    assert offsets(fluss.OffsetSpec.latest()) == {0: 0, 1: 0, 2: 0}
    tables.append(table, _rows(300))
    latest = offsets(fluss.OffsetSpec.latest())
    assert sum(latest.values()) == 300
    assert all(latest.values())
    assert offsets(fluss.OffsetSpec.earliest()) == {0: 0, 1: 0, 2: 0}
    assert offsets(fluss.OffsetSpec.timestamp(0)) == {0: 0, 1: 0, 2: 0}
    assert done(tables.admin.list_offsets(path, [2], fluss.OffsetSpec.latest())) == {2: latest[2]}
    assert done(tables.admin.list_offsets(path, [], fluss.OffsetSpec.latest())) == {}


@pytest.mark.supports("Admin.listOffsets (timestamp)")
def test_a_moment_between_two_batches_finds_the_second(tables: Tables) -> None:
    table = tables.create(LOG)
    path = table.get_table_path()
    tables.append(table, _rows(10))
    first = tables.records(table, 10)[-1].timestamp
    # The next batch must be committed at a later millisecond than the first one.
    eventually(lambda: time.time() * 1000, lambda now: now > first + 2)
    tables.append(table, _rows(5))
    second = tables.records(table, 15)[-1].timestamp
    assert second > first

    def at(moment: int) -> int:
        spec = fluss.OffsetSpec.timestamp(moment)
        return int(done(tables.admin.list_offsets(path, [0], spec))[0])

    assert at(first) == 0
    assert at(first + 1) == 10
    assert at(second) == 10
    assert at(second + 1) == 15


def test_a_moment_in_the_future_is_a_typed_error(tables: Tables) -> None:
    path = tables.create(LOG).get_table_path()
    with within(10, "the error"), pytest.raises(errors.InvalidTimestampError) as raised:
        done(tables.admin.list_offsets(path, [0], fluss.OffsetSpec.timestamp(FUTURE_MS)))
    assert raised.value.error_code == fluss.ErrorCode.INVALID_TIMESTAMP_EXCEPTION


@pytest.mark.supports("Admin.listOffsets (partition)")
def test_offsets_of_a_partition(tables: Tables) -> None:
    table = tables.create(
        {"id": pa.int32(), "day": pa.string()},
        partition_keys=["day"],
        partitions=[{"day": "a"}, {"day": "b"}],
        buckets=2,
    )
    path = table.get_table_path()
    tables.append(table, [{"id": i, "day": "a"} for i in range(7)])

    def offsets(name: str, spec: fluss.OffsetSpec) -> dict[int, int]:
        found: dict[int, int] = done(tables.admin.list_partition_offsets(path, name, [0, 1], spec))
        return found

    assert sum(offsets("a", fluss.OffsetSpec.latest()).values()) == 7
    assert offsets("a", fluss.OffsetSpec.earliest()) == {0: 0, 1: 0}
    assert offsets("b", fluss.OffsetSpec.latest()) == {0: 0, 1: 0}
    with pytest.raises(errors.SchemaError, match="list_partition_offsets"):
        done(tables.admin.list_offsets(path, [0], fluss.OffsetSpec.latest()))


def test_a_bucket_that_is_not_there(tables: Tables) -> None:
    path = tables.create(LOG, buckets=2).get_table_path()
    for bucket in (2, -1):
        with pytest.raises(errors.SchemaError, match="0 to 1"):
            done(tables.admin.list_offsets(path, [0, bucket], fluss.OffsetSpec.latest()))


def test_offsets_in_the_words_of_the_older_guide(tables: Tables) -> None:
    table = tables.create(LOG)
    path = table.get_table_path()
    tables.append(table, _rows(4))
    ask = tables.admin.list_offsets
    assert done(ask(path, bucket_ids=[0], offset_type="latest")) == {0: 4}
    assert done(ask(path, bucket_ids=[0], offset_type="earliest")) == {0: 0}
    assert done(ask(path, bucket_ids=[0], offset_type="timestamp", timestamp=1)) == {0: 0}
    with pytest.raises(errors.ConfigError, match="timestamp="):
        ask(path, bucket_ids=[0], offset_type="timestamp")
    with pytest.raises(errors.ConfigError, match="OffsetSpec"):
        ask(path, bucket_ids=[0], offset_type="middle")
    with pytest.raises(errors.ConfigError, match="OffsetSpec"):
        ask(path, bucket_ids=[0])


def test_offsets_follow_a_changelog(tables: Tables) -> None:
    table = tables.create({"id": pa.int32(), "v": pa.string()}, ["id"])
    path = table.get_table_path()
    tables.upsert(table, [(1, "a"), (2, "b")])
    tables.upsert(table, [(1, "c")])
    assert done(tables.admin.list_offsets(path, [0], fluss.OffsetSpec.latest())) == {0: 4}
