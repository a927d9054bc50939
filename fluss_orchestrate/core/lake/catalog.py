"""The Iceberg catalog behind a table's lake, opened with pyiceberg.

The table's `table.datalake.iceberg.*` properties say how the server reaches the catalog, in the
names of Iceberg's Java library. They are converted to the names of pyiceberg. The environment
replaces them, and the caller's `catalog` replaces both; these two use the names of pyiceberg.
Secrets belong in the environment: `FLUSS_LAKE_<ALIAS>__S3__SECRET_ACCESS_KEY` is
`s3.secret-access-key` for the cluster of that alias (`__` is a dot, `_` is a dash). Nothing here
prints a secret.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from fluss_client import TableInfo
from fluss_client.engine import Location, open_storage, parse_location, room_needed, storage_error
from fluss_client.errors import ConfigError, FlussError, MissingExtraError, UnsupportedError
from fluss_orchestrate.core.lake.catalog_failures import (
    catalog_error,
    catalog_not_opened,
    reason_of,
)
from fluss_orchestrate.core.lake.errors import CatalogError, NoLakeError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

DEFAULT_CATALOG_NAME = "fluss-iceberg-catalog"
"""The name that the server gives its catalog; a JDBC catalog keeps it with every table."""
LAKE_ENABLED = "table.datalake.enabled"
LAKE_FORMAT = "table.datalake.format"
PROPERTY_PREFIX = "table.datalake.iceberg."
VARIABLE_PREFIX = "FLUSS_LAKE_"
SQLITE_LOCK_TIMEOUT_S = 60
CATALOGS_MAX = 16
REDACTED = "******"

_SECRET = re.compile(r"secret|password|token|credential|access-key|sas|private|oauth", re.I)
_IMPLEMENTATIONS = {
    "org.apache.iceberg.jdbc.JdbcCatalog": "jdbc",
    "org.apache.iceberg.rest.RESTCatalog": "rest",
    "org.apache.iceberg.hive.HiveCatalog": "hive",
    "org.apache.iceberg.aws.glue.GlueCatalog": "glue",
}
_TYPES = {"jdbc": "sql", "sql": "sql", "rest": "rest", "hive": "hive", "glue": "glue"}
_OF_STORES = ("s3.", "gcs.", "adls.", "hdfs.", "fs.")
_JAVA_ONLY = ("catalog-impl", "io-impl", "jdbc.", "hadoop.")

_lock = threading.Lock()
_open: dict[tuple[int, frozenset[tuple[str, str]]], Catalog] = {}


def has_lake(table: TableInfo) -> bool:
    """Return whether the table has a lake."""
    return table.properties.get(LAKE_ENABLED, "false").lower() == "true"


def catalog_properties(
    table: TableInfo, cluster_alias: str, overrides: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return what pyiceberg needs to open the catalog of a table.

    It contains secrets: do not print it.

    Raises:
        NoLakeError: The table has no lake.
        UnsupportedError: pyiceberg cannot open a catalog of this kind.
    """
    if not has_lake(table):
        raise NoLakeError(table.table_path)
    kind = table.properties.get(LAKE_FORMAT, "iceberg").lower()
    if kind != "iceberg":
        raise UnsupportedError(f"{table.table_path} is kept in {kind}; only Iceberg can be read")
    given = {
        key.removeprefix(PROPERTY_PREFIX): value
        for key, value in table.properties.items()
        if key.startswith(PROPERTY_PREFIX)
    }
    given |= environment_properties(cluster_alias)
    given |= {key: str(value) for key, value in (overrides or {}).items()}
    return to_pyiceberg(given)


def environment_properties(cluster_alias: str) -> dict[str, str]:
    """Return the catalog properties of a cluster that the environment sets."""
    alias = re.sub(r"[^A-Za-z0-9]", "_", cluster_alias).upper()
    prefix = f"{VARIABLE_PREFIX}{alias}__"
    return {
        name.removeprefix(prefix).lower().replace("__", ".").replace("_", "-"): value
        for name, value in os.environ.items()
        if name.startswith(prefix)
    }


def to_pyiceberg(given: Mapping[str, str]) -> dict[str, str]:
    """Return properties of Iceberg's Java library under the names that pyiceberg has for them."""
    implementation = given.get("catalog-impl")
    named = given.get("type") or _IMPLEMENTATIONS.get(implementation or "", "")
    kind = _TYPES.get(named.lower())
    if kind is None:
        raise UnsupportedError(
            f"pyiceberg cannot open a catalog of type '{named or implementation}'; it knows jdbc, "
            "rest, hive and glue. Give another way to the same tables as overrides"
        )
    result = {
        key: value
        for key, value in given.items()
        if not key.startswith(_JAVA_ONLY) and key != "type"
    }
    result["type"] = kind
    result.setdefault("name", DEFAULT_CATALOG_NAME)
    if kind == "sql" and "uri" in result:
        result["uri"] = _sql_uri(
            result["uri"], given.get("jdbc.user", ""), given.get("jdbc.password", "")
        )
    return result


def _sql_uri(uri: str, user: str, password: str) -> str:
    """Return the SQLAlchemy URL for a JDBC URL; a URL of SQLAlchemy is returned as it is."""
    if not uri.startswith("jdbc:"):
        return uri
    rest = uri.removeprefix("jdbc:")
    if rest.startswith("sqlite:"):
        path = rest.removeprefix("sqlite:").removeprefix("//").split("?")[0]
        path = path.removeprefix("file:")
        # The server holds the same file open; a short wait for its lock is no error.
        return f"sqlite:///{path}?timeout={SQLITE_LOCK_TIMEOUT_S}"
    if rest.startswith("postgresql:"):
        parts = urlsplit(rest)
        login = f"{quote(user, safe='')}:{quote(password, safe='')}@" if user else ""
        return f"postgresql+psycopg2://{login}{parts.netloc}{parts.path}"
    raise ConfigError(
        f"no SQLAlchemy URL is known for jdbc:{rest.split(':')[0]}; pass it as the override 'uri'"
    )


def redacted(properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties that may be printed: secrets, and logins in addresses, are replaced."""
    return {
        key: REDACTED if _SECRET.search(key) else re.sub(r"//[^/@]*@", f"//{REDACTED}@", value)
        for key, value in properties.items()
    }


def public_properties(properties: Mapping[str, Any]) -> dict[str, str]:
    """Return the properties that everybody who sees a Spark plan may see: those without secrets."""
    shown = redacted({key: str(value) for key, value in properties.items()})
    return {key: value for key, value in shown.items() if REDACTED not in value}


def open_catalog(properties: Mapping[str, str]) -> Catalog:
    """Return the pyiceberg catalog of some properties; equal properties return the same one.

    Raises:
        CatalogError: It cannot be opened with these properties.
        CatalogUnreachableError: It does not answer.
    """
    key = (os.getpid(), frozenset(properties.items()))
    with _lock:
        catalog = _open.get(key)
        if catalog is None:
            catalog = _opened(properties)
            while len(_open) >= CATALOGS_MAX:
                _open.pop(next(iter(_open)))
            _open[key] = catalog
        return catalog


def _opened(properties: Mapping[str, str]) -> Catalog:
    load_catalog = _load_catalog()
    name = properties.get("name", DEFAULT_CATALOG_NAME)
    rest: dict[str, Any] = {k: v for k, v in properties.items() if k != "name"}
    try:
        return load_catalog(name, **rest)
    except Exception as error:
        raise catalog_not_opened(error, _named(name, properties)) from error


def open_named_catalog(name: str) -> Catalog:
    """Return a catalog of pyiceberg's own configuration (`.pyiceberg.yaml`, `PYICEBERG_CATALOG__`).

    Raises:
        CatalogError: It is not configured, or cannot be opened.
        CatalogUnreachableError: It does not answer.
    """
    load_catalog = _load_catalog()
    try:
        return load_catalog(name)
    except Exception as error:
        raise catalog_not_opened(error, f"catalog {name}") from error


def _load_catalog() -> Callable[..., Catalog]:
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError:
        raise MissingExtraError("pyiceberg", "lake") from None
    return load_catalog


def _named(name: str | None, properties: Mapping[str, Any]) -> str:
    """Return how errors name a catalog: nothing in it is secret."""
    uri = redacted({"uri": str(properties.get("uri") or "")})["uri"]
    return f"catalog {name} at {uri}" if uri else f"catalog {name}"


@contextmanager
def explained_by_catalog(catalog: Catalog) -> Iterator[None]:
    """Raise what a catalog refuses, and its failures, as the error that says what to do.

    Other errors stay: that a table does not exist, a lost race of commits, those of stores.
    """
    try:
        yield
    except Exception as error:
        found = catalog_error(error, catalog_place(catalog))
        if found is None:
            raise
        raise found from error


def catalog_place(catalog: Catalog) -> str:
    """Return how errors name a catalog."""
    return _named(catalog.name, catalog.properties)


def load_lake_table(
    table: TableInfo, cluster_alias: str, overrides: Mapping[str, str] | None = None
) -> Table:
    """Return the current Iceberg table of a Fluss table. Blocks on I/O.

    Raises:
        CatalogError: The catalog cannot be opened, refuses it, or does not have the table.
        CatalogUnreachableError: It does not answer.
        StorageError: The store refuses the table's metadata.
    """
    from pyiceberg.exceptions import NoSuchTableError

    catalog = open_catalog(catalog_properties(table, cluster_alias, overrides))
    path = table.table_path
    store = explained_by_store(catalog.properties.get("warehouse", ""), catalog.properties, "read")
    try:
        with explained_by_catalog(catalog), store:
            return catalog.load_table((path.database_name, path.table_name))
    except NoSuchTableError as error:
        raise CatalogError(
            f"{catalog_place(catalog)} has no table {path}: the servers created it in their own "
            f"catalog, so check uri, warehouse, name and prefix ({reason_of(error)})"
        ) from error


@contextmanager
def explained_by_store(location: str, properties: Mapping[str, str], doing: str) -> Iterator[None]:
    """Raise what a store refuses as the error that says what to do; other errors stay.

    A local disk without room is one of these. Whoever works on must be able to tell it from a
    fault: a tiering worker tries again.

    Args:
        location: Where the files are: that of the table, or the warehouse.
        properties: The properties of the catalog or of the table's files.
        doing: What is to be done: `read` or `write`.
    """
    try:
        yield
    except (OSError, EOFError, pa.ArrowInvalid) as error:
        if not _of_store(error):
            raise
        place = _place(location)
        if place is None:
            with room_needed(location, doing):
                raise
        raise storage_error(error, place, doing, _filesystem(place, properties)) from error


def explained_while_read(
    location: str, properties: Mapping[str, str], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Return batches that are read from a store; see `explained_by_store`."""
    with explained_by_store(location, properties, "read"):
        yield from batches


def _place(location: str) -> Location | None:
    """Return where the files are; None for a local disk, whose errors say enough."""
    try:
        place = parse_location(location)
    except ConfigError:
        return None
    return None if place.is_local else place


def _of_store(error: BaseException) -> bool:
    """Return whether a request to a store failed.

    Requests to a catalog raise an OSError, too. And Arrow takes an answer that was cut before the
    size for one of an empty object, so that a manifest or a Parquet file ends where it begins.
    """
    requests = sys.modules.get("requests")
    if requests is not None and isinstance(error, requests.RequestException):
        return False
    if isinstance(error, pa.ArrowInvalid):
        return str(error).startswith("Parquet ")
    return not isinstance(error, FlussError)


def _filesystem(place: Location, properties: Mapping[str, str]) -> pafs.FileSystem | None:
    """Return the store, to ask it for a reason that an answer did not have."""
    known = {k: str(v) for k, v in properties.items() if k.startswith(_OF_STORES)}
    try:
        return open_storage(place, known).filesystem
    except (ConfigError, UnsupportedError):
        return None
