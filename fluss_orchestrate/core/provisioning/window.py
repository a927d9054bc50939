"""A moving window of time partitions: the next N exist, those past retention go.

A partition is dropped only when every guard lets it go: a registered checkpoint that has not read
it, or a lake that does not hold it, keeps it, unless the caller forces the drop. Guards are asked
by the plan, and again right before each drop.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from fluss_client import FlussConnection, PartitionInfo, TableInfo, TablePath
from fluss_client.engine import AutoPartition, TimeUnit, time_zone
from fluss_client.errors import ConfigError, InvalidPartitionError, SchemaError
from fluss_orchestrate.core.checkpoints import CheckpointStore
from fluss_orchestrate.core.provisioning.dropping import PartitionDropper
from fluss_orchestrate.core.provisioning.guards import PartitionGuard, first_reason, usual_guards
from fluss_orchestrate.core.provisioning.spec import check_partition_texts

log = logging.getLogger(__name__)
PARTITIONS_AHEAD_MAX = 1_000


@dataclass(frozen=True)
class PartitionWindow:
    """Which time partitions of a table shall exist, relative to now.

    Attributes:
        table: The table, as `database.table`.
        unit: `hour`, `day`, `month`, `quarter` or `year`.
        ahead: How many partitions after the current one are created ahead of time.
        retain: How many partitions before the current one are kept; None drops none.
        key: The partition column that contains the time; needed if there are several columns.
        others: For each other partition column, the values to create for each period.
        time_zone: The time zone in which partitions begin.
    """

    table: str
    unit: str
    ahead: int = 2
    retain: int | None = None
    key: str | None = None
    others: Mapping[str, Sequence[str]] = field(default_factory=dict)
    time_zone: str = "UTC"

    def __post_init__(self) -> None:
        TablePath.parse(self.table)
        self.rule()
        if not 0 <= self.ahead <= PARTITIONS_AHEAD_MAX:
            raise ConfigError(f"ahead is 0 to {PARTITIONS_AHEAD_MAX}, not {self.ahead}")
        if self.retain is not None and self.retain < 0:
            raise ConfigError(f"retain is 0 or more, not {self.retain}")
        for key, values in self.others.items():
            for value in values:
                check_partition_texts(self.table, {key: value})

    def rule(self) -> AutoPartition:
        """Return the rule by which the partitions are named."""
        try:
            unit = TimeUnit[self.unit.upper()]
        except KeyError:
            known = ", ".join(u.name.lower() for u in TimeUnit)
            raise ConfigError(f"unit is one of {known}, not '{self.unit}'") from None
        return AutoPartition(unit, time_zone(self.time_zone))


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """What a window would create and drop now, and what it keeps and why."""

    window: PartitionWindow
    create: tuple[Mapping[str, str], ...]
    drop: tuple[PartitionInfo, ...]
    kept: tuple[tuple[PartitionInfo, str], ...]
    guards: Sequence[PartitionGuard] | None = field(default=None, compare=False, repr=False)
    """Asked again before each drop; None are the usual ones, an empty list forces the drop."""
    store: CheckpointStore | None = field(default=None, compare=False, repr=False)
    """Whose checkpoints are asked, and where drops are recorded; else the default store."""

    def to_json(self) -> dict[str, Any]:
        """The plan as plain values."""
        return {
            "table": self.window.table,
            "create": [dict(spec) for spec in self.create],
            "drop": [p.partition_name for p in self.drop],
            "kept": {p.partition_name: reason for p, reason in self.kept},
        }


def plan_partition_window(
    connection: FlussConnection,
    window: PartitionWindow,
    *,
    now: datetime | None = None,
    guards: Sequence[PartitionGuard] | None = None,
    store: CheckpointStore | None = None,
) -> WindowPlan:
    """Return which partitions to create and to drop; change nothing.

    Args:
        connection: Where the table is.
        window: Which partitions shall exist.
        now: The present, unless given.
        guards: What may keep a partition. Left out, the lake keeps partitions of tiered tables
            that it does not hold whole, and every checkpoint of `store` those that it has not
            read. An empty list forces the drop.
        store: Whose checkpoints are asked, and where drops are recorded; else the default store.
    """
    admin = connection.get_admin().result()
    path = TablePath.parse(window.table)
    table = admin.get_table_info(path).result()
    key = _time_key(window, table)
    moment = now or datetime.now(UTC)
    rule = window.rule()
    existing = admin.list_partition_infos(path).result()
    present = [dict(p.spec) for p in existing]
    wanted = [
        {key: name} | dict(others)
        for name in rule.names(moment, 0, window.ahead + 1)
        for others in _combinations(window.others)
    ]
    create = tuple(spec for spec in wanted if spec not in present)
    drop, kept = [], []
    if window.retain is not None:
        oldest = rule.start(rule.name(moment, -window.retain))
        checks = usual_guards(connection, store) if guards is None else list(guards)
        for partition in existing:
            try:
                starts = rule.start(partition.spec[key])
            except InvalidPartitionError:
                kept.append((partition, f"'{partition.spec[key]}' is no {window.unit} of time"))
                continue
            if starts >= oldest:
                continue
            reason = first_reason(checks, table, partition)
            if reason is None:
                drop.append(partition)
            else:
                kept.append((partition, reason))
    return WindowPlan(window, create, tuple(drop), tuple(kept), guards, store)


def apply_partition_window(connection: FlussConnection, planned: WindowPlan) -> WindowPlan:
    """Create and drop partitions as planned, and record the drops for scans. It may be repeated.

    Args:
        connection: The connection to the cluster.
        planned: The plan from `plan_partition_window`.

    Returns:
        The plan as it was carried out: a partition that a guard keeps by now is in `kept`.
    """
    admin = connection.get_admin().result()
    path = TablePath.parse(planned.window.table)
    for spec in planned.create:
        log.info("%s: create partition %s", path, dict(spec))
        admin.create_partition(path, spec, ignore_if_exists=True).result()
    dropped, kept = [], list(planned.kept)
    retired: set[str] = set()

    def guards() -> Sequence[PartitionGuard]:
        if planned.guards is not None:
            return planned.guards
        return usual_guards(connection, planned.store, retired)

    if planned.drop:
        dropper = PartitionDropper(connection, path, guards, planned.store)
        for partition in planned.drop:
            reason = dropper.drop(partition)
            if reason is None:
                log.info("%s: dropped partition %s", path, partition.partition_name)
                dropped.append(partition)
            else:
                kept.append((partition, reason))
    for partition, reason in kept:
        log.warning("%s: partition %s stays: %s", path, partition.partition_name, reason)
    return replace(planned, drop=tuple(dropped), kept=tuple(kept))


def _time_key(window: PartitionWindow, table: TableInfo) -> str:
    keys = table.partition_keys
    if not keys:
        raise SchemaError(f"{window.table} has no partition columns")
    key = window.key or (keys[0] if len(keys) == 1 else None)
    if key is None or key not in keys:
        raise ConfigError(f"{window.table}: key= says which of {list(keys)} holds the time")
    missing = set(keys) - {key} - set(window.others)
    if missing:
        raise ConfigError(
            f"{window.table}: others= gives the values to create for {sorted(missing)}"
        )
    return key


def _combinations(others: Mapping[str, Sequence[str]]) -> list[tuple[tuple[str, str], ...]]:
    choices = [[(key, value) for value in values] for key, values in others.items()]
    return list(itertools.product(*choices))
