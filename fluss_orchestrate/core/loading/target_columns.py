"""Which columns a load writes: those that its rows have, so that the others keep their values.

The server takes a delete of some columns as "set these to null", and the row stays as long as
another column has a value. So rows with deletes need all columns.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from fluss_client.errors import RowError
from fluss_client.model.cluster import ChangeType
from fluss_client.model.table import TableInfo
from fluss_orchestrate.core.checkpoints.fluss_rows import MERGE_ENGINE
from fluss_orchestrate.core.loading.placing import Changes


@dataclass(frozen=True, slots=True)
class TargetColumns:
    """The columns that upserts write."""

    positions: tuple[int, ...] | None = None
    """None for all."""
    table: str = ""
    missing: tuple[str, ...] = ()
    """The columns that the rows lack."""
    why_not: str = ""
    """Why the server takes no partial updates of this table, if it takes none."""

    @classmethod
    def of(cls, info: TableInfo, names: Collection[str]) -> TargetColumns:
        """For rows with these columns. `RowError` if they lack one of the primary key.

        In tables without a primary key, and with the first_row merge engine, there is nothing to
        keep: no write changes a row that is there.
        """
        schema, keys = info.schema, info.primary_keys
        missing = tuple(c.name for c in schema.columns if c.name not in names)
        engine = info.properties.get(MERGE_ENGINE, "").lower()
        if not keys or not missing or engine == "first_row":
            return cls()
        lost = [name for name in keys if name in missing]
        if lost:
            table = info.table_path
            raise RowError(f"the rows lack {', '.join(lost)} of the primary key of {table}")
        free = {*keys, *schema.auto_increment_columns}
        strict = [c.name for c in schema.columns if not (c.type.nullable or c.name in free)]
        why_not = ""
        if engine == "versioned":
            why_not = "its merge engine is versioned"
        elif strict:
            why_not = f"it has columns that are NOT NULL beside its key ({', '.join(strict)})"
        positions = tuple(at for at, c in enumerate(schema.columns) if c.name in names)
        return cls(positions, str(info.table_path), missing, why_not)

    def refusal(self, changes: Changes, first_row: int | None) -> RowError | None:
        """Why rows with these changes must not be sent, if so.

        The error names the row of a delete if `first_row`, the number of the first row, is known.
        """
        lacking = ", ".join(self.missing)
        if self.why_not:
            return RowError(
                f"the rows lack {lacking} of {self.table}. The server takes no partial updates of "
                f"this table, because {self.why_not}, so the values there would be set to null. "
                "Give the rows all columns; null in them is written as null"
            )
        if self.positions is None or changes is None:
            return None
        deletes = changes == ChangeType.Delete
        if not deletes.any():
            return None
        row = "the row"
        if first_row is not None:
            row = f"row {first_row + int(deletes.argmax())}, counted from 0,"
        return RowError(
            f"{row} is a delete, and the rows lack {lacking} of {self.table}. Rows with deletes "
            "need all columns of the table: a delete of some columns only sets them to null. Give "
            "the rows all columns; of a delete only the key counts, its other values may be null"
        )

    def check(self, changes: Changes, first_row: int | None = None) -> None:
        """Raise the refusal, if there is one."""
        refusal = self.refusal(changes, first_row)
        if refusal is not None:
            raise refusal
