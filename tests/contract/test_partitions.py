"""Partitions: made, listed, filtered, dropped and made again."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client import errors
from tests.contract.tables import Tables, done, eventually

EVENTS = {"id": pa.int32(), "day": pa.string(), "region": pa.string()}
BY_DAY: dict[str, Any] = {"partition_keys": ["day"]}
BY_DAY_AND_REGION: dict[str, Any] = {"partition_keys": ["day", "region"]}


def _names(infos: list[fluss.PartitionInfo]) -> list[str]:
    return sorted(info.partition_name for info in infos)


@pytest.mark.supports(
    "Admin.createPartition", "Admin.listPartitionInfos", "Admin.listPartitionInfos (spec)"
)
def test_partitions_are_listed_and_filtered(tables: Tables) -> None:
    specs = [{"day": d, "region": r} for d in ("2024-01-01", "2024-01-02") for r in ("eu", "us")]
    table = tables.create(EVENTS, partitions=specs, **BY_DAY_AND_REGION)
    path = table.get_table_path()
    infos = done(tables.admin.list_partition_infos(path))
    assert _names(infos) == ["2024-01-01$eu", "2024-01-01$us", "2024-01-02$eu", "2024-01-02$us"]
    assert len({info.partition_id for info in infos}) == 4
    assert sorted(map(str, (dict(info.spec) for info in infos))) == sorted(map(str, specs))
    for spec, expected in (
        ({"day": "2024-01-02"}, ["2024-01-02$eu", "2024-01-02$us"]),
        ({"region": "us"}, ["2024-01-01$us", "2024-01-02$us"]),
        ({"region": "us", "day": "2024-01-01"}, ["2024-01-01$us"]),
        ({"region": "asia"}, []),
    ):
        assert _names(done(tables.admin.list_partition_infos(path, spec))) == expected


def test_a_new_table_has_no_partitions(tables: Tables) -> None:
    path = tables.create(EVENTS, **BY_DAY).get_table_path()
    assert done(tables.admin.list_partition_infos(path)) == []


def test_creating_twice_is_an_error_unless_ignored(tables: Tables) -> None:
    table = tables.create(EVENTS, partitions=[{"day": "a"}], **BY_DAY)
    path = table.get_table_path()
    before = done(tables.admin.list_partition_infos(path))
    with pytest.raises(errors.PartitionAlreadyExistError) as raised:
        done(tables.admin.create_partition(path, {"day": "a"}))
    assert raised.value.error_code == fluss.ErrorCode.PARTITION_ALREADY_EXISTS
    done(tables.admin.create_partition(path, {"day": "a"}, ignore_if_exists=True))
    assert done(tables.admin.list_partition_infos(path)) == before


@pytest.mark.supports("Admin.dropPartition")
def test_a_partition_made_again_is_empty_and_has_another_id(tables: Tables) -> None:
    table = tables.create(EVENTS, partitions=[{"day": "a"}, {"day": "b"}], **BY_DAY)
    path = table.get_table_path()
    tables.append(table, [(1, "a", "eu"), (2, "b", "eu")])
    first = {
        i.partition_name: i.partition_id for i in done(tables.admin.list_partition_infos(path))
    }

    done(tables.admin.drop_partition(path, {"day": "a"}))
    assert _names(done(tables.admin.list_partition_infos(path))) == ["b"]
    done(tables.admin.create_partition(path, {"day": "a"}))
    second = {
        i.partition_name: i.partition_id for i in done(tables.admin.list_partition_infos(path))
    }
    assert second["b"] == first["b"]
    assert second["a"] not in first.values()
    assert tables.log(table)["id"].to_pylist() == [2]

    tables.append(table, [(3, "a", "eu")])
    assert sorted(tables.log(table)["id"].to_pylist()) == [2, 3]


def test_a_writer_follows_a_partition_that_was_made_again(tables: Tables) -> None:
    table = tables.create(EVENTS, partitions=[{"day": "a"}], **BY_DAY)
    path = table.get_table_path()
    with table.new_append().create_writer() as writer:
        writer.append((1, "a", "eu"))
        done(writer.flush())
        done(tables.admin.drop_partition(path, {"day": "a"}))
        done(tables.admin.create_partition(path, {"day": "a"}))
        writer.append((2, "a", "eu"))
        try:
            done(writer.flush())
        except errors.PartitionNotExistError:
            # A row on its way to the old partition is lost, and that is said; the next finds the
            # new one.
            writer.append((2, "a", "eu"))
            done(writer.flush())
    assert tables.log(table)["id"].to_pylist() == [2]


def test_a_missing_partition_is_a_typed_error(tables: Tables) -> None:
    table = tables.create(EVENTS, partitions=[{"day": "a"}], **BY_DAY)
    path = table.get_table_path()
    with pytest.raises(errors.PartitionNotExistError) as raised:
        done(tables.admin.drop_partition(path, {"day": "b"}))
    assert raised.value.error_code == fluss.ErrorCode.PARTITION_NOT_EXISTS
    done(tables.admin.drop_partition(path, {"day": "b"}, ignore_if_not_exists=True))
    with pytest.raises(errors.PartitionNotExistError, match="b"):
        done(tables.admin.list_partition_offsets(path, "b", [0], fluss.OffsetSpec.latest()))


@pytest.mark.supports("Append to a partitioned table")
def test_a_row_of_a_missing_partition_is_not_written(tables: Tables) -> None:
    table = tables.create(EVENTS, partitions=[{"day": "a"}], **BY_DAY)
    with table.new_append().create_writer() as writer:
        done(writer.append((1, "a", "eu")).wait())
        with pytest.raises(errors.PartitionNotExistError, match="create") as raised:
            done(writer.append((2, "b", "eu")).wait())
        assert "b" in raised.value.message
        done(writer.flush())
        done(writer.append((3, "a", "eu")).wait())
    assert tables.log(table)["id"].to_pylist() == [1, 3]


INVALID: list[dict[str, Any]] = [
    {},
    {"region": "eu"},
    {"day": "a", "region": "eu"},
    {"day": ""},
    {"day": "a/b"},
    {"day": "__a"},
    {"day": "n" * 201},
]


def test_an_invalid_spec_is_refused(tables: Tables) -> None:
    path = tables.create(EVENTS, **BY_DAY).get_table_path()
    for spec in INVALID:
        with pytest.raises(errors.InvalidPartitionError) as raised:
            done(tables.admin.create_partition(path, spec))
        assert raised.value.error_code == fluss.ErrorCode.PARTITION_SPEC_INVALID_EXCEPTION, spec
    assert done(tables.admin.list_partition_infos(path)) == []


def test_a_table_without_partition_keys_has_no_partitions(tables: Tables) -> None:
    path = tables.create(EVENTS).get_table_path()
    calls = (
        lambda: tables.admin.create_partition(path, {"day": "a"}),
        lambda: tables.admin.drop_partition(path, {"day": "a"}),
        lambda: tables.admin.list_partition_infos(path),
        lambda: tables.admin.list_partition_offsets(path, "a", [0], fluss.OffsetSpec.latest()),
    )
    for call in calls:
        with pytest.raises(errors.TableNotPartitionedError) as raised:
            done(call())
        assert raised.value.error_code == fluss.ErrorCode.TABLE_NOT_PARTITIONED_EXCEPTION


def test_partitions_made_by_the_calendar(tables: Tables) -> None:
    """The server makes them ahead of time; the client sees them as any others."""
    calendar = {
        "table.auto-partition.enabled": "true",
        "table.auto-partition.time-unit": "YEAR",
        "table.auto-partition.num-precreate": "2",
    }
    path = tables.create(EVENTS, properties=calendar, **BY_DAY).get_table_path()
    infos = eventually(
        lambda: done(tables.admin.list_partition_infos(path)), lambda found: len(found) > 1
    )
    years = sorted(int(info.partition_name) for info in infos)
    assert years == [years[0], years[0] + 1]


PARTITION_TYPES: dict[str, tuple[pa.DataType, Any, str]] = {
    "boolean": (pa.bool_(), True, "true"),
    "tinyint": (pa.int8(), -8, "-8"),
    "smallint": (pa.int16(), 300, "300"),
    "int": (pa.int32(), -70000, "-70000"),
    "bigint": (pa.int64(), 1 << 40, str(1 << 40)),
    "string": (pa.string(), "a-b_C9", "a-b_C9"),
}


@pytest.mark.supports("Append to a partitioned table", "Upsert to a partitioned table")
@pytest.mark.parametrize("kind", PARTITION_TYPES)
def test_a_value_names_its_partition(tables: Tables, kind: str, key_of_lake: bool) -> None:
    arrow, value, name = PARTITION_TYPES[kind]
    table = tables.create(
        {"id": pa.int32(), "p": arrow, "v": pa.string()},
        ["id", "p"],
        partition_keys=["p"],
        partitions=[{"p": name}],
    )
    tables.upsert(table, [{"id": 1, "p": value, "v": "x"}])
    assert tables.lookup(table, {"id": 1, "p": value}) == {"id": 1, "p": value, "v": "x"}
    assert tables.log(table)["p"].to_pylist() == [value]
