"""Lakes without system columns, as Fluss 1.0 creates them: the same rows, offsets and refusals."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from fluss_client import FlussConnection, TablePath
from fluss_orchestrate.core.incremental.scan import IncrementalScan
from fluss_orchestrate.core.lake import (
    LakeError,
    LakeLayoutError,
    LakeOffsetsUnknownError,
    LakeRangeError,
    LakeTimesUnknownError,
    MaintenanceSettings,
    lake_covers,
    lake_reader,
    maintain_lake,
    read_lake_offsets,
    read_table,
    tier_table,
    tiering_files,
)
from fluss_orchestrate.core.lake.equality_deletes import live_files
from fluss_orchestrate.core.lake.layout.placed_files import FileName
from tests.orchestrate.lake.key_programs import VARIANTS, make_key_table, run_program
from tests.orchestrate.lake.tables import (
    DAYS,
    LAYOUTS,
    append,
    as_rows,
    full_scan,
    lake_rows,
    lake_table,
    make_clean,
)

NewTable = Callable[..., TablePath]
OFFICIAL = "00001-0-0190c1ff-4f4c-7d0e-8b1e-1c5f9a2b3c4d-00002.parquet"
NOW = MaintenanceSettings(snapshot_age_ms=0, keep_snapshots=1)


def clean_table(connection: FlussConnection, new_table: NewTable, **options: Any) -> TablePath:
    path = new_table(**options)
    make_clean(connection, path)
    return path


def places_of(connection: FlussConnection, path: TablePath) -> list[tuple[str | None, int]]:
    info = connection.get_admin().result().get_table_info(path).result()
    names = DAYS if info.is_partitioned() else (None,)
    return [(name, bucket) for name in names for bucket in range(info.num_buckets)]


def by_offset(connection: FlussConnection, path: TablePath) -> dict[Any, list[int]]:
    """The ids of each bucket in the order of its log."""
    found: dict[Any, list[int]] = {}
    columns = {"columns": ["id"], "metadata_columns": ("_partition", "_bucket", "_offset")}
    with IncrementalScan(connection, path, str(path), settle_ms=0, **columns).run("one") as run:
        for row in sorted(run.to_arrow().to_pylist(), key=lambda row: row["_offset"]):
            found.setdefault((row["_partition"], row["_bucket"]), []).append(row["id"])
    return found


def lake_ids(
    connection: FlussConnection, path: TablePath, place: Any, start: int, stop: int
) -> list[int]:
    options: dict[str, Any] = {"columns": ["id"], "metadata_columns": ["_offset"]}
    rows = read_lake_offsets(connection, path, place, start, stop, **options).read_all()
    assert rows.column("_offset").to_pylist() == list(range(start, stop))
    return list(rows.column("id").to_pylist())


@pytest.mark.parametrize("layout", list(LAYOUTS))
def test_ranges_and_the_whole_table_are_exact(
    connection: FlussConnection, new_table: NewTable, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = clean_table(connection, new_table, layout=layout, buckets=2)
    append(connection, path, 0, 200)
    assert tier_table(connection, path, allow_tiering=True).rows == 200
    # Every piece ends a file here, so that a round has several files of a bucket.
    monkeypatch.setattr(tiering_files.DataFileWriter, "is_full", property(lambda _: True))
    append(connection, path, 200, 360)
    assert tier_table(connection, path, allow_tiering=True).rows == 160
    assert tier_table(connection, path, allow_tiering=True).rows == 0

    columns = [f.name for f in lake_table(connection, path).schema().fields]
    assert not [name for name in columns if name.startswith("__")]
    scanned = as_rows(full_scan(connection, path))
    assert lake_rows(connection, path) == scanned
    assert as_rows(read_table(connection, path, read="lake").read_all()) == scanned
    append(connection, path, 360, 400)
    assert not lake_covers(connection, path, "latest")
    assert as_rows(read_table(connection, path).read_all()) == as_rows(full_scan(connection, path))
    log = by_offset(connection, path)
    for place in places_of(connection, path):
        ids = log.get(place, [])
        held = sum(1 for i in ids if i < 360)
        for start, stop in ((0, held), (1, held - 1), (held // 2, held), (0, held // 3)):
            if start < stop:
                assert lake_ids(connection, path, place, start, stop) == ids[start:stop]
        with pytest.raises(LakeRangeError):
            lake_ids(connection, path, place, 0, held + 1)


@pytest.mark.parametrize("layout", ["turns", "both"])
def test_compaction_keeps_the_offsets(
    connection: FlussConnection, new_table: NewTable, layout: str
) -> None:
    path = clean_table(connection, new_table, layout=layout, buckets=2)
    for at in range(0, 400, 80):
        append(connection, path, at, at + 80)
        tier_table(connection, path, allow_tiering=True)
    log = by_offset(connection, path)
    before = len(live_files(lake_table(connection, path)))
    done = maintain_lake(connection, path, settings=NOW)
    assert done.files_after < before
    for at in range(400, 560, 80):
        append(connection, path, at, at + 80)
        tier_table(connection, path, allow_tiering=True)
    for _ in range(2):
        for place, ids in log.items():
            middle = len(ids) // 2
            assert lake_ids(connection, path, place, 1, len(ids)) == ids[1:]
            assert lake_ids(connection, path, place, middle, len(ids)) == ids[middle:]
        maintain_lake(connection, path, settings=NOW)
    assert as_rows(read_table(connection, path).read_all()).num_rows == 560


def test_a_scan_goes_on_in_the_lake(connection: FlussConnection, new_table: NewTable) -> None:
    path = clean_table(connection, new_table, buckets=1)
    append(connection, path, 0, 120)
    tier_table(connection, path, allow_tiering=True)
    options: dict[str, Any] = {"columns": ["id"], "metadata_columns": ("_offset",), "settle_ms": 0}
    scan = IncrementalScan(connection, path, str(path), **options)
    plan = scan.plan("one", max_offsets=50)
    (part,) = plan.ranges
    assert 0 < part.stop < 120, "the range ends within the snapshot"
    found = pa.Table.from_batches(lake_reader(connection)(plan))
    assert found.column("_offset").to_pylist() == list(range(part.stop))
    assert found.column("id").to_pylist() == list(range(part.stop))


def test_commit_times_are_refused(connection: FlussConnection, new_table: NewTable) -> None:
    path = clean_table(connection, new_table, buckets=1)
    append(connection, path, 0, 10)
    tier_table(connection, path, allow_tiering=True)
    options: dict[str, Any] = {"metadata_columns": ["_timestamp"]}
    with pytest.raises(LakeTimesUnknownError, match="_timestamp"):
        read_lake_offsets(connection, path, (None, 0), 0, 10, **options).read_all()


def test_rows_that_another_program_wrote_are_refused(
    connection: FlussConnection, new_table: NewTable
) -> None:
    path = clean_table(connection, new_table, buckets=1)
    append(connection, path, 0, 10)
    tier_table(connection, path, allow_tiering=True)
    table = lake_table(connection, path)
    table.append(table.scan("id == 3").to_arrow())
    append(connection, path, 10, 20)
    tier_table(connection, path, allow_tiering=True)
    with pytest.raises(LakeOffsetsUnknownError, match="another program"):
        lake_ids(connection, path, (None, 0), 0, 10)
    with pytest.raises(LakeOffsetsUnknownError, match="another program"):
        maintain_lake(connection, path, settings=NOW)


def test_a_part_of_the_system_columns_is_refused(
    connection: FlussConnection, new_table: NewTable
) -> None:
    from pyiceberg.types import IntegerType

    path = clean_table(connection, new_table, buckets=1)
    append(connection, path, 0, 10)
    with lake_table(connection, path).update_schema() as update:
        update.add_column("__bucket", IntegerType())
    with pytest.raises(LakeLayoutError, match="__bucket") as caught:
        tier_table(connection, path, allow_tiering=True)
    assert caught.value.present == ("__bucket",)


def test_another_partitioning_is_refused(connection: FlussConnection, new_table: NewTable) -> None:
    path = clean_table(connection, new_table, buckets=2)
    append(connection, path, 0, 10)
    with lake_table(connection, path).update_spec() as update:
        update.add_identity("name")
    with pytest.raises(LakeError, match="partitioned by"):
        tier_table(connection, path, allow_tiering=True)


def test_another_bucket_count_than_that_of_the_lake_is_refused(
    connection: FlussConnection, new_table: NewTable
) -> None:
    """As if the table had been rescaled: engines would look for keys in the wrong bucket."""
    from pyiceberg.transforms import BucketTransform

    path = clean_table(connection, new_table, layout="both", buckets=2)
    append(connection, path, 0, 10)
    with lake_table(connection, path).update_spec() as update:
        update.remove_field("id_bucket")
        update.add_field("id", BucketTransform(3), "id_bucket_3")
    with pytest.raises(LakeError, match=r"has 2 buckets, and its Iceberg table .*bucket\[3\]"):
        tier_table(connection, path, allow_tiering=True)


@pytest.mark.parametrize("wide", [True, False])
def test_new_columns_come_last(
    connection: FlussConnection, new_table: NewTable, wide: bool
) -> None:
    """A column that Fluss has and the lake has not is added; 0.9 adds none to a table with a lake,
    so the lake of this test is made without the last one.
    """
    path = clean_table(connection, new_table, buckets=1)
    lake = lake_table(connection, path)
    with lake.update_schema() as update:
        update.delete_column("point")
    append(connection, path, 0, 10)
    tier_table(connection, path, allow_tiering=True)
    append(connection, path, 10, 20)
    tier_table(connection, path, allow_tiering=True)
    assert lake_table(connection, path).schema().fields[-1].name == "point"
    columns = ["id", "point"] if wide else ["point"]
    rows = read_table(connection, path, columns, read="lake").read_all()
    assert (rows.num_rows, rows.column_names) == (20, columns)
    found = read_lake_offsets(connection, path, (None, 0), 5, 15, columns=columns).read_all()
    assert found.num_rows == 10


@pytest.mark.parametrize("variant", ["plain", "partitioned", "wal"])
def test_key_tables(connection: FlussConnection, database: str, variant: str) -> None:
    table = make_key_table(connection, database, **VARIANTS[variant])
    make_clean(connection, table.path)
    run_program(table, seed=23, maintain=lambda t: maintain_lake(connection, t.path, settings=NOW))


def test_names_of_files() -> None:
    assert FileName.of(f"file:///w/db/t/data/{OFFICIAL}") == FileName(1, 2)
    uuid = OFFICIAL[8:44]
    assert FileName.of(f"00003-100-200-{uuid}.parquet") == FileName(3, 100, 100)
    assert FileName.of(f"00003-40-compacted-{uuid}.parquet") == FileName(3, 40, 40, compacted=True)
    for other in (f"00000-7-{uuid}-00001.parquet", f"{uuid}.parquet", f"compacted-{uuid}.parquet"):
        assert FileName.of(other) is None, re.escape(other)
