"""Tables and partitions that exist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fluss_client.aio.connection import FlussConnection as AsyncConnection
from fluss_client.errors import ConfigError, DatabaseNotExistError, TableNotExistError
from fluss_client.model.table import PartitionInfo, TableInfo, TablePath
from fluss_orchestrate.core.conditions.base import Condition, Outcome
from fluss_orchestrate.core.polling import Look


@dataclass(frozen=True)
class TableNow:
    """A table as the cluster describes it; None if there is none."""

    path: TablePath

    async def ask(self, core: AsyncConnection) -> TableInfo | None:
        """One request."""
        try:
            return await core.backend.get_table_info(self.path)
        except (TableNotExistError, DatabaseNotExistError):
            return None


@dataclass(frozen=True)
class PartitionsFound:
    """A table's partitions, and the columns that it is partitioned by."""

    partitions: Sequence[PartitionInfo]
    columns: frozenset[str]


@dataclass(frozen=True)
class PartitionsNow:
    """A table's partitions; None if there is no table."""

    path: TablePath

    async def ask(self, core: AsyncConnection) -> PartitionsFound | None:
        """One request; one more for a table without partitions, whose columns they would tell."""
        try:
            found = await core.backend.list_partitions(self.path, None)
            if found:
                return PartitionsFound(found, frozenset(dict(found[0].spec)))
            info = await core.backend.get_table_info(self.path)
        except (TableNotExistError, DatabaseNotExistError):
            return None
        return PartitionsFound((), frozenset(info.partition_keys))


@dataclass(frozen=True)
class TableExists(Condition):
    """There is a table of the name."""

    kind: ClassVar[str] = "table_exists"
    path: TablePath
    unmet: ClassVar[str] = "there is no such table"

    def looks(self, interval_s: float) -> Sequence[Look]:
        """Ask for the table."""
        return [Look(TableNow(self.path), self._decide, interval_s)]

    def _decide(self, info: TableInfo | None) -> Outcome | None:
        if info is None:
            return None
        return {
            "table": str(self.path),
            "table_id": info.table_id,
            "created_time": info.created_time,
        }

    def values(self) -> dict[str, Any]:
        """Nothing beside the table."""
        return {}

    @classmethod
    def of_values(cls, path: TablePath, values: Mapping[str, Any]) -> TableExists:
        """The condition from `values`."""
        return cls(path)


@dataclass(frozen=True)
class PartitionExists(Condition):
    """There is a partition with these column values; columns may be left out."""

    kind: ClassVar[str] = "partition_exists"
    path: TablePath
    spec: Mapping[str, str] = field(hash=False)

    @property
    def unmet(self) -> str:
        """Which partition is not there."""
        return f"there is no partition {dict(self.spec)}"

    def looks(self, interval_s: float) -> Sequence[Look]:
        """Ask for all partitions: those who wait for others of the table share the answer."""
        return [Look(PartitionsNow(self.path), self._decide, interval_s)]

    def _decide(self, there: PartitionsFound | None) -> Outcome | None:
        if there is None:
            return None
        unknown = sorted(self.spec.keys() - there.columns)
        if unknown:
            raise ConfigError(
                f"{self.path} is not partitioned by {', '.join(unknown)}, but by "
                f"{', '.join(sorted(there.columns))}: no partition {dict(self.spec)} can come"
            )
        found = [p for p in there.partitions if self.spec.items() <= dict(p.spec).items()]
        if not found:
            return None
        return {
            "table": str(self.path),
            "partitions": {p.partition_name: p.partition_id for p in found},
        }

    def values(self) -> dict[str, Any]:
        """The column values."""
        return {"spec": dict(self.spec)}

    @classmethod
    def of_values(cls, path: TablePath, values: Mapping[str, Any]) -> PartitionExists:
        """The condition from `values`."""
        return cls(path, dict(values["spec"]))
