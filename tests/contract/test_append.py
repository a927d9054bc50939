"""Append writers: every form of rows, buckets and partitions, bounds, errors."""

from __future__ import annotations

import concurrent.futures
import datetime as dt
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client import errors
from tests.contract.tables import Tables, done, eventually

EVENTS = {"id": pa.int64(), "name": pa.string(), "score": pa.float64()}


def events(first: int, last: int) -> pa.Table:
    ids = range(first, last)
    data = {"id": list(ids), "name": [f"n{i}" for i in ids], "score": [i / 2 for i in ids]}
    return pa.table(data, schema=pa.schema(list(EVENTS.items())))


def ids_by_bucket(tables: Tables, table: fluss.FlussTable) -> dict[int, list[int]]:
    """The `id` column of each bucket's log, in order."""
    found: dict[int, list[int]] = {}
    count = sum(
        done(tables.admin.list_offsets(table.get_table_path(), buckets(table), LATEST)).values()
    )
    with done(table.new_scan().create_log_scanner()) as scanner:
        tables.subscribe(scanner, table)
        seen = 0
        while seen < count:
            for bucket, records in scanner.poll(2_000).items():
                found.setdefault(bucket.bucket_id, []).extend(r.row["id"] for r in records)
                seen += len(records)
    return found


LATEST = fluss.OffsetSpec.latest()


def buckets(table: fluss.FlussTable) -> list[int]:
    return list(range(table.get_table_info().num_buckets))


@pytest.mark.supports("Append of rows", "Append of Arrow batches")
def test_rows_of_every_form_in_the_order_of_the_calls(tables: Tables) -> None:
    table = tables.create(EVENTS)
    with table.new_append().create_writer() as writer:
        writer.append({"id": 0, "name": "n0", "score": 0.0})
        writer.append([1, "n1", 0.5])
        writer.append((2, "n2", 1))
        writer.write_arrow_batch(events(3, 5).to_batches()[0])
        writer.write_arrow(events(5, 8))
        writer.write_pandas(events(8, 10).to_pandas())
        writer.write_arrow(pl.from_arrow(events(10, 12)))  # type: ignore[arg-type]
        writer.append({"id": 12})
    expected = [*events(0, 12).to_pylist(), {"id": 12, "name": None, "score": None}]
    assert tables.log(table).to_pylist() == expected


def test_an_acknowledged_row_can_be_read_at_once(tables: Tables) -> None:
    table = tables.create(EVENTS)
    writer = table.new_append().create_writer()
    for at in range(5):
        done(writer.append((at, "x", None)).wait())
        assert tables.log(table).num_rows == at + 1
    handle = writer.write_arrow_batch(events(5, 6).to_batches()[0])
    done(handle.wait())
    done(handle.wait())
    assert tables.log(table).num_rows == 6


def test_other_encodings_of_the_same_values(tables: Tables) -> None:
    schema = {"s": pa.string(), "n": pa.int32(), "at": pa.timestamp("us", tz="UTC")}
    table = tables.create(schema)
    at = dt.datetime(2024, 2, 29, 12)
    batch = {
        "at": pa.array([at], pa.timestamp("ms", tz="Asia/Tokyo")),
        "n": pa.array([7], pa.int64()),
        "s": pa.array(["a"]).dictionary_encode(),
    }
    frame = pd.DataFrame({"s": ["b"], "n": [8.0], "at": [pd.Timestamp(at, tz="UTC")]})
    with table.new_append().create_writer() as writer:
        writer.write_arrow(pa.table(batch))
        writer.write_pandas(frame)
        writer.append({"s": "c", "n": 9, "at": at})
        east = dt.timezone(dt.timedelta(hours=2))
        writer.append({"s": "d", "n": 10, "at": at.replace(hour=14, tzinfo=east)})
    found = tables.log(table)
    assert found["n"].to_pylist() == [7, 8, 9, 10]
    assert found["s"].to_pylist() == ["a", "b", "c", "d"]
    assert found["at"].to_pylist() == [at.replace(tzinfo=dt.UTC)] * 4


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": "x"}, "column 'id' is bigint: 'x' (str) does not fit"),
        ({"id": 1 << 63}, "column 'id' is bigint"),
        ({"id": 1, "nmae": "a"}, "no column 'nmae' here; the columns are id, name, score"),
        ((1, "a"), "a row of 3 values is needed"),
        ({"id": 1, "score": "high"}, "column 'score' is double"),
    ],
)
def test_a_row_that_does_not_fit_is_refused_and_nothing_is_sent(
    tables: Tables, row: Any, message: str
) -> None:
    table = tables.create(EVENTS)
    with table.new_append().create_writer() as writer:
        with pytest.raises(errors.RowError) as caught:
            writer.append(row)
        assert message in str(caught.value)
        writer.append((1, "good", 1.0))
    assert tables.log(table)["name"].to_pylist() == ["good"]


def test_a_column_that_takes_no_null(tables: Tables) -> None:
    schema = pa.schema([pa.field("id", pa.int32(), nullable=False), ("name", pa.string())])
    table = tables.create(schema)
    with table.new_append().create_writer() as writer:
        with pytest.raises(errors.RowError, match="column 'id'"):
            writer.append({"name": "a"})
        with pytest.raises(errors.RowError, match="column 'id'"):
            writer.write_arrow(pa.table({"id": pa.array([1, None], pa.int32())}))
        writer.append({"id": 1})
    assert tables.log(table).num_rows == 1


def test_a_primary_key_table_is_refused(tables: Tables) -> None:
    table = tables.create({"id": pa.int32(), "v": pa.string()}, ["id"])
    with pytest.raises(errors.UnsupportedError, match="new_upsert"):
        table.new_append().create_writer()


def test_more_than_one_batch_one_request_and_the_whole_buffer(
    tables: Tables, config: fluss.Config
) -> None:
    table = tables.create(EVENTS, buckets=3, bucket_keys=["id"])
    config.writer_batch_size = 64 << 10
    config.writer_request_max_size = 128 << 10
    config.writer_buffer_memory_size = 1 << 20
    whole = events(0, 200_000)
    assert whole.nbytes > 4 << 20
    with done(fluss.FlussConnection.create(config)) as connection:
        own = done(connection.get_table(table.get_table_path()))
        with own.new_append().create_writer() as writer:
            writer.write_arrow(whole.slice(0, 100_000))
            done(
                writer.write_arrow_batch(
                    whole.slice(100_000).combine_chunks().to_batches()[0]
                ).wait()
            )
            assert writer.metrics()["batches"] > 50
            assert writer.metrics()["buffered_bytes"] == 0
    found = ids_by_bucket(tables, table)
    assert sorted(found) == [0, 1, 2]
    assert sorted(i for ids in found.values() for i in ids) == list(range(200_000))
    assert all(ids == sorted(ids) for ids in found.values())


@pytest.mark.parametrize("assigner", ["sticky", "round_robin"])
def test_rows_without_a_bucket_key_are_spread(
    tables: Tables, config: fluss.Config, assigner: str
) -> None:
    table = tables.create(EVENTS, buckets=3)
    config.writer_bucket_no_key_assigner = assigner
    with done(fluss.FlussConnection.create(config)) as connection:
        own = done(connection.get_table(table.get_table_path()))
        with own.new_append().create_writer() as writer:
            for at in range(30):
                writer.append((at, "x", None))
                if at % 3 == 2:
                    done(writer.flush())
    found = ids_by_bucket(tables, table)
    assert sorted(i for ids in found.values() for i in ids) == list(range(30))
    assert len(found) > 1
    if assigner == "round_robin":
        assert found == {b: list(range(b, 30, 3)) for b in range(3)}


def test_a_bucket_key_keeps_equal_keys_together(tables: Tables) -> None:
    table = tables.create({"id": pa.int64(), "key": pa.string()}, buckets=4, bucket_keys=["key"])
    keys = [f"k{at % 20}" for at in range(400)]
    with table.new_append().create_writer() as writer:
        for at in range(200):
            writer.append((at, keys[at]))
        writer.write_arrow(pa.table({"id": range(200, 400), "key": keys[200:]}))
    home: dict[str, int] = {}
    found = ids_by_bucket(tables, table)
    assert len(found) > 1
    for bucket, ids in found.items():
        assert ids == sorted(ids)
        for at in ids:
            assert home.setdefault(keys[at], bucket) == bucket
    assert len(home) == 20


@pytest.mark.supports("Append to a partitioned table")
def test_partitions_that_are_there_and_one_that_is_not(tables: Tables) -> None:
    table = tables.create(
        {"id": pa.int64(), "day": pa.string()},
        buckets=2,
        partition_keys=["day"],
        partitions=[{"day": "mon"}, {"day": "tue"}],
    )
    writer = table.new_append().create_writer()
    for at in range(20):
        writer.append((at, "mon" if at % 2 else "tue"))
    writer.write_arrow(pa.table({"id": [20, 21], "day": ["tue", "mon"]}))
    done(writer.flush())
    with pytest.raises(errors.PartitionNotExistError, match="wed"):
        writer.write_arrow(pa.table({"id": [22], "day": ["wed"]}))
    handle = writer.append((22, "wed"))
    with pytest.raises(errors.PartitionNotExistError, match="wed"):
        done(handle.wait())
    done(writer.flush())
    done(tables.admin.create_partition(table.get_table_path(), {"day": "wed"}))
    done(writer.append((23, "wed")).wait())
    writer.close()
    found = tables.log(table)
    days = dict(zip(found["id"].to_pylist(), found["day"].to_pylist(), strict=True))
    assert sorted(days) == [*range(22), 23]
    assert days[21] == "mon"
    assert days[23] == "wed"


def raise_when_refused(writer: fluss.AppendWriter, row: Any) -> None:
    """Write until the servers refuse: they learn of a drop a moment after it was accepted."""

    def refusal() -> fluss.FlussError | None:
        writer.append(row)
        try:
            done(writer.flush())
        except fluss.FlussError as error:
            return error
        return None

    error = eventually(refusal, lambda error: error is not None)
    assert error is not None
    raise error


def test_a_partition_that_is_dropped_and_made_again(tables: Tables) -> None:
    table = tables.create(
        {"id": pa.int64(), "day": pa.string()},
        partition_keys=["day"],
        partitions=[{"day": "mon"}],
    )
    path = table.get_table_path()
    writer = table.new_append().create_writer()
    done(writer.append((1, "mon")).wait())
    done(tables.admin.drop_partition(path, {"day": "mon"}))
    done(tables.admin.create_partition(path, {"day": "mon"}))
    with pytest.raises(errors.PartitionNotExistError, match="1 rows for TableBucket"):
        raise_when_refused(writer, (2, "mon"))
    done(writer.append((3, "mon")).wait())
    assert tables.log(table)["id"].to_pylist() == [3]


def test_a_table_that_is_dropped_under_the_writer(tables: Tables) -> None:
    table = tables.create(EVENTS)
    writer = table.new_append().create_writer()
    done(writer.append((1, "a", None)).wait())
    done(tables.admin.drop_table(table.get_table_path()))
    with pytest.raises(errors.TableNotExistError, match="1 rows for TableBucket"):
        raise_when_refused(writer, (2, "b", None))


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_without_idempotence(tables: Tables, config: fluss.Config, acks: str) -> None:
    table = tables.create(EVENTS)
    config.writer_enable_idempotence = False
    config.writer_acks = acks
    with done(fluss.FlussConnection.create(config)) as connection:
        own = done(connection.get_table(table.get_table_path()))
        with own.new_append().create_writer() as writer:
            writer.write_arrow(events(0, 1000))
            writer.append((1000, "x", None))
    assert sorted(tables.log(table)["id"].to_pylist()) == list(range(1001))


def test_many_threads_and_writers_of_one_table(tables: Tables) -> None:
    table = tables.create(EVENTS)
    shared = table.new_append().create_writer()

    def work(thread: int) -> None:
        own = table.new_append().create_writer()
        for at in range(500):
            writer = shared if at % 2 else own
            writer.append((at, f"t{thread}", None))
        own.close()
        done(shared.flush())

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        for job in [pool.submit(work, thread) for thread in range(6)]:
            job.result()
    found = tables.log(table)
    ids = np.array(found["id"])
    names = np.array(found["name"])
    for thread in range(6):
        mine = ids[names == f"t{thread}"]
        assert sorted(mine) == list(range(500))
        for half in (0, 1):
            part = mine[mine % 2 == half]
            assert (np.diff(part) > 0).all()


def test_closing_the_connection_flushes_the_writer(tables: Tables, config: fluss.Config) -> None:
    table = tables.create(EVENTS)
    config.writer_batch_timeout_ms = 3_600_000
    connection = done(fluss.FlussConnection.create(config))
    own = done(connection.get_table(table.get_table_path()))
    writer = own.new_append().create_writer()
    done(writer.append((1, "a", None)).wait())
    writer.append((2, "b", None))
    connection.close()
    assert tables.log(table)["id"].to_pylist() == [1, 2]
    with pytest.raises(errors.ClosedError):
        writer.append((3, "c", None))


def test_a_closed_writer(tables: Tables) -> None:
    table = tables.create(EVENTS)
    writer = table.new_append().create_writer()
    writer.append((1, "a", None))
    writer.close()
    writer.close()
    with pytest.raises(errors.ClosedError):
        writer.append((2, "b", None))
    assert tables.log(table)["id"].to_pylist() == [1]
