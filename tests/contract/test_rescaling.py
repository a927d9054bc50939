"""The bucket count of a table is changed: its partitions have different counts from then on.

Servers before 1.0 cannot do it and must say so. The embedded engine can, so there these tests show
that rows and keys are placed and found by the count of their partition.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client import errors
from tests.contract.tables import Tables, done

DAYS = ("old", "new", "fewer")
COUNTS = {"old": 2, "new": 5, "fewer": 3}
KEYED: dict[str, Any] = {"partition_keys": ["day"], "bucket_keys": ["id"], "buckets": 2}
FIELDS = {"id": pa.int64(), "part": pa.int32(), "day": pa.string(), "v": pa.string()}
ROWS = pa.table(
    {
        "id": [n for n in range(40) for _ in DAYS],
        "part": pa.array([1] * 120, pa.int32()),
        "day": list(DAYS) * 40,
        "v": [f"{n}" for n in range(120)],
    }
)


def rescaled(tables: Tables, primary_keys: list[str] | None, **details: Any) -> fluss.FlussTable:
    """A table that was opened before its count was changed, with a partition of each count."""
    table = tables.create(FIELDS, primary_keys, partitions=[{"day": "old"}], **details)
    path = table.get_table_path()
    for day in ("new", "fewer"):
        done(tables.admin.alter_table(path, bucket_count=COUNTS[day]))
        done(tables.admin.create_partition(path, {"day": day}))
    return table


@pytest.fixture
def rescaling(offers: fluss.Capabilities) -> bool:
    return offers.rescaling


@pytest.fixture
def can_rescale(tables: Tables, rescaling: bool) -> bool:
    """Whether counts can be changed here. If not, the attempt is refused and changes nothing."""
    if not rescaling:
        table = tables.create(FIELDS, partitions=[{"day": "old"}], **KEYED)
        path = table.get_table_path()
        with pytest.raises(errors.UnsupportedByServerError, match=r"needs Fluss 1\.0"):
            done(tables.admin.alter_table(path, bucket_count=4))
        assert done(tables.admin.get_table_info(path)).num_buckets == 2
    return rescaling


def counts_of(tables: Tables, path: fluss.TablePath) -> dict[str, int]:
    info = done(tables.admin.get_table_info(path))
    listed = done(tables.admin.list_partition_infos(path))
    return {p.partition_name: info.bucket_count_of(p) for p in listed}


@pytest.mark.parametrize("primary_keys", [None, ["id", "part", "day"]])
def test_each_partition_keeps_its_count(
    tables: Tables, can_rescale: bool, primary_keys: list[str] | None
) -> None:
    if not can_rescale:
        return
    table = rescaled(tables, primary_keys, **KEYED)
    path = table.get_table_path()
    assert counts_of(tables, path) == COUNTS
    info = done(tables.admin.get_table_info(path))
    assert (info.num_buckets, info.bucket_count_epoch) == (3, 2)
    # The writer's table still says 2 buckets.
    assert table.get_table_info().num_buckets == 2
    (tables.upsert if primary_keys else tables.append)(table, ROWS)
    log = tables.log(table)
    assert sorted(log["v"].to_pylist()) == sorted(ROWS["v"].to_pylist())
    ends = {
        day: done(
            tables.admin.list_partition_offsets(
                path, day, list(range(count)), fluss.OffsetSpec.latest()
            )
        )
        for day, count in COUNTS.items()
    }
    for day, by_bucket in ends.items():
        assert sum(by_bucket.values()) == 40
        assert min(by_bucket.values()) > 0, f"bucket of {day} without rows: {by_bucket}"
        with pytest.raises(errors.SchemaError):
            done(
                tables.admin.list_partition_offsets(
                    path, day, [COUNTS[day]], fluss.OffsetSpec.latest()
                )
            )
    assert sum(done(tables.admin.get_table_stats(path)).values()) == 120


def test_keys_are_found_by_the_count_of_their_partition(tables: Tables, can_rescale: bool) -> None:
    if not can_rescale:
        return
    table = rescaled(tables, ["id", "part", "day"], **KEYED)
    tables.upsert(table, ROWS)
    expected = {(r["id"], r["day"]): r for r in ROWS.to_pylist()}
    for reader in (table, tables.reopen(table)):
        lookuper = reader.new_lookup().create_lookuper()
        for (number, day), row in list(expected.items())[::7]:
            assert done(lookuper.lookup([number, 1, day])) == row
        keys = [[number, 1, day] for number, day in expected]
        found = done(lookuper.lookup_many([*keys, [999, 1, "new"], [1, 1, "nowhere"]]))
        assert found == [*expected.values(), None, None]
        prefix = reader.new_lookup().lookup_by(["id", "day"]).create_lookuper()
        for number, day in list(expected)[::11]:
            assert done(prefix.lookup([number, day])) == [expected[number, day]]
    tables.delete(table, keys)
    assert done(lookuper.lookup_many(keys)) == [None] * len(keys)


def test_rows_without_a_bucket_key_reach_every_bucket(tables: Tables, can_rescale: bool) -> None:
    if not can_rescale:
        return
    table = rescaled(tables, None, partition_keys=["day"], buckets=2)
    for start in range(0, 120, 6):
        tables.append(table, ROWS.slice(start, 6))
    assert sorted(tables.log(table)["v"].to_pylist()) == sorted(ROWS["v"].to_pylist())


def test_a_scan_refuses_buckets_that_its_partition_does_not_have(
    tables: Tables, can_rescale: bool
) -> None:
    if not can_rescale:
        return
    table = rescaled(tables, None, **KEYED)
    ids = {
        p.partition_name: p.partition_id
        for p in done(tables.admin.list_partition_infos(table.get_table_path()))
    }
    with done(table.new_scan().create_log_scanner()) as scanner:
        scanner.subscribe_partition(ids["new"], 4, fluss.EARLIEST_OFFSET)
        with pytest.raises(errors.FlussError, match="has no bucket 2"):
            scanner.subscribe_partition(ids["old"], 2, fluss.EARLIEST_OFFSET)
    bucket = fluss.TableBucket(table.get_table_info().table_id, 3, partition_id=ids["fewer"])
    with pytest.raises(errors.FlussError, match="has no bucket 3"):
        table.new_scan().limit(1).create_bucket_batch_scanner(bucket)


def test_only_partitioned_tables_are_rescaled(tables: Tables, can_rescale: bool) -> None:
    if not can_rescale:
        return
    path = tables.create(FIELDS, buckets=2).get_table_path()
    with pytest.raises(errors.InvalidAlterTableError, match="no partitions"):
        done(tables.admin.alter_table(path, bucket_count=4))
    path = tables.create(FIELDS, **KEYED).get_table_path()
    with pytest.raises(errors.SchemaError):
        done(tables.admin.alter_table(path, bucket_count=0))
    with pytest.raises(errors.InvalidAlterTableError, match="4096"):
        done(tables.admin.alter_table(path, bucket_count=4097))
    # The same count again changes nothing.
    done(tables.admin.alter_table(path, bucket_count=2))
    info = done(tables.admin.get_table_info(path))
    assert (info.num_buckets, info.bucket_count_epoch) == (2, 0)
