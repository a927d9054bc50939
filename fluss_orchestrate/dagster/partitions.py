"""Fluss's partitions as Dagster's, both ways.

A Fluss partition is a text per partition column: `20261116` of `day`, or `eu$20261116` of two. A
time-partitioned asset has the names that auto-partitions have; where retention drops partitions,
or names follow no clock, a dynamic definition takes the names as they are. Two columns are two
dimensions, or one dynamic key with `$` between the values; three or more are the latter.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import dagster as dg
import pyarrow as pa

from fluss_client import TableInfo
from fluss_client.engine import (
    ENABLED,
    AutoPartition,
    TimeUnit,
    auto_partition_of,
    parse_partition_name,
)
from fluss_client.errors import ConfigError, UnsupportedError
from fluss_orchestrate.core.provisioning import PartitionWindow

CRON = {
    TimeUnit.YEAR: "0 0 1 1 *",
    TimeUnit.MONTH: "0 0 1 * *",
    TimeUnit.DAY: "0 0 * * *",
    TimeUnit.HOUR: "0 * * * *",
}
_FIELDS = {"yyyy": "%Y", "uuuu": "%Y", "MM": "%m", "dd": "%d", "HH": "%H"}
_TOKEN = re.compile(r"'([^']*)'|yyyy|uuuu|MM|dd|HH")


def fluss_time_partitions(
    unit: str,
    start: datetime | str,
    *,
    time_zone: str = "UTC",
    pattern: str = "",
    end_offset: int = 0,
) -> dg.TimeWindowPartitionsDefinition:
    """Return time partitions whose keys are the names of Fluss's auto-partitions.

    Args:
        unit: `hour`, `day`, `month` or `year`.
        start: The begin of the first partition.
        time_zone: The time zone of the table's partitions.
        pattern: The `time-format` of the table, if it has one.
        end_offset: How many partitions after the current one may be materialised, too.
    """
    rule = PartitionWindow("any.table", unit).rule()
    if rule.unit not in CRON:
        raise UnsupportedError(
            f"partitions by {unit} have no time format in Dagster: use dynamic partitions "
            "and build_fluss_partition_sensor"
        )
    fmt = strftime_format(pattern or rule.pattern)
    return dg.TimeWindowPartitionsDefinition(
        cron_schedule=CRON[rule.unit],
        start=start,
        fmt=fmt,
        timezone=time_zone,
        end_offset=end_offset,
    )


def strftime_format(pattern: str) -> str:
    """A table's time format, such as `yyyy-MM-dd`, in Python's letters."""
    return _TOKEN.sub(lambda m: _FIELDS.get(m.group(0), m.group(1) or ""), pattern)


def time_rule(info: TableInfo) -> AutoPartition | None:
    """How the table's own partitions are named after times; None if they are not."""
    if info.properties.get(ENABLED, "false").lower() != "true":
        return None
    return auto_partition_of(info.properties)


def time_windows(
    context: dg.AssetExecutionContext | dg.OpExecutionContext, key: dg.AssetKey | None
) -> list[tuple[str, dg.TimeWindow]]:
    """The partitions of a run with their times, oldest first; `key` is None in a job of ops."""
    if key is None:
        found = context.op_execution_context.job_def.partitions_def
        what = f"job {context.job_name}"
    else:
        found = context.assets_def.get_asset_spec(key).partitions_def
        what = key.to_user_string()
    if not isinstance(found, dg.TimeWindowPartitionsDefinition):
        raise ConfigError(
            f"{what}: an increment has no partitions, or time partitions, "
            f"not {type(found).__name__}; each takes what was committed in its window"
        )
    keys = context.partition_keys
    return [(name, found.time_window_for_partition_key(name)) for name in keys]


def dimension_columns(
    definition: dg.PartitionsDefinition,
    expression: str | Mapping[str, str] | None,
    partition_keys: Sequence[str],
    what: str,
) -> dict[str, str]:
    """Which column holds which dimension; one dimension alone is named by its column.

    `expression` is the asset's `partition_expr` metadata. Without it, dimensions are called as
    their columns, and a single one means the table's only partition column. A dynamic definition
    over several columns gives all of them, each under its own name.
    """
    if isinstance(definition, dg.MultiPartitionsDefinition):
        names = list(definition.partition_dimension_names)
        given = expression if isinstance(expression, Mapping) else {n: n for n in names}
        missing = [name for name in names if name not in given]
        if missing:
            raise ConfigError(
                f"{what}: partition_expr says nothing about dimension {', '.join(missing)}; give "
                f"a column for each of {', '.join(names)}"
            )
        return {name: given[name] for name in names}
    if isinstance(expression, Mapping):
        raise ConfigError(f"{what}: partition_expr is one column's name, for one dimension")
    if expression is not None:
        return {column.strip(): column.strip() for column in expression.split(",")}
    if not partition_keys:
        raise ConfigError(
            f"{what}: its asset has partitions; name the column that holds them as partition_expr "
            "in the asset's metadata"
        )
    return {column: column for column in partition_keys}


def dimensions(definition: dg.PartitionsDefinition) -> dict[str, dg.PartitionsDefinition]:
    """The definition of each dimension by its name; empty for a definition without dimensions."""
    if not isinstance(definition, dg.MultiPartitionsDefinition):
        return {}
    return {d.name: d.partitions_def for d in definition.partitions_defs}


def can_partition(definition: dg.PartitionsDefinition, column: pa.DataType) -> bool:
    """Whether the column has one value in each of Dagster's partitions, so that Fluss can have one.

    A window of time holds many timestamps, and a day is one date.
    """
    if not isinstance(definition, dg.TimeWindowPartitionsDefinition):
        return True
    if pa.types.is_date(column):
        return definition.cron_schedule == CRON[TimeUnit.DAY]
    return not (pa.types.is_timestamp(column) or pa.types.is_time(column))


def partition_values(
    definition: dg.PartitionsDefinition,
    key: str,
    columns: Mapping[str, str],
    rule: AutoPartition | None,
    dates: Collection[str] = (),
) -> dict[str, str]:
    """What the partition columns hold for one of Dagster's keys; `dates` are columns of dates."""
    inner = dimensions(definition)
    if isinstance(definition, dg.MultiPartitionsDefinition):
        parts = definition.get_partition_key_from_str(key).keys_by_dimension
        return {
            column: _value(inner[dimension], parts[dimension], rule, column in dates)
            for dimension, column in columns.items()
        }
    if len(columns) == 1:
        return {c: _value(definition, key, rule, c in dates) for c in columns.values()}
    return parse_partition_name(key, list(columns.values()))


def _value(
    definition: dg.PartitionsDefinition, key: str, rule: AutoPartition | None, is_date: bool
) -> str:
    if not isinstance(definition, dg.TimeWindowPartitionsDefinition):
        return key
    if is_date:
        return definition.time_window_for_partition_key(key).start.strftime("%Y-%m-%d")
    if rule is None:
        return key
    return rule.name(definition.time_window_for_partition_key(key).start)


def partitions_of_table(
    info: TableInfo, start: datetime | str | None = None
) -> dg.PartitionsDefinition | None:
    """Return the partitions of a table for an asset.

    Args:
        info: The table.
        start: The begin of the first time partition; without it, the partitions are dynamic.

    Returns:
        Time partitions for auto-partitions with a `start`. All others, and those by quarter, are
        dynamic under the table's name, and `build_fluss_partition_sensor` keeps them up to date.
        None for a table without partitions.
    """
    return partitions_from(str(info.table_path), info.partition_keys, info.properties, start)


def partitions_from(
    table: str,
    keys: Sequence[str],
    properties: Mapping[str, str],
    start: datetime | str | None = None,
) -> dg.PartitionsDefinition | None:
    """The same from what is known of a table without asking for it."""
    if not keys:
        return None
    automatic = properties.get(ENABLED, "false").lower() == "true"
    rule = auto_partition_of(properties) if automatic else None
    if rule is None or start is None or len(keys) != 1 or rule.unit not in CRON:
        return dg.DynamicPartitionsDefinition(name=f"fluss/{table}")
    return fluss_time_partitions(
        rule.unit.name, start, time_zone=str(rule.zone), pattern=rule.pattern
    )
