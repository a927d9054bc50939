"""Names of Fluss's partitions and Dagster's keys, both ways, and what cannot be."""

import subprocess
import sys
from datetime import UTC, datetime

import dagster as dg
import pytest

from fluss_client.codec.auto_partition import auto_partition_of
from fluss_client.errors import ConfigError, UnsupportedError
from fluss_orchestrate.dagster import fluss_time_partitions
from fluss_orchestrate.dagster.partitions import (
    dimension_columns,
    partition_values,
    partitions_from,
    strftime_format,
)

AUTOMATIC = {"table.auto-partition.enabled": "true", "table.auto-partition.time-zone": "UTC"}


def automatic(unit: str, **more: str) -> dict[str, str]:
    return {**AUTOMATIC, "table.auto-partition.time-unit": unit, **more}


@pytest.mark.parametrize(
    ("unit", "start", "expected"),
    [
        ("hour", "2026110122", ["2026110122", "2026110123", "2026110200"]),
        ("day", "20261030", ["20261030", "20261031", "20261101"]),
        ("month", "202511", ["202511", "202512", "202601"]),
        ("year", "2023", ["2023", "2024", "2025"]),
    ],
)
def test_keys_are_the_names_that_the_server_gives(
    unit: str, start: str, expected: list[str]
) -> None:
    definition = fluss_time_partitions(unit, start)
    assert definition.get_partition_keys()[:3] == expected
    rule = auto_partition_of(automatic(unit.upper()))
    for key in expected:
        window = definition.time_window_for_partition_key(key)
        assert rule.name(window.start.astimezone(UTC)) == key


def test_another_pattern_and_zone() -> None:
    assert strftime_format("yyyy-MM-dd'T'HH") == "%Y-%m-%dT%H"
    made = partitions_from(
        "a.b",
        ["day"],
        automatic(
            "DAY",
            **{
                "table.auto-partition.time-zone": "Europe/Berlin",
                "table.auto-partition.time-format": "yyyy-MM-dd",
            },
        ),
        "2026-11-01",
    )
    assert isinstance(made, dg.TimeWindowPartitionsDefinition)
    assert made.get_partition_keys()[0] == "2026-11-01"
    start = made.time_window_for_partition_key("2026-11-01").start
    assert start.astimezone(UTC) == datetime(2026, 10, 31, 23, tzinfo=UTC)


def test_keys_of_another_format_become_the_servers_names() -> None:
    daily = dg.DailyPartitionsDefinition("2026-11-01")
    rule = auto_partition_of(automatic("DAY"))
    assert partition_values(daily, "2026-11-03", {"day": "day"}, rule) == {"day": "20261103"}
    assert partition_values(daily, "2026-11-03", {"day": "day"}, None) == {"day": "2026-11-03"}
    both = dg.MultiPartitionsDefinition(
        {"when": daily, "where": dg.StaticPartitionsDefinition(["eu"])}
    )
    key = dg.MultiPartitionKey({"when": "2026-11-03", "where": "eu"})
    columns = {"when": "day", "where": "area"}
    assert partition_values(both, key, columns, rule) == {"day": "20261103", "area": "eu"}


def test_quarters_and_several_columns_are_dynamic() -> None:
    with pytest.raises(UnsupportedError, match="use dynamic partitions"):
        fluss_time_partitions("quarter", "20261")
    for keys, properties in (
        (["quarter"], automatic("QUARTER")),
        (["day", "area"], automatic("DAY", **{"table.auto-partition.key": "day"})),
        (["area"], {}),
    ):
        made = partitions_from("sales.x", keys, properties, "20261101")
        assert isinstance(made, dg.DynamicPartitionsDefinition)
        assert made.name == "fluss/sales.x"
    assert partitions_from("sales.x", [], {}) is None


def test_columns_that_nobody_named() -> None:
    days = fluss_time_partitions("day", "20261101")
    with pytest.raises(ConfigError, match="name the column that holds them as partition_expr"):
        dimension_columns(days, None, [], "sales.x")
    with pytest.raises(ConfigError, match="one column's name, for one dimension"):
        dimension_columns(days, {"a": "b"}, [], "sales.x")
    assert dimension_columns(days, None, ["day"], "sales.x") == {"day": "day"}


def test_a_missing_dagster_is_said_in_one_sentence() -> None:
    code = (
        "import sys\nsys.modules['dagster'] = None\n"
        "try:\n    from fluss_orchestrate.dagster import FlussResource\n"
        "except Exception as error:\n    print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "MissingExtraError" in done.stdout
    assert "pip install 'fluss-orchestrate[dagster]'" in done.stdout
