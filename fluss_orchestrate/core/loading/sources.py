"""Rows in files on disks and in object stores, always in the same order.

The formats are Parquet, ORC, Arrow, CSV and JSON lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from fluss_client.engine import FAILURES, Location, explain, open_storage, parse_location
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
        path: The file or the folder: a local path, or a URI such as `s3://bucket/path`.
        format: The format, such as `parquet` or `csv`; None takes it from the name of the file.
        columns: The columns to read; None reads all.
        types: The types of the columns, such as those of the target. CSV and JSON say little about
            types; without `types` they are guessed.
    """
    if str(path).strip() and not (place := parse_location(path)).is_local:
        files, filesystem = _stored_files(place, format)
    else:
        files, filesystem = [str(file) for file in source_files(path, format)], None
    kind = format or FORMATS[Path(files[0]).suffix.lower()]
    try:
        dataset = _dataset(files, kind, types, filesystem)
        wanted = None if columns is None else list(columns)
        return dataset.scanner(columns=wanted).to_reader()
    except (pa.ArrowInvalid, pa.ArrowKeyError, OSError, ValueError) as error:
        raise SourceError(str(path), f"cannot be read as {kind}: {error}") from error


def csv_options(types: pa.Schema) -> Any:
    """Return how to read CSV as columns of these types.

    An empty field is null, a quoted one is text.
    """
    import pyarrow.csv as pacsv

    return pacsv.ConvertOptions(
        column_types={f.name: f.type for f in types},
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )


def _dataset(files: Sequence[str], kind: str, types: pa.Schema | None, filesystem: Any) -> Any:
    import pyarrow.dataset as ds

    if types is not None and kind == "csv":
        csv = ds.CsvFileFormat(convert_options=csv_options(types))
        return ds.dataset(files, format=csv, filesystem=filesystem)
    dataset = ds.dataset(files, format=kind, filesystem=filesystem)
    if types is None or kind != "json":
        return dataset
    known = {f.name: f.with_nullable(True) for f in types}
    schema = pa.schema([known.get(f.name, f) for f in dataset.schema])
    return ds.dataset(files, schema, kind, filesystem=filesystem)


def source_files(path: str | Path, format: str | None = None) -> list[Path]:  # noqa: A002
    """Return the files of a path, sorted.

    Raises:
        SourceError: There is no file, or the formats are mixed.
    """
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
    return _of_one_format(files, str(path), format)


def _stored_files(place: Location, format: str | None) -> tuple[list[str], Any]:  # noqa: A002
    """Return the files of a folder of a store, sorted, and the store."""
    from pyarrow.fs import FileSelector, FileType

    storage = open_storage(place)
    try:
        info = storage.filesystem.get_file_info(place.path)
        infos = [info]
        if info.type == FileType.Directory:
            infos = storage.filesystem.get_file_info(FileSelector(place.path, recursive=True))
    except FAILURES as error:
        raise SourceError(place.text, explain(error, place, storage.filesystem)) from error
    if info.type == FileType.NotFound:
        raise SourceError(place.text, "there is no such file or folder")
    root = Path(place.path)
    files = sorted(Path(one.path) for one in infos if one.type == FileType.File)
    found = [file for file in files if file == root or _is_data(file, root)]
    return [str(file) for file in _of_one_format(found, place.text, format)], storage.filesystem


def _of_one_format(files: list[Path], path: str, format: str | None) -> list[Path]:  # noqa: A002
    known = files if format else [f for f in files if f.suffix.lower() in FORMATS]
    if not known:
        raise SourceError(path, f"holds no file that ends in {', '.join(sorted(FORMATS))}")
    kinds = {format or FORMATS[f.suffix.lower()] for f in known}
    if len(kinds) > 1:
        raise SourceError(path, f"holds {', '.join(sorted(kinds))} files; say which format")
    return known


def _is_data(file: Path, root: Path) -> bool:
    """Return whether a file is data, not one such as _SUCCESS or in a hidden folder."""
    return not any(part.startswith((".", "_")) for part in file.relative_to(root).parts)
