"""Tables of other catalogs in the folder of a table, as far as the folder can be listed.

Catalogs that have the same warehouse, and do not know of each other, put tables of the same name
into one folder. Each is a table of its own, but what reads files by their folder mixes them, and
the removal of orphans of one deletes the files of the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

METADATA_SUFFIX = ".metadata.json"
FILES_READ_MAX = 50
"""How many files of metadata are read, the newest first."""


def others_in_folder(table: Table) -> Iterator[TableMetadata]:
    """Return the newest metadata of each other table that has files in the folder of a table."""
    from pyiceberg.exceptions import ValidationError
    from pyiceberg.serializers import FromInputFile

    mine = {table.metadata_location, *(one.metadata_file for one in table.metadata.metadata_log)}
    folder = f"{table.location().rstrip('/')}/metadata"
    names = {location.rpartition("/")[2] for location in mine}
    seen = {table.metadata.table_uuid}
    found = [name for name in _metadata_files(table, folder) if name not in names]
    for name in found[:FILES_READ_MAX]:
        try:
            metadata = FromInputFile.table_metadata(table.io.new_input(f"{folder}/{name}"))
        except (OSError, ValueError, ValidationError):
            continue  # It was deleted, or is written just now.
        if metadata.table_uuid not in seen:
            seen.add(metadata.table_uuid)
            yield metadata


def _metadata_files(table: Table, folder: str) -> list[str]:
    """Return the names of the files of metadata, the newest first; none if they are not listed."""
    from pyarrow import fs
    from pyiceberg.io.pyarrow import PyArrowFileIO

    io: Any = table.io
    if not isinstance(io, PyArrowFileIO):
        return []
    scheme, netloc, path = io.parse_location(folder, io.properties)
    try:
        listed = io.fs_by_scheme(scheme, netloc).get_file_info(
            fs.FileSelector(path, allow_not_found=True)
        )
    except OSError:
        return []  # Not everyone who may write may list.
    files = [info for info in listed if info.path.endswith(METADATA_SUFFIX)]
    files.sort(key=lambda info: info.mtime_ns or 0, reverse=True)
    return [info.path.rpartition("/")[2] for info in files]
