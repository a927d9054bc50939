"""An upsert writer over a backend in memory: order per key, deletes, partial updates."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from fluss_client.aio.writing.writer import TableUpsert, UpsertWriter
from fluss_client.backend.contract import BucketWrite
from fluss_client.config import Config
from fluss_client.errors import (
    InvalidTargetColumnError,
    NotLeaderOrFollowerError,
    PartitionNotExistError,
    RowError,
    UnsupportedError,
)
from tests.unit.aio.fake_backend import FakeBackend, Fault, table_of

SCHEMA = pa.schema([("id", pa.int32()), ("name", pa.string()), ("n", pa.int64())])
LONG = 3_600_000

Make = Callable[..., UpsertWriter]


def kv_backend(**options: Any) -> FakeBackend:
    return FakeBackend(table_of(SCHEMA, **{"primary_keys": ["id"], **options}))


def flush(writer: UpsertWriter) -> None:
    writer.flush_future().result()


def values(backend: FakeBackend) -> list[Any]:
    return [value for _, value in backend.rows()]


def state(backend: FakeBackend) -> dict[bytes, Any]:
    """What the keys hold after all writes."""
    found: dict[bytes, Any] = dict(backend.rows())
    return {key: value for key, value in found.items() if value is not None}


def test_upserts_and_deletes_keep_their_order(upserter: Make) -> None:
    backend = kv_backend()
    writer = upserter(backend, writer_batch_timeout_ms=LONG)
    writer.upsert({"id": 1, "name": "a", "n": 1})
    writer.delete({"id": 1})
    writer.upsert([1, "b", None])
    writer.upsert((2, "c", 3))
    writer.delete([2])
    flush(writer)
    assert values(backend) == [(1, "a", 1), None, (1, "b", None), (2, "c", 3), None]
    assert len(backend.sent) == 1
    assert backend.targets == {None}


def test_deletes_alone_have_no_rows(upserter: Make) -> None:
    backend = kv_backend()
    writer = upserter(backend)
    writer.delete((1,))
    writer.delete((2,))
    flush(writer)
    assert [key for key, _ in backend.rows()] == [b"\x01", b"\x02"]
    assert values(backend) == [None, None]


def test_arrow_and_pandas_and_deletes_by_arrow(upserter: Make) -> None:
    backend = kv_backend()
    writer = upserter(backend)
    batch = pa.record_batch({"id": pa.array([1, 2, 3], pa.int32()), "name": ["a", "b", "c"]})
    writer.write_arrow_batch(batch).future().result()
    writer.write_arrow(pa.table({"id": [4, 5], "name": ["d", "e"], "n": [4, 5]}))
    writer.write_pandas(pd.DataFrame({"id": [6], "name": ["f"], "n": [6]}))
    writer.delete_arrow(pa.table({"id": pa.chunked_array([[1], [5]])})).future().result()
    writer.delete_arrow(pa.record_batch({"id": pa.array([6], pa.int32())}))
    writer.upsert((6, "again", None))
    writer.delete_arrow(pa.table({"id": pa.array([], pa.int32())})).future().result()
    flush(writer)
    assert sorted(state(backend).values()) == [
        (2, "b", None),
        (3, "c", None),
        (4, "d", 4),
        (6, "again", None),
    ]


@pytest.mark.parametrize(
    ("pk", "message"),
    [
        ({"id": None}, "column 'id'"),
        ({"id": 1, "name": "a"}, "no column 'name' here; the columns are id"),
        ({}, "column 'id'"),
        ([1, 2], "a row of 1 values is needed"),
        (1, "a row is a dict, list or tuple"),
    ],
)
def test_a_key_that_does_not_fit(upserter: Make, pk: Any, message: str) -> None:
    backend = kv_backend()
    writer = upserter(backend)
    with pytest.raises(RowError) as caught:
        writer.delete(pk)
    assert message in str(caught.value)
    with pytest.raises(RowError, match="column 'id'"):
        writer.upsert({"id": None, "name": "a"})
    with pytest.raises(RowError, match="column 'id'"):
        writer.write_arrow_batch(pa.record_batch({"id": pa.array([None], pa.int32())}))
    with pytest.raises(RowError, match="column 'id'"):
        writer.delete_arrow(pa.table({"id": pa.array([None], pa.int32())}))
    flush(writer)
    assert backend.sent == []


def test_a_log_table_is_refused(upserter: Make) -> None:
    with pytest.raises(UnsupportedError, match="new_append"):
        upserter(kv_backend(primary_keys=[]))


def test_a_partial_update_writes_its_columns(upserter: Make) -> None:
    backend = kv_backend()
    writer = upserter(backend, [1, 0])
    writer.upsert({"id": 1, "name": "a"})
    writer.upsert(["b", 2])
    writer.upsert({"id": 3})
    writer.write_arrow(pa.table({"id": [4], "name": ["d"]}))
    writer.delete([1])
    with pytest.raises(RowError, match="no column 'n' here; the columns are name, id"):
        writer.upsert({"id": 1, "n": 5})
    with pytest.raises(RowError, match="no column 'n' here"):
        writer.write_arrow(pa.table({"id": [4], "n": [5]}))
    flush(writer)
    assert values(backend) == [
        (1, "a", None),
        (2, "b", None),
        (3, None, None),
        (4, "d", None),
        None,
    ]
    assert backend.targets == {(0, 1)}


def test_the_builder_of_partial_updates() -> None:
    backend = kv_backend()
    builder = TableUpsert(backend, backend.table, Config())  # type: ignore[arg-type]
    for bad in (["nope"], ["id", "nope"]):
        with pytest.raises(InvalidTargetColumnError, match="no column 'nope'"):
            builder.partial_update_by_name(bad)
    with pytest.raises(InvalidTargetColumnError, match="no column 9"):
        builder.partial_update_by_index([0, 9])
    with pytest.raises(InvalidTargetColumnError, match="no column -1"):
        builder.partial_update_by_index([0, -1])
    with pytest.raises(InvalidTargetColumnError, match="whole primary key; id is missing"):
        builder.partial_update_by_name(["name"]).create_writer()
    by_name = builder.partial_update_by_name(["name", "id"]).create_writer()
    by_index = builder.partial_update_by_index([1, 0, 1]).create_writer()
    by_name.upsert(["a", 1])
    by_index.upsert(["a", 1])
    flush(by_name)
    flush(by_index)
    assert values(backend) == [(1, "a", None)] * 2
    whole = builder.create_writer()
    whole.upsert((1, "b", 2))
    flush(whole)
    assert values(backend)[2:] == [(1, "b", 2)]


def test_columns_that_take_no_null_cannot_be_left_out() -> None:
    schema = pa.schema([("id", pa.int32()), pa.field("must", pa.int32(), nullable=False)])
    table = table_of(schema, primary_keys=["id"])
    with pytest.raises(InvalidTargetColumnError, match="column 'must' is NOT NULL"):
        UpsertWriter(FakeBackend(table), table, Config(), [0])  # type: ignore[arg-type]


def test_a_column_that_the_server_counts_up_is_left_to_it(upserter: Make) -> None:
    schema = pa.schema(
        [("id", pa.int32()), pa.field("serial", pa.int64(), nullable=False), ("n", pa.int64())]
    )
    backend = FakeBackend(table_of(schema, primary_keys=["id"], auto_increment=["serial"]))
    writer = upserter(backend)
    writer.upsert({"id": 1, "n": 5})
    writer.upsert([2, 6])
    flush(writer)
    assert values(backend) == [(1, None, 5), (2, None, 6)]
    assert backend.targets == {(0, 2)}
    with pytest.raises(RowError, match="no column 'serial'"):
        writer.upsert({"id": 1, "serial": 1})
    with pytest.raises(InvalidTargetColumnError, match="generated by the server"):
        upserter(backend, [0, 1])


def test_partitions_and_buckets(upserter: Make) -> None:
    backend = kv_backend(
        primary_keys=["id", "name"], partition_keys=["name"], bucket_keys=["id"], buckets=4
    )
    backend.partitions = {"eu": 1, "us": 2}
    writer = upserter(backend)
    for at in range(100):
        writer.upsert((at, "eu" if at % 2 else "us", at))
    writer.delete({"id": 7, "name": "eu"})
    writer.delete_arrow(pa.table({"name": ["us"], "id": pa.array([8], pa.int32())}))
    with pytest.raises(PartitionNotExistError, match="'asia'"):
        writer.delete_arrow(pa.table({"name": ["asia"], "id": pa.array([8], pa.int32())}))
    flush(writer)
    for bucket, log in backend.logs.items():
        names = {value[1] for _, value in log if value is not None}
        assert names == {"eu" if bucket.partition_id == 1 else "us"}
    assert len(state_by_bucket(backend)) == 98


def state_by_bucket(backend: FakeBackend) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for bucket, log in backend.logs.items():
        for key, value in log:
            found[bucket, key] = value
    return {key: value for key, value in found.items() if value is not None}


@pytest.mark.parametrize("idempotent", [True, False])
def test_the_last_write_of_every_key_wins_whatever_gets_lost(
    upserter: Make, idempotent: bool
) -> None:
    chance = random.Random(4)
    backend = kv_backend(buckets=3)

    def script(write: BucketWrite) -> Fault | None:
        if not idempotent and chance.random() < 0.3:
            return Fault(NotLeaderOrFollowerError("moved"))
        if idempotent and chance.random() < 0.3:
            return Fault(NotLeaderOrFollowerError("moved"), taken=chance.random() < 0.5)
        return None

    backend.script = script
    writer = upserter(backend, writer_batch_size=1024, writer_enable_idempotence=idempotent)
    expected: dict[int, int] = {}
    for at in range(3000):
        key = chance.randrange(50)
        luck = chance.random()
        if luck < 0.1:
            writer.delete({"id": key})
            expected.pop(key, None)
        elif luck < 0.2:
            writer.delete_arrow(pa.table({"id": pa.array([key], pa.int32())}))
            expected.pop(key, None)
        elif luck < 0.3:
            rows = {"id": pa.array([key, key], pa.int32()), "n": np.array([-1, at])}
            writer.write_arrow_batch(pa.record_batch(rows))
            expected[key] = at
        else:
            writer.upsert({"id": key, "n": at})
            expected[key] = at
    flush(writer)
    assert {value[0]: value[2] for value in state(backend).values()} == expected
