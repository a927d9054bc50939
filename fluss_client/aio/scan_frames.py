"""Rows of a scan as Arrow tables and DataFrames.

A changelog without its change types means nothing, so the tables of a primary-key table get a
last column `_change_type` with the signs of `ChangeType`, as every reader writes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from fluss_client.aio.fetch_state import Piece
from fluss_client.aio.projection import Projection
from fluss_client.errors import MissingExtraError
from fluss_client.model.cluster import ChangeType
from fluss_client.model.table import TableInfo

if TYPE_CHECKING:
    import pandas as pd

CHANGE_TYPE_COLUMN = "_change_type"

_FIELD = pa.field(CHANGE_TYPE_COLUMN, pa.string(), nullable=False)


def shown_schema(projection: Projection, table: TableInfo) -> pa.Schema:
    """The schema of the tables that a scan gives."""
    schema = projection.schema
    return schema.append(_FIELD) if table.has_primary_key() else schema


def shown_batch(piece: Piece, schema: pa.Schema) -> pa.RecordBatch:
    """A piece in that schema."""
    batch = piece.batch
    if piece.change_types is None:
        return batch
    signs = ChangeType.signs_of(piece.change_types)
    return pa.RecordBatch.from_arrays([*batch.columns, signs], schema=schema)


def to_frame(table: pa.Table) -> pd.DataFrame:
    """An Arrow table as a DataFrame."""
    try:
        import pandas  # noqa: F401
    except ImportError:
        raise MissingExtraError("pandas", "pandas") from None
    return table.to_pandas()
