"""The columns that a scan returns, and their order.

Servers accept column indexes in rising order only. The user's order is restored after decoding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from fluss_client.errors import SchemaError
from fluss_client.model.predicate import Predicate
from fluss_client.model.schema import Schema


@dataclass(frozen=True, slots=True)
class Projection:
    """The columns to request from a backend, and their order for the user.

    Attributes:
        columns: The indexes of the columns to request, strictly increasing; None requests all
            columns.
        order: The positions in the fetched batch in the user's order; None if both orders are the
            same.
        schema: The Arrow schema of the batches that the user gets.
        predicate: The condition that the rows must meet. Its columns are requested too.
        pruning: A condition by which servers may leave out rows. The others are not tested.
    """

    columns: tuple[int, ...] | None
    order: tuple[int, ...] | None
    schema: pa.Schema
    predicate: Predicate | None = None
    pruning: Predicate | None = None

    @classmethod
    def of(cls, schema: Schema, wanted: Sequence[int] | None) -> Projection:
        """Return the projection to some columns.

        Args:
            schema: The schema of the table.
            wanted: The indexes of the columns in any order; None for all columns.

        Raises:
            SchemaError: There is no such column, or a column is named twice.
        """
        if wanted is None:
            return cls(None, None, schema.arrow)
        _check(schema, wanted)
        chosen = tuple(wanted)
        columns = tuple(sorted(chosen))
        order = None if columns == chosen else tuple(columns.index(i) for i in chosen)
        shown = pa.schema([schema.arrow.field(i) for i in chosen])
        everything = len(columns) == len(schema.columns)
        return cls(None if everything else columns, order, shown)

    @classmethod
    def filtered(
        cls, schema: Schema, wanted: Sequence[int] | None, predicate: Predicate
    ) -> Projection:
        """Return the projection to some columns of the rows that meet a condition.

        Args:
            schema: The schema of the table.
            wanted: The indexes of the columns in any order; None for all columns.
            predicate: The condition, which was checked against the schema.
        """
        plain = cls.of(schema, wanted)
        if plain.columns is None:
            return replace(plain, predicate=predicate)
        tested = {schema.index[name] for name in predicate.columns()}
        columns = tuple(sorted({*plain.columns, *tested}))
        order = tuple(columns.index(schema.index[name]) for name in plain.schema.names)
        everything = len(columns) == len(schema.columns)
        return cls(None if everything else columns, order, plain.schema, predicate)

    def restore(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a fetched `batch` with its columns in the user's order."""
        return batch if self.order is None else batch.select(self.order)


def indexes_of(schema: Schema, names: Iterable[str]) -> list[int]:
    """Return the indexes of columns by name.

    Raises:
        SchemaError: There is no such column.
    """
    if isinstance(names, str):
        raise SchemaError(f"project_by_name takes a list of column names, not '{names}'")
    found = list(names)
    unknown = [str(name) for name in found if name not in schema.index]
    if unknown:
        raise SchemaError(
            f"no column {', '.join(map(repr, unknown))}; the columns are {', '.join(schema.index)}"
        )
    return [schema.index[name] for name in found]


def _check(schema: Schema, wanted: Sequence[int]) -> None:
    count = len(schema.columns)
    if not wanted:
        raise SchemaError("a projection needs at least one column")
    for index in wanted:
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < count:
            raise SchemaError(
                f"no column {index!r}; the table has columns 0 to {count - 1}: "
                f"{', '.join(schema.index)}"
            )
    twice = sorted({i for i in wanted if list(wanted).count(i) > 1})
    if twice:
        names = ", ".join(repr(schema.columns[i].name) for i in twice)
        raise SchemaError(f"column {names} is projected more than once")
