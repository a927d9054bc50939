"""Rows in files: Parquet, ORC, Arrow, CSV and JSON lines, always in the same order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

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
) -> pa.RecordBatchReader:
    """The rows of a file, or of all files of one format under a folder, by path.

    The same files give the same rows in the same order.
    """
    import pyarrow.dataset as ds

    files = source_files(path, format)
    kind = format or FORMATS[files[0].suffix.lower()]
    try:
        dataset = ds.dataset([str(file) for file in files], format=kind)
        wanted = None if columns is None else list(columns)
        return dataset.scanner(columns=wanted).to_reader()
    except (pa.ArrowInvalid, pa.ArrowKeyError, OSError, ValueError) as error:
        raise SourceError(str(path), f"cannot be read as {kind}: {error}") from error


def source_files(path: str | Path, format: str | None = None) -> list[Path]:  # noqa: A002
    """The files meant by a path, sorted; `SourceError` when there is none or they are mixed."""
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
