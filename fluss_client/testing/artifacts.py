"""The per-user cache of jars: fetched once, checked every time, shared by every checkout."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fluss_client.testing.errors import ArtifactError
from fluss_client.testing.fetching import FETCH_DEADLINE_S, fetch
from fluss_client.testing.jars import Jar
from fluss_client.testing.java import JavaRuntime
from fluss_client.testing.locking import file_lock
from fluss_client.testing.progress import download_progress
from fluss_client.testing.user_dirs import cache_dir


def jar_cache_dir() -> Path:
    """Where the jars lie."""
    return cache_dir() / "jars"


def ensure_jars(jars: Sequence[Jar], java: JavaRuntime) -> list[Path]:
    """The paths of `jars`, each with the pinned content; what is missing is fetched first.

    Needs no network when the cache has them all. A jar in the cache whose bytes are not the
    pinned ones is fetched anew. Raises `ArtifactError`.
    """
    folder = jar_cache_dir()
    try:
        if any(_fault(folder / jar.file_name, jar) for jar in jars):
            # One process fetches; the others wait for it and then find the jars.
            with file_lock(folder / ".lock", FETCH_DEADLINE_S, "fetching jars"):
                _fetch_missing(jars, folder, java)
    except OSError as error:
        raise ArtifactError(
            f"the jar cache {folder} cannot be used ({error.strerror or error}):"
            " make it writable or set XDG_CACHE_HOME to another directory"
        ) from error
    return [folder / jar.file_name for jar in jars]


def _fetch_missing(jars: Sequence[Jar], folder: Path, java: JavaRuntime) -> None:
    faults = {jar: _fault(folder / jar.file_name, jar) for jar in jars}
    wanted = [jar for jar, fault in faults.items() if fault]
    if not wanted:
        return
    corrupt = [str(folder / jar.file_name) for jar in wanted if faults[jar] == "corrupt"]
    staging = Path(tempfile.mkdtemp(dir=folder, prefix=".fetch-"))
    try:
        total = sum(jar.size_bytes for jar in wanted)
        title = f"Fetching {len(wanted)} jar{'s' if len(wanted) > 1 else ''} for the local cluster"
        with download_progress(title, total) as on_bytes:
            fetch(wanted, staging, java, on_bytes)
            on_bytes(total)
        for jar in wanted:
            _install(staging / jar.file_name, folder, jar)
    except ArtifactError as error:
        if corrupt:
            raise ArtifactError(
                f"the cached {', '.join(corrupt)} is corrupt, and {error.message}"
            ) from error
        raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _install(fetched: Path, folder: Path, jar: Jar) -> None:
    fault = _fault(fetched, jar)
    if fault:
        raise ArtifactError(
            f"{jar} as fetched is not the jar that this version expects (its SHA-256 is"
            f" {_sha256(fetched)}, expected {jar.sha256}): a proxy may have changed it; try again"
        )
    os.replace(fetched, folder / jar.file_name)


def _fault(path: Path, jar: Jar) -> str:
    """Empty when the jar is there and whole, else what is wrong with it."""
    try:
        if path.stat().st_size != jar.size_bytes:
            return "corrupt"
    except FileNotFoundError:
        return "missing"
    return "" if _sha256(path) == jar.sha256 else "corrupt"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
