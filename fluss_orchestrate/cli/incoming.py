"""Rows on their way in: files by their format, or standard input."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fluss_orchestrate.cli.failures import CommandError
from fluss_orchestrate.cli.rows import STDOUT as STDIN
from fluss_orchestrate.cli.rows import format_of

if TYPE_CHECKING:
    import pyarrow as pa

COPY_BYTES = 1 << 20


def open_input(
    path: str, given: str | None, types: pa.Schema, columns: Sequence[str] | None
) -> pa.RecordBatchReader:
    """The rows of a file, of a folder, or of standard input.

    Values of CSV and JSON are read as the types of the table's columns, not guessed.
    """
    from fluss_orchestrate.core.loading import open_rows

    if path != STDIN:
        kind = "ipc" if given == "arrow" else given
        return open_rows(path, None if kind is None else str(kind), columns, types)
    import pyarrow as pa

    kind = format_of(path, given)
    try:
        reader = _stdin(sys.stdin.buffer, kind, types)
    except (pa.ArrowInvalid, OSError) as error:
        raise CommandError(f"standard input cannot be read as {kind}: {error}") from None
    return reader if columns is None else _projected(reader, columns)


def known_rows(path: str, given: str | None) -> int | None:
    """How many rows there will be, where files tell that without being read."""
    import pyarrow.parquet as pq

    from fluss_orchestrate.core.loading.sources import FORMATS, source_files

    if path == STDIN or (given or FORMATS.get(Path(path).suffix.lower())) != "parquet":
        return None
    return sum(int(pq.read_metadata(f).num_rows) for f in source_files(path, "parquet"))


def _stdin(stream: Any, kind: str, types: pa.Schema) -> pa.RecordBatchReader:
    import pyarrow as pa
    import pyarrow.csv as pacsv

    from fluss_orchestrate.core.loading.sources import csv_options

    if kind == "arrow":
        return pa.ipc.open_stream(stream)
    if kind == "csv":
        return pacsv.open_csv(stream, convert_options=csv_options(types))
    return _spooled(stream, kind, types)


def _spooled(stream: Any, kind: str, types: pa.Schema) -> pa.RecordBatchReader:
    """Parquet is read from its end, and JSON from a file: both need one."""
    from fluss_orchestrate.core.loading import open_rows

    with tempfile.NamedTemporaryFile(suffix=f".{kind}") as file:
        while chunk := stream.read(COPY_BYTES):
            file.write(chunk)
        file.flush()
        # Opened before the name goes: the reader keeps the file itself.
        return open_rows(file.name, kind, None, types).read_all().to_reader()


def _projected(reader: pa.RecordBatchReader, columns: Sequence[str]) -> pa.RecordBatchReader:
    import pyarrow as pa

    missing = [name for name in columns if name not in reader.schema.names]
    if missing:
        raise CommandError(f"standard input has no column '{missing[0]}'")
    schema = pa.schema([reader.schema.field(name) for name in columns])
    return pa.RecordBatchReader.from_batches(schema, (b.select(columns) for b in reader))
