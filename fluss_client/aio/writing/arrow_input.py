"""Converts Arrow data and DataFrames to the wire schema of a table.

Columns are matched by name, and nullable ones may be missing. Types are equal or cast without loss
(large, view and dictionary encodings, wider or narrower numbers, other time units). A cast that
would lose data is refused, and the error names the column. Data that fits already is not copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from fluss_client.codec.arrow_columns import to_wire
from fluss_client.errors import MissingExtraError, RowError
from fluss_client.model.schema import Schema
from fluss_client.model.types import DataType


class ArrowInput:
    """Conforms batches to a table.

    Args:
        schema: The schema of the table.
        columns: The positions of the columns that the data gives; all others become null.
    """

    def __init__(self, schema: Schema, columns: Sequence[int]) -> None:
        self._wire = schema.wire
        self._given = {schema.columns[at].name: schema.columns[at].type for at in columns}
        self._given_wire = pa.schema([schema.wire.field(at) for at in columns])
        self._shown = schema.arrow
        self._whole = list(columns) == list(range(len(schema.columns)))
        self._chars = [
            (name, data_type.characters_max)
            for name, data_type in self._given.items()
            if data_type.characters_max is not None
        ]

    def conform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch in the wire schema, with all values checked.

        This is done once per batch, where it enters the client. Everything after it relies on it.

        Args:
            batch: A batch with the columns of the table in any order, and types that convert to
                theirs.

        Raises:
            RowError: A column does not fit; the message names it.
        """
        if not isinstance(batch, pa.RecordBatch):
            raise RowError(f"a pyarrow.RecordBatch is needed, not {type(batch).__name__}")
        if not batch.schema.equals(self._given_wire):
            batch = self._complete(batch)
        fitted = to_wire(batch, self._given_wire)
        for name, limit in self._chars:
            longest = pc.max(pc.utf8_length(fitted.column(name))).as_py()
            if longest is not None and longest > limit:
                raise RowError(f"column '{name}' takes {limit} characters, not {longest}")
        if self._whole:
            return fitted
        arrays = [
            fitted.column(field.name)
            if field.name in self._given
            else pa.nulls(batch.num_rows, field.type)
            for field in self._wire
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._wire)

    def _complete(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with exactly the given columns; missing nullable ones are null."""
        names = batch.schema.names
        if len(set(names)) != len(names):
            raise RowError(f"a column name occurs twice: {names}")
        for name in names:
            if name not in self._given:
                columns = ", ".join(self._given)
                raise RowError(f"no column '{name}' here; the columns are {columns}")
        arrays = []
        for name, data_type in self._given.items():
            if name in names:
                column = batch.column(name)
                _check_cast(name, data_type, column.type)
            elif data_type.nullable:
                column = pa.nulls(batch.num_rows, self._given_wire.field(name).type)
            else:
                raise RowError(f"column '{name}' is {data_type} and is missing")
            arrays.append(column)
        return pa.RecordBatch.from_arrays(arrays, names=list(self._given))

    def batches(self, data: Any) -> Iterator[pa.RecordBatch]:
        """Iterate over the batches of a table, a reader, or an object that exports an Arrow stream.

        Args:
            data: A pyarrow batch, table or reader, or any object with `__arrow_c_stream__`.

        Raises:
            RowError: The data is none of these.
        """
        if isinstance(data, pa.Table):
            yield from data.to_batches()
        elif isinstance(data, pa.RecordBatch):
            yield data
        elif isinstance(data, pa.RecordBatchReader):
            yield from data
        elif hasattr(data, "__arrow_c_stream__"):
            yield from pa.RecordBatchReader.from_stream(data)
        else:
            raise RowError(
                f"a pyarrow.Table or an Arrow stream is needed, not {type(data).__name__}"
            )

    def from_pandas(self, frame: Any) -> pa.Table:
        """Convert a DataFrame without its index to the types of the table; NaN becomes null.

        Args:
            frame: The `pandas.DataFrame`.

        Raises:
            RowError: A column is unknown or does not fit.
            MissingExtraError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError:
            raise MissingExtraError("pandas", "pandas") from None
        if not isinstance(frame, pd.DataFrame):
            raise RowError(f"a pandas.DataFrame is needed, not {type(frame).__name__}")
        fields = []
        for name in frame.columns:
            if name not in self._given:
                columns = ", ".join(self._given)
                raise RowError(f"no column '{name}' here; the columns are {columns}")
            if getattr(frame[name].dtype, "tz", None) is not None:
                _check_cast(name, self._given[name], pa.timestamp("ns", "UTC"))
            fields.append(self._shown.field(name).with_nullable(True))
        try:
            return pa.Table.from_pandas(frame, pa.schema(fields), preserve_index=False)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise RowError(f"the DataFrame does not fit the table: {error}") from error


def _check_cast(name: str, data_type: DataType, given: pa.DataType) -> None:
    """Refuse casts that Arrow calls safe although they change the meaning of a value."""
    if pt.is_dictionary(given):
        given = given.value_type
    reason = data_type.why_not_cast(given)
    if reason:
        raise RowError(f"column '{name}' is {reason}")
