"""Rows in files: Parquet, ORC, Arrow, CSV and JSON lines, always in the same order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from fluss_client.errors import ClientError

FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".orc": "orc",
    ".arrow": "ipc",
    ".feather": "ipc",
    ".ipc": "ipc",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}


class SourceError(ClientError):
    """Files cannot be read as rows; `path` names the one."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path


def open_rows(
    path: str | Path,
    format: str | None = None,  # noqa: A002
    columns: Sequence[str] | None = None,
    types: pa.Schema | None = None,
) -> pa.RecordBatchReader:
    """Return a reader of the rows of a file, or of all files of one format in a folder.

    The same files give the same rows in the same order.

    Args:
        path: The file or the folder.
        format: The format, such as `parquet` or `csv`; None takes it from the name of the file.
        columns: The columns to read; None reads all.
        types: The types of the columns, such as those of the target. CSV and JSON say little about
            types; without `types` they are guessed.
    """
    files = source_files(path, format)
    kind = format or FORMATS[files[0].suffix.lower()]
    try:
        dataset = _dataset([str(file) for file in files], kind, types)
        wanted = None if columns is None else list(columns)
        return dataset.scanner(columns=wanted).to_reader()
    except (pa.ArrowInvalid, pa.ArrowKeyError, OSError, ValueError) as error:
        raise SourceError(str(path), f"cannot be read as {kind}: {error}") from error


def csv_options(types: pa.Schema) -> Any:
    """How to read CSV as columns of these types: an empty field is null, a quoted one is text."""
    import pyarrow.csv as pacsv

    return pacsv.ConvertOptions(
        column_types={f.name: f.type for f in types},
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )


def _dataset(files: Sequence[str], kind: str, types: pa.Schema | None) -> Any:
    import pyarrow.dataset as ds

    if types is not None and kind == "csv":
        return ds.dataset(files, format=ds.CsvFileFormat(convert_options=csv_options(types)))
    dataset = ds.dataset(files, format=kind)
    if types is None or kind != "json":
        return dataset
    known = {f.name: f.with_nullable(True) for f in types}
    return ds.dataset(files, pa.schema([known.get(f.name, f) for f in dataset.schema]), kind)


def source_files(path: str | Path, format: str | None = None) -> list[Path]:  # noqa: A002
    """The files meant by a path, sorted; `SourceError` when there is none or they are mixed."""
    if not str(path).strip():
        # As a path this would be the folder that the process runs in.
        raise SourceError("''", "is no path of a file or folder")
    place = Path(path)
    if place.is_file():
        files = [place]
    elif place.is_dir():
        files = sorted(f for f in place.rglob("*") if f.is_file() and _is_data(f, place))
    else:
        raise SourceError(str(path), "there is no such file or folder")
    known = files if format else [f for f in files if f.suffix.lower() in FORMATS]
    if not known:
        raise SourceError(str(path), f"holds no file that ends in {', '.join(sorted(FORMATS))}")
    kinds = {format or FORMATS[f.suffix.lower()] for f in known}
    if len(kinds) > 1:
        raise SourceError(str(path), f"holds {', '.join(sorted(kinds))} files; say which format")
    return known


def _is_data(file: Path, root: Path) -> bool:
    """Not what writers leave beside their data, such as _SUCCESS or hidden folders."""
    return not any(part.startswith((".", "_")) for part in file.relative_to(root).parts)
