"""The one place that opens file systems: Arrow's own where it has one, else those of fsspec.

A file system belongs to one location and one set of properties, and is not shared: it holds
credentials. Opening one sends no request, except that the region of an AWS bucket is asked for if
nothing names it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from fluss_client.errors import ConfigError, UnsupportedError
from fluss_client.storage.locations import AZURE, GCS, HDFS, LOCAL, S3, Location, parse_location
from fluss_client.storage.properties import StorageProperties, storage_properties

S3_ATTEMPTS_MAX = 6
"""How often a request is sent, within about ten seconds. If one in twenty fails, one in 60 million
fails every time."""
S3_CONNECT_TIMEOUT_S = 5.0
S3_REQUEST_TIMEOUT_S = 30.0
DEFAULT_REGION = "us-east-1"
GCS_TOKEN_LIFE = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Storage:
    """A file system that is open, and a location on it.

    Attributes:
        filesystem: A file system of pyarrow.
        location: The location that it was opened for.
    """

    filesystem: pafs.FileSystem
    location: Location

    @property
    def path(self) -> str:
        """The path of the location on the file system."""
        return self.location.path


def open_storage(
    location: str | os.PathLike[str] | Location,
    properties: Mapping[str, str] | None = None,
    *,
    name: str | None = None,
) -> Storage:
    """Open the file system of a local path or URI.

    Args:
        location: The path or URI.
        properties: Properties of the storage by the names of pyiceberg, such as `s3.endpoint`.
        name: The name under which the environment has more properties (`FLUSS_STORAGE_<NAME>__…`).

    Returns:
        The file system, and the path on it.

    Raises:
        ConfigError: The location or a property is not valid, or the region of a bucket is unknown.
        UnsupportedError: Nothing that is installed opens this scheme.
    """
    place = location if isinstance(location, Location) else parse_location(location)
    values = storage_properties(properties, name)
    opened = _OPENERS.get(place.family, _with_fsspec)(place, values)
    return Storage(opened, place)


def as_filesystem(filesystem: Any) -> pafs.FileSystem:
    """Return a file system of pyarrow for a `filesystem` of pyarrow or fsspec."""
    if isinstance(filesystem, pafs.FileSystem):
        return filesystem
    return pafs.PyFileSystem(pafs.FSSpecHandler(filesystem))


def _local(place: Location, values: StorageProperties) -> pafs.FileSystem:
    return pafs.LocalFileSystem()


def _s3(place: Location, values: StorageProperties) -> pafs.FileSystem:
    endpoint = _s3_endpoint(place, values)
    settings: dict[str, Any] = {
        "access_key": values.get("s3.access-key-id"),
        "secret_key": values.get("s3.secret-access-key"),
        "session_token": values.get("s3.session-token"),
        "anonymous": _is_true(values.get("s3.anonymous")),
        "role_arn": values.get("s3.role-arn"),
        "session_name": values.get("s3.role-session-name"),
        "region": _s3_region(place, values, endpoint),
        "connect_timeout": _seconds(values, "s3.connect-timeout", S3_CONNECT_TIMEOUT_S),
        "request_timeout": _seconds(values, "s3.request-timeout", S3_REQUEST_TIMEOUT_S),
        "proxy_options": values.get("s3.proxy-uri"),
        "retry_strategy": pafs.AwsStandardS3RetryStrategy(max_attempts=S3_ATTEMPTS_MAX),
        "tls_ca_file_path": values.get("s3.tls-ca-file"),
        # A small object is then sent with one request, and none is begun that may not be ended.
        "allow_delayed_open": True,
    }
    if endpoint:
        parts = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
        settings["scheme"] = parts.scheme
        settings["endpoint_override"] = parts.netloc
    # Alibaba's and Huawei's stores refuse addresses that have the bucket in the path.
    virtual = values.get("s3.force-virtual-addressing")
    settings["force_virtual_addressing"] = (
        place.scheme in ("oss", "obs", "cosn") if virtual is None else _is_true(virtual)
    )
    try:
        return pafs.S3FileSystem(**{key: value for key, value in settings.items() if value})
    except (ValueError, pa.ArrowException) as error:
        raise ConfigError(f"{place}: the properties of its storage do not fit: {error}") from None


def _s3_endpoint(place: Location, values: StorageProperties) -> str:
    found = values.get("s3.endpoint", "")
    if place.scheme in ("oss", "obs", "cosn"):
        if not found:
            raise ConfigError(
                f"{place}: set s3.endpoint to the endpoint of the bucket's region, with which the "
                "store takes requests of S3"
            )
        return found
    return (
        found or os.environ.get("AWS_ENDPOINT_URL_S3", "") or os.environ.get("AWS_ENDPOINT_URL", "")
    )


def _s3_region(place: Location, values: StorageProperties, endpoint: str) -> str:
    named = (
        values.get("s3.region")
        or values.get("s3.client.region")
        or os.environ.get("AWS_REGION")
        or os.environ.get("AWS_DEFAULT_REGION")
    )
    if named:
        return named
    if endpoint:
        # Servers beside AWS mostly take any region.
        return DEFAULT_REGION
    try:
        found: str = pafs.resolve_s3_region(place.host)
        return found
    except (OSError, pa.ArrowException):
        raise ConfigError(
            f"{place}: nothing names the region of bucket {place.host}, and AWS did not tell it: "
            "set s3.region (or AWS_REGION), or s3.endpoint for a store that is not AWS"
        ) from None


def _gcs(place: Location, values: StorageProperties) -> pafs.FileSystem:
    if not hasattr(pafs, "GcsFileSystem"):
        return _with_fsspec(place, values)
    settings: dict[str, Any] = {
        "anonymous": _is_true(values.get("gcs.anonymous")),
        "project_id": values.get("gcs.project-id"),
        "default_bucket_location": values.get("gcs.default-bucket-location"),
    }
    token = values.get("gcs.oauth2.token")
    if token:
        ends_ms = values.get("gcs.oauth2.token-expires-at")
        ends = (
            datetime.fromtimestamp(int(ends_ms) / 1000, UTC)
            if ends_ms
            else datetime.now(UTC) + GCS_TOKEN_LIFE
        )
        settings |= {"access_token": token, "credential_token_expiration": ends}
    host = values.get("gcs.service.host")
    if host:
        parts = urlsplit(host if "://" in host else f"https://{host}")
        settings |= {"scheme": parts.scheme, "endpoint_override": parts.netloc}
    return pafs.GcsFileSystem(**{key: value for key, value in settings.items() if value})


def _azure(place: Location, values: StorageProperties) -> pafs.FileSystem:
    if values.get("adls.token") or values.get("adls.connection-string"):
        raise UnsupportedError(
            f"{place}: Arrow takes no OAuth token and no connection string for Azure: set "
            "adls.account-key, adls.sas-token, or adls.tenant-id, adls.client-id and "
            "adls.client-secret (in the environment: FLUSS_STORAGE__ADLS__ACCOUNT_KEY)"
        )
    account = values.get("adls.account-name") or place.host.partition("@")[2].partition(".")[0]
    if not account:
        raise ConfigError(
            f"{place} names no account: write {place.scheme}://container@account.dfs.core.windows."
            "net/path, or set adls.account-name"
        )
    settings: dict[str, Any] = {
        "account_name": account,
        "account_key": values.get("adls.account-key"),
        "sas_token": values.get("adls.sas-token"),
        "tenant_id": values.get("adls.tenant-id"),
        "client_id": values.get("adls.client-id"),
        "client_secret": values.get("adls.client-secret"),
        "blob_storage_authority": values.get("adls.blob-storage-authority"),
        "blob_storage_scheme": values.get("adls.blob-storage-scheme"),
        "dfs_storage_authority": values.get("adls.dfs-storage-authority"),
        "dfs_storage_scheme": values.get("adls.dfs-storage-scheme"),
    }
    return pafs.AzureFileSystem(**{key: value for key, value in settings.items() if value})


def _hdfs(place: Location, values: StorageProperties) -> pafs.FileSystem:
    host, _, port = place.host.partition(":")
    settings: dict[str, Any] = {
        "host": values.get("hdfs.host") or host or "default",
        "port": int(values.get("hdfs.port") or port or 0),
        "user": values.get("hdfs.user"),
        "kerb_ticket": values.get("hdfs.kerberos_ticket"),
    }
    try:
        return pafs.HadoopFileSystem(**{key: value for key, value in settings.items() if value})
    except (OSError, pa.ArrowException) as error:
        raise UnsupportedError(
            f"{place} cannot be opened: {error}. Arrow needs Hadoop's libhdfs: set HADOOP_HOME, "
            "JAVA_HOME, and CLASSPATH to the output of `hadoop classpath --glob`"
        ) from error


def _with_fsspec(place: Location, values: StorageProperties) -> pafs.FileSystem:
    try:
        import fsspec
    except ImportError:
        raise UnsupportedError(
            f"{place}: this scheme is read through fsspec: run pip install fsspec, and the package "
            f"that has '{place.scheme}:'"
        ) from None
    try:
        options = {
            key.removeprefix("fs."): value for key, value in values.items() if key[:3] == "fs."
        }
        return as_filesystem(fsspec.filesystem(place.scheme, **options))
    except (ImportError, ValueError) as error:
        raise UnsupportedError(
            f"{place}: neither Arrow nor fsspec opens '{place.scheme}:' here: {error}"
        ) from None


def _is_true(value: str | None) -> bool:
    return (value or "").lower() in ("true", "1", "yes")


def _seconds(values: StorageProperties, key: str, default: float) -> float:
    try:
        return float(values.get(key, default))
    except ValueError:
        raise ConfigError(f"{key} is a number of seconds, not '{values[key]}'") from None


_OPENERS: dict[str, Callable[[Location, StorageProperties], pafs.FileSystem]] = {
    LOCAL: _local,
    S3: _s3,
    GCS: _gcs,
    AZURE: _azure,
    HDFS: _hdfs,
}
