"""A table's schema: columns with ids that never change, and the primary key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa

from fluss_client.errors import SchemaError
from fluss_client.model.arrow import arrow_field, from_arrow, wire_type
from fluss_client.model.types import DataType

RESERVED_COLUMNS = frozenset(
    {"__offset", "__timestamp", "__bucket", "_change_type", "_log_offset", "_commit_timestamp"}
)


@dataclass(frozen=True, slots=True)
class AggFunction:
    """How the aggregation merge engine combines a column, such as `sum` or `listagg`.

    Attributes:
        type: The name of the function.
        parameters: The names and values of its parameters.
    """

    type: str
    parameters: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        name: The name of the column.
        type: The type of its values.
        comment: A comment, or None.
        id: A number that stays the same when the column is renamed; -1 until a schema gives one.
        agg_function: How the aggregation merge engine combines its values.
    """

    name: str
    type: DataType
    comment: str | None = None
    id: int = -1
    agg_function: AggFunction | None = None


@dataclass(frozen=True, init=False)
class Schema:
    """The columns and the primary key of a table.

    Args:
        schema: The columns as a PyArrow schema; the metadata key `comment` of a field becomes the
            comment of the column.
        primary_keys: The primary-key columns, which become not null; none for a log table.
        auto_increment_column: A column whose values the server counts up.

    Raises:
        SchemaError: Fluss has no type for a column, or a name is wrong.
    """

    columns: tuple[Column, ...]
    primary_keys: tuple[str, ...] = ()
    auto_increment_columns: tuple[str, ...] = ()
    highest_field_id: int = field(default=-1, compare=False)

    def __init__(
        self,
        schema: pa.Schema,
        primary_keys: Sequence[str] | None = None,
        auto_increment_column: str | None = None,
    ) -> None:
        if not isinstance(schema, pa.Schema):
            raise SchemaError(f"Schema takes a pyarrow.Schema, not {type(schema).__name__}")
        if isinstance(primary_keys, str):
            raise SchemaError(f"primary_keys is a list of columns, not the text '{primary_keys}'")
        columns = [
            Column(f.name, from_arrow(f.type, f.nullable, f.name), _comment_of(f)) for f in schema
        ]
        counted = () if auto_increment_column is None else (auto_increment_column,)
        self._fill(columns, primary_keys or (), counted)

    @classmethod
    def of(
        cls,
        columns: Iterable[Column],
        primary_keys: Sequence[str] = (),
        auto_increment_columns: Sequence[str] = (),
        highest_field_id: int = -1,
    ) -> Schema:
        """Return a schema of the given columns.

        Args:
            columns: The columns. If none has an id, they get ids, depth first.
            primary_keys: The names of the primary-key columns; empty for a log table.
            auto_increment_columns: The names of the columns that the server numbers.
            highest_field_id: The highest id that the table ever used; -1 for that of `columns`.
        """
        schema = cls.__new__(cls)
        schema._fill(list(columns), primary_keys, auto_increment_columns, highest_field_id)
        return schema

    def _fill(
        self,
        columns: list[Column],
        primary_keys: Sequence[str],
        auto_increment: Sequence[str],
        highest_field_id: int = -1,
    ) -> None:
        names = [c.name for c in columns]
        _check_names(names)
        for key in (*primary_keys, *auto_increment):
            if key not in names:
                raise SchemaError(f"'{key}' is not a column; the columns are {', '.join(names)}")
        if len(set(primary_keys)) != len(primary_keys):
            raise SchemaError(f"a primary-key column is named twice in {list(primary_keys)}")
        keys = set(primary_keys)
        columns = [
            replace(c, type=c.type.with_nullable(False)) if c.name in keys else c for c in columns
        ]
        if all(c.id < 0 for c in columns):
            columns, highest_field_id = _with_ids(columns)
        elif any(c.id < 0 for c in columns):
            raise SchemaError("give every column an id, or none")
        object.__setattr__(self, "columns", tuple(columns))
        object.__setattr__(self, "primary_keys", tuple(primary_keys))
        object.__setattr__(self, "auto_increment_columns", tuple(auto_increment))
        highest = max(highest_field_id, _highest_id(columns))
        object.__setattr__(self, "highest_field_id", highest)

    @cached_property
    def arrow(self) -> pa.Schema:
        """The schema as Arrow, as users see it."""
        return pa.schema([arrow_field(c.name, c.type) for c in self.columns])

    @cached_property
    def wire(self) -> pa.Schema:
        """The schema of record batches on the wire: no zones, everything nullable as declared."""
        return pa.schema(
            [pa.field(c.name, wire_type(c.type), c.type.nullable) for c in self.columns]
        )

    @cached_property
    def index(self) -> dict[str, int]:
        """Column name to position."""
        return {c.name: i for i, c in enumerate(self.columns)}

    def column(self, name: str) -> Column:
        """Return the column called `name`.

        Raises:
            SchemaError: There is no such column; the message lists the columns.
        """
        at = self.index.get(name)
        if at is None:
            raise SchemaError(f"no column '{name}'; the columns are {', '.join(self.index)}")
        return self.columns[at]

    def get_column_names(self) -> list[str]:
        """Return the column names in order."""
        return [c.name for c in self.columns]

    def get_column_types(self) -> list[str]:
        """Return the type names in order, such as `int NOT NULL`."""
        return [str(c.type) for c in self.columns]

    def get_columns(self) -> list[tuple[str, str]]:
        """Return `(name, type)` pairs in order."""
        return [(c.name, str(c.type)) for c in self.columns]

    def get_primary_keys(self) -> list[str]:
        """Return the primary-key columns; empty for a log table."""
        return list(self.primary_keys)

    def get_auto_increment_columns(self) -> list[str]:
        """Return the columns whose values the server counts up."""
        return list(self.auto_increment_columns)

    def __str__(self) -> str:
        inner = ", ".join(f"{name} {kind}" for name, kind in self.get_columns())
        key = f", primary key ({', '.join(self.primary_keys)})" if self.primary_keys else ""
        return f"Schema({inner}{key})"

    __repr__ = __str__


def _comment_of(arrow: pa.Field) -> str | None:
    metadata = arrow.metadata or {}
    comment = metadata.get(b"comment")
    return None if comment is None else comment.decode()


def _check_names(names: list[str]) -> None:
    if not names:
        raise SchemaError("a schema needs at least one column")
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise SchemaError(f"two columns are called '{name}'")
        if name in RESERVED_COLUMNS:
            raise SchemaError(f"'{name}' is reserved by Fluss; choose another column name")
        seen.add(name)


def _with_ids(columns: list[Column]) -> tuple[list[Column], int]:
    """Give out ids depth first: a column's own, then those of the ROW fields inside it."""
    counter = iter(range(1 << 31))

    def next_id() -> int:
        return next(counter)

    numbered = []
    for column in columns:
        own = next_id()
        numbered.append(replace(column, id=own, type=column.type.with_field_ids(next_id)))
    return numbered, next_id() - 1


def _highest_id(columns: Sequence[Column]) -> int:
    def of_type(data_type: DataType) -> int:
        own = max((field.id for field in data_type.fields), default=-1)
        return max([own, *map(of_type, data_type.children)])

    return max(max(c.id, of_type(c.type)) for c in columns)
