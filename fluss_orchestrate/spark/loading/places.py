"""Files by path or URI, on local disks and in object stores."""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyarrow import fs

from fluss_client.engine import FAILURES, explain, open_storage, parse_location
from fluss_client.errors import ConfigError, UnsupportedError
from fluss_orchestrate.core.loading.sources import SourceError

MANIFEST = "_staged.json"
"""Names the data files of a folder that tasks have written to an object store. Attempts of a task
that did not count leave files there, too, at any time."""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_MAGIC = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file as it was when it was listed."""

    path: str
    size: int
    modified_ns: int


def filesystem_of(path: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a path or URI, and the path within it.

    The properties of a store come from the environment, on the driver and on each executor.
    """
    try:
        storage = open_storage(path)
    except (ConfigError, UnsupportedError, *FAILURES) as error:
        raise SourceError(path, f"cannot be opened: {error}") from error
    return storage.filesystem, storage.path


def list_files(paths: Sequence[str]) -> list[InputFile]:
    """Return the data files of paths, folders and local patterns, sorted; at least one."""
    found: dict[str, InputFile] = {}
    for path in paths:
        for one in _expanded(path):
            for file in _listed(one):
                found[file.path] = file
    if not found:
        raise SourceError(", ".join(paths), "there is no data file here")
    return [found[path] for path in sorted(found)]


def _expanded(path: str) -> Iterable[str]:
    if not _MAGIC.search(path):
        return [path]
    if _SCHEME.match(path):
        raise SourceError(path, "patterns are understood on local disks only; name the folder")
    return sorted(glob.glob(path, recursive=True))


def _listed(path: str) -> Iterable[InputFile]:
    system, inner = filesystem_of(path)
    place = parse_location(path)
    try:
        info = system.get_file_info(inner)
        if info.type == fs.FileType.NotFound:
            raise SourceError(path, "there is no such file or folder")
        infos = [info]
        if info.type == fs.FileType.Directory:
            infos = system.get_file_info(fs.FileSelector(inner, recursive=True))
            infos = _committed(system, infos)
    except FAILURES as error:
        raise SourceError(path, f"cannot be listed: {explain(error, place, system)}") from error
    for each in infos:
        if each.type == fs.FileType.File and _is_data(each.path, inner):
            yield InputFile(place.of_path(each.path), each.size, each.mtime_ns or -1)


def _committed(system: fs.FileSystem, infos: list[fs.FileInfo]) -> list[fs.FileInfo]:
    """Return the files that the manifest of their folder names; all if there is no manifest."""
    for info in infos:
        if info.base_name == MANIFEST:
            with system.open_input_file(info.path) as file:
                names = set(json.loads(file.read()))
            return [each for each in infos if each.base_name in names]
    return infos


def _is_data(path: str, root: str) -> bool:
    """Return whether a file is data, not one such as _SUCCESS or in a hidden folder."""
    below = path[len(root) :].strip("/")
    return not any(part.startswith((".", "_")) for part in below.split("/"))
