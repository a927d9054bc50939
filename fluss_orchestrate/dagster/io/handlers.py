"""Frames of every kind to Arrow and back. Arrow is in the middle; nothing else is imported here.

A handler knows its types by their names, so a package that nobody uses is never loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from types import NoneType, UnionType
from typing import Any, Protocol, Union, get_args, get_origin

import pyarrow as pa

from fluss_client.errors import ConfigError

OpenRows = Callable[[Sequence[str] | None], pa.RecordBatchReader]
"""Opens the rows of a load, with some columns or with all of them."""


class FlussTypeHandler(Protocol):
    """Turns one kind of frame into Arrow and back. Add your own with `register_type_handler`."""

    @property
    def type_names(self) -> Sequence[str]:
        """Full names of the classes that it takes, subclasses included."""

    def to_arrow(self, frame: Any) -> pa.RecordBatchReader:
        """Return a reader of the rows of a `frame`, in the same order every time."""

    def from_arrow(self, open_rows: OpenRows, wanted: str) -> Any:
        """Return a frame.

        Args:
            open_rows: Opens a reader of the rows.
            wanted: The class of the frame, one of `type_names`.
        """


class ArrowHandler:
    """Arrow tables, and readers for rows that do not fit into memory."""

    type_names = ("pyarrow.lib.Table", "pyarrow.lib.RecordBatchReader", "pyarrow.lib.RecordBatch")

    def to_arrow(self, frame: Any) -> pa.RecordBatchReader:
        if isinstance(frame, pa.RecordBatchReader):
            return frame
        table = pa.Table.from_batches([frame]) if isinstance(frame, pa.RecordBatch) else frame
        return table.to_reader()

    def from_arrow(self, open_rows: OpenRows, wanted: str) -> Any:
        reader = open_rows(None)
        if wanted.endswith("Reader"):
            return reader
        table = reader.read_all()
        if wanted.endswith("RecordBatch"):
            whole = table.combine_chunks().to_batches()
            return whole[0] if whole else pa.RecordBatch.from_pylist([], table.schema)
        return table


class PandasHandler:
    """pandas; the index is not stored."""

    type_names = ("pandas.core.frame.DataFrame",)

    def to_arrow(self, frame: Any) -> pa.RecordBatchReader:
        return (
            pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata().to_reader()
        )

    def from_arrow(self, open_rows: OpenRows, wanted: str) -> Any:
        return open_rows(None).read_all().to_pandas()


class PolarsHandler:
    """polars; a lazy frame is collected on writing, and reads only the columns it needs."""

    type_names = ("polars.dataframe.frame.DataFrame", "polars.lazyframe.frame.LazyFrame")

    def to_arrow(self, frame: Any) -> pa.RecordBatchReader:
        whole = frame.collect() if hasattr(frame, "collect") else frame
        table: pa.Table = whole.to_arrow()
        return table.to_reader()

    def from_arrow(self, open_rows: OpenRows, wanted: str) -> Any:
        import polars as pl

        if not wanted.endswith("LazyFrame"):
            return pl.from_arrow(open_rows(None).read_all())
        from polars.io.plugins import register_io_source

        def batches(
            columns: list[str] | None, predicate: Any, count: int | None, _size: int | None
        ) -> Iterator[Any]:
            left = count
            for batch in open_rows(columns):
                found: Any = pl.from_arrow(pa.Table.from_batches([batch]))
                if predicate is not None:
                    found = found.filter(predicate)
                if left is not None:
                    found = found.head(left)
                    left -= len(found)
                yield found
                if left == 0:
                    return

        schema: Any = pl.from_arrow(open_rows(None).schema.empty_table())
        return register_io_source(batches, schema=schema.schema)


class SparkHandler:
    """PySpark, classic and Connect. Rows pass through the driver: load large ones in bulk."""

    type_names = (
        "pyspark.sql.dataframe.DataFrame",
        "pyspark.sql.classic.dataframe.DataFrame",
        "pyspark.sql.connect.dataframe.DataFrame",
    )

    def to_arrow(self, frame: Any) -> pa.RecordBatchReader:
        table: pa.Table = frame.toArrow()
        return table.to_reader()

    def from_arrow(self, open_rows: OpenRows, wanted: str) -> Any:
        # Whoever names the type has imported it; this package never does.
        session = sys.modules["pyspark.sql"].SparkSession.builder.getOrCreate()
        return session.createDataFrame(open_rows(None).read_all())


HANDLERS: list[FlussTypeHandler] = [
    ArrowHandler(),
    PandasHandler(),
    PolarsHandler(),
    SparkHandler(),
]


def register_type_handler(handler: FlussTypeHandler) -> None:
    """Register the `handler` of another kind of frame. It is tried before those that exist."""
    HANDLERS.insert(0, handler)


def wanted_frame(annotation: Any, what: str) -> type:
    """The class of frame that the annotation of an input asks for; an Arrow table without one.

    Raises:
        ConfigError: if the annotation is neither a class nor an optional one.
    """
    if get_origin(annotation) in (Union, UnionType):
        inner = [one for one in get_args(annotation) if one is not NoneType]
        annotation = inner[0] if len(inner) == 1 else annotation
    # typing.Any is a class since Python 3.11.
    if annotation is None or annotation is Any or annotation is object:
        annotation = pa.Table
    if isinstance(annotation, type):
        found: type = annotation
        return found
    raise ConfigError(
        f"{what}: {annotation} is not a kind of frame: annotate the input with one, such as "
        "pyarrow.Table or pandas.DataFrame"
    )


def find_handler(type_: type) -> tuple[FlussTypeHandler, str]:
    """The handler for a class, and the name under which it knows it."""
    names = [f"{cls.__module__}.{cls.__qualname__}" for cls in type_.__mro__]
    for handler in HANDLERS:
        for name in names:
            if name in handler.type_names:
                return handler, name
    known = sorted({name for handler in HANDLERS for name in handler.type_names})
    raise ConfigError(
        f"{names[0]} is not a kind of frame that Fluss takes: use {', '.join(known)}, or another "
        "IO manager for it, by its io_manager_key"
    )
