"""Splits: what one task loads. Each is cut into units, and each unit has a writer id of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Split:
    """Some row groups of one Parquet file, and after how many rows each unit ends."""

    number: int
    """Its place in the load."""
    first_unit: int
    """The place of its first unit in the load."""
    path: str
    row_groups: tuple[int, ...]
    first_row: int
    """The number of its first row in the file."""
    unit_rows: tuple[int, ...]

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return sum(self.unit_rows)

    def to_json(self) -> dict[str, Any]:
        """The split as plain values."""
        return {
            "number": self.number,
            "first_unit": self.first_unit,
            "path": self.path,
            "row_groups": list(self.row_groups),
            "first_row": self.first_row,
            "unit_rows": list(self.unit_rows),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Split:
        """The split from `to_json`."""
        return cls(
            int(value["number"]),
            int(value["first_unit"]),
            str(value["path"]),
            tuple(value["row_groups"]),
            int(value["first_row"]),
            tuple(value["unit_rows"]),
        )


@dataclass(frozen=True, slots=True)
class PinnedSplit:
    """A split with the writer ids of its units."""

    split: Split
    writer_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SplitResult:
    """What the table holds of a split."""

    rows: int
    bytes: int
    rejected: int = 0

    def to_json(self) -> dict[str, int]:
        """The figures as plain values."""
        return {"rows": self.rows, "bytes": self.bytes, "rejected": self.rejected}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> SplitResult:
        """The figures from `to_json`."""
        return cls(int(value["rows"]), int(value["bytes"]), int(value["rejected"]))
