"""The system columns of a lake, which tables of Fluss before 1.0 have and newer ones have not.

Fluss 0.9 gives every Iceberg table the columns `__bucket`, `__offset` and `__timestamp`, after the
columns of the user. Fluss 1.0 creates tables without them ("clean" tables) and leaves the older
ones as they are. Nothing else marks a table as one or the other: the columns do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from fluss_client import TablePath
from fluss_orchestrate.core.lake.errors import LakeLayoutError

if TYPE_CHECKING:
    from pyiceberg.table import Table

BUCKET, OFFSET, TIMESTAMP = "__bucket", "__offset", "__timestamp"
SYSTEM_COLUMNS = (BUCKET, OFFSET, TIMESTAMP)
SYSTEM_FIELDS = [
    pa.field(BUCKET, pa.int32(), nullable=False),
    pa.field(OFFSET, pa.int64(), nullable=False),
    pa.field(TIMESTAMP, pa.timestamp("us", tz="UTC"), nullable=False),
]


def has_system_columns(table: Table, path: TablePath) -> bool:
    """Return whether the rows of an Iceberg table have their bucket, offset and time.

    Args:
        table: The Iceberg table.
        path: The Fluss table, for the error.

    Raises:
        LakeLayoutError: The table has some of the columns only, or has them in another place or
            with other types.
    """
    from pyiceberg.types import IntegerType, LongType, TimestamptzType

    fields = table.schema().fields
    present = [f.name for f in fields if f.name in SYSTEM_COLUMNS]
    if not present:
        return False
    last = [(f.name, f.field_type) for f in fields[-len(SYSTEM_COLUMNS) :]]
    kinds = (IntegerType(), LongType(), TimestamptzType())
    if last != list(zip(SYSTEM_COLUMNS, kinds, strict=True)):
        raise LakeLayoutError(path, present, SYSTEM_COLUMNS)
    return True
