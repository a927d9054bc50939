"""Rows as output: to the screen, to a pipe, or to a file that appears only when complete."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from fluss_orchestrate.cli.presentation.failures import UsageError
from fluss_orchestrate.cli.presentation.output import datum, table, to_json

if TYPE_CHECKING:
    import pyarrow as pa

SCREEN_ROWS = 20
STDOUT = "-"
FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}


def format_of(path: str, given: str | None) -> str:
    """Return the format that was given, or that of the file's name."""
    if given is not None:
        return given
    found = FORMATS.get(Path(path).suffix.lower())
    if found is None:
        what = "standard input or output" if path == STDOUT else f"'{path}'"
        raise UsageError(f"say with --format which format {what} has: parquet, csv, json, arrow")
    return found


def limited(batches: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """Yield at most a number of rows, and close the source of the rest."""
    left = limit
    for batch in batches:
        if left is not None and batch.num_rows >= left:
            if left:
                yield batch.slice(0, left)
            break
        if left is not None:
            left -= batch.num_rows
        yield batch
    close = getattr(batches, "close", None)
    if close is not None:
        close()


def show_rows(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> tuple[Any, int]:
    """Print a table on the screen, and return its number of rows."""
    rows = [list(row.values()) for batch in batches for row in batch.to_pylist()]
    return table(schema.names, rows, empty="no rows", shown=datum), len(rows)


def print_json_rows(batches: Iterator[pa.RecordBatch]) -> None:
    """Print one JSON array, row by row, however many there are."""
    separator = "["
    for batch in batches:
        for row in batch.to_pylist():
            print(f"{separator}{to_json(row)}", end="")
            separator = ",\n"
    print("[]" if separator == "[" else "]")


def write_rows(
    schema: pa.Schema, batches: Iterator[pa.RecordBatch], to: str, kind: str
) -> tuple[int, int]:
    """Write all rows, and return the number of rows and bytes."""
    rows = 0
    with _opened(to) as stream, _WRITERS[kind](stream, schema) as write:
        for batch in batches:
            write(batch)
            rows += batch.num_rows
    size = 0 if to == STDOUT else os.stat(to).st_size
    return rows, size


@contextmanager
def _opened(to: str) -> Iterator[BinaryIO]:
    if to == STDOUT:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(to)
    if path.exists() and not path.is_file():
        # A device or a pipe is written to, never replaced.
        try:
            with open(path, "wb") as stream:
                yield stream
        except OSError as error:
            raise _named(error, to, path) from None
        return
    hidden = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(hidden, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(hidden, path)
    except OSError as error:
        raise _named(error, to, hidden) from None
    finally:
        hidden.unlink(missing_ok=True)


def _named(error: OSError, to: str, hidden: Path) -> OSError:
    """Return the error with the name that the user gave."""
    if error.filename is None or Path(os.fsdecode(error.filename)) == hidden:
        error.filename = to
    return error


@contextmanager
def _parquet(stream: BinaryIO, schema: pa.Schema) -> Iterator[Callable[[Any], None]]:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(stream, schema, compression="zstd") as writer:
        yield writer.write_batch


@contextmanager
def _csv(stream: BinaryIO, schema: pa.Schema) -> Iterator[Callable[[Any], None]]:
    import pyarrow.csv as pacsv

    flat = _flat_schema(schema)
    with pacsv.CSVWriter(stream, flat) as writer:
        yield lambda batch: writer.write_batch(_flat(batch, flat))


@contextmanager
def _json(stream: BinaryIO, schema: pa.Schema) -> Iterator[Callable[[Any], None]]:
    def write(batch: pa.RecordBatch) -> None:
        lines = "".join(f"{to_json(row)}\n" for row in batch.to_pylist())
        stream.write(lines.encode())

    yield write


@contextmanager
def _arrow(stream: BinaryIO, schema: pa.Schema) -> Iterator[Callable[[Any], None]]:
    import pyarrow as pa

    # A pipe cannot be read backwards, which the file form needs.
    piped = stream is sys.stdout.buffer
    with (pa.ipc.new_stream if piped else pa.ipc.new_file)(stream, schema) as writer:
        yield writer.write_batch


_WRITERS: dict[str, Any] = {"parquet": _parquet, "csv": _csv, "json": _json, "arrow": _arrow}


def _flat_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema for CSV: lists and maps become JSON text, bytes become base64."""
    import pyarrow as pa

    return pa.schema(
        [pa.field(f.name, pa.string() if _is_deep(f.type) else f.type) for f in schema]
    )


def _flat(batch: pa.RecordBatch, flat: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    columns = [
        pa.array([None if v is None else _text(v) for v in column.to_pylist()], pa.string())
        if _is_deep(column.type)
        else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=flat)


def _text(value: Any) -> str:
    text = to_json(value)
    return text[1:-1] if isinstance(value, (bytes, bytearray)) else text


def _is_deep(data_type: pa.DataType) -> bool:
    import pyarrow.types as types

    return bool(types.is_nested(data_type) or types.is_binary(data_type)) or bool(
        types.is_fixed_size_binary(data_type)
    )
