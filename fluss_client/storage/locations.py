"""Locations of files: local paths and URIs, in the spellings of Hadoop, Arrow and fsspec."""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from fluss_client.errors import ConfigError

S3 = "s3"
GCS = "gcs"
AZURE = "abfs"
HDFS = "hdfs"
LOCAL = "local"
# Stores that speak the S3 protocol keep their scheme in locations, because their endpoints differ.
FAMILIES = {
    **dict.fromkeys(("s3", "s3a", "s3n", "oss", "obs", "cosn"), S3),
    **dict.fromkeys(("gs", "gcs"), GCS),
    **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs"), AZURE),
    **dict.fromkeys(("hdfs", "viewfs"), HDFS),
    **dict.fromkeys(("", "file", "local"), LOCAL),
}


@dataclass(frozen=True, slots=True)
class Location:
    """One file or folder.

    Attributes:
        text: The location as it was given, without the login that a URI may contain.
        scheme: The scheme of the URI in lower case; empty for a local path.
        host: The bucket, container or server; empty on local disks.
        path: The path on its file system, as Arrow and fsspec take it.
    """

    text: str
    scheme: str
    host: str
    path: str

    @property
    def family(self) -> str:
        """The kind of file system: `s3`, `gcs`, `abfs`, `hdfs`, `local`, or the scheme itself."""
        return FAMILIES.get(self.scheme, self.scheme)

    @property
    def is_local(self) -> bool:
        """Whether the file is on a disk of this machine."""
        return self.family == LOCAL

    @property
    def is_object_store(self) -> bool:
        """Whether the store has objects under names, rather than files that can be renamed."""
        return self.family in (S3, GCS) or self.scheme in ("memory", "r2")

    def of_path(self, path: str) -> str:
        """Return the location of another `path` on the same file system, as a listing gives it."""
        if self.is_local:
            prefix = self.text[: -len(self.path)] if self.text.endswith(self.path) else ""
            return f"{prefix}{path}"
        if self.family == HDFS:
            return f"{self.scheme}://{self.host}/{path.lstrip('/')}"
        if self.family == AZURE:
            # The path begins with the container, and the host names it together with the account.
            return f"{self.scheme}://{self.host}/{path.partition('/')[2]}"
        return f"{self.scheme}://{path}"

    def __str__(self) -> str:
        return self.text


def parse_location(location: str | os.PathLike[str]) -> Location:
    """Return the parts of a local path or URI. Nothing is opened.

    Args:
        location: A path, or a URI such as `s3://bucket/path`, `s3a://…`, `gs://…`,
            `abfss://container@account.dfs.core.windows.net/path`, `hdfs://…`, `file:///path`.

    Raises:
        ConfigError: The location is empty, or a URI names no bucket.
    """
    given = os.fspath(location)
    if not given.strip():
        raise ConfigError("a path or URI of files is needed, and this one is empty")
    scheme = _scheme(given)
    if scheme in ("", "file", "local"):
        # A file name may contain % and ?, a URI of Java escapes them only after `file:`.
        path = given if not scheme else unquote(urlsplit(given).path)
        return Location(given, scheme, "", os.path.abspath(path or os.sep))
    parts = urlsplit(given.partition(":")[2], allow_fragments=False)
    login, _, host = parts.netloc.rpartition("@")
    # A key of an object store may contain a question mark.
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    if FAMILIES.get(scheme) == AZURE:
        # `container@account` names the account; it is no login.
        return Location(given, scheme, parts.netloc, f"{login or host}{path}".rstrip("/"))
    shown = f"{scheme}://{host}{path}"
    if FAMILIES.get(scheme) == HDFS:
        return Location(shown, scheme, host, path or "/")
    if not host and scheme != "memory":
        raise ConfigError(f"{shown} names no bucket: write {scheme}://bucket/path")
    return Location(shown, scheme, host, f"{host}{path}".rstrip("/"))


def _scheme(given: str) -> str:
    scheme, colon, rest = given.partition(":")
    if not colon or len(scheme) < 2 or not scheme[0].isalpha():
        return ""
    if not all(sign.isalnum() or sign in "+.-" for sign in scheme):
        return ""
    scheme = scheme.lower()
    return scheme if rest.startswith("//") or scheme in ("file", "local") else ""
