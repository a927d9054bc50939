"""Failures of catalogs as errors: each is one sentence with what to do.

A catalog is reached by the library of its kind, and each library has errors of its own: pyiceberg
and requests for REST, SQLAlchemy, Thrift for Hive, botocore for Glue.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from fluss_orchestrate.core.lake.errors import CatalogError, CatalogUnreachableError

Rules = tuple[tuple[tuple[str, ...], type[CatalogError], str], ...]
_SHOWN_MAX = 300
_CREDENTIALS = (
    "refuses the credentials: set token, or credential and oauth2-server-uri, for the lake of a "
    "cluster in the environment (FLUSS_LAKE_<ALIAS>__TOKEN)"
)
_SILENT = "does not answer: check its uri, and that it is up"
_FAILING = "fails: look into its log, and run it again when it works"
_FOREIGN = "does not answer as a catalog does: check its uri"
_OF_PYICEBERG: Rules = (
    (
        ("UnauthorizedError", "OAuthError", "AuthorizationExpiredError"),
        CatalogError,
        _CREDENTIALS,
    ),
    (
        ("ForbiddenError",),
        CatalogError,
        "does not allow it: give these credentials the permission to list, read, create and change "
        "tables there, or set others (token, credential)",
    ),
    (
        (
            "ServerError",
            "ServiceUnavailableError",
            "TooManyRequestsError",
            "CommitStateUnknownException",
        ),
        CatalogUnreachableError,
        _FAILING,
    ),
    (
        ("NoSuchNamespaceError",),
        CatalogError,
        "has no such namespace: create it, or correct the name",
    ),
    (
        ("NoSuchPropertyException",),
        CatalogError,
        "lacks a property: set it where the catalog is configured, such as warehouse",
    ),
    (
        ("RESTError",),
        CatalogError,
        "does not take the request: check its uri and warehouse",
    ),
)
_OF_REQUESTS: Rules = (
    (
        ("InvalidURL", "MissingSchema", "InvalidSchema"),
        CatalogError,
        "has no address that can be used: write http://host:port, or https://host, as its uri",
    ),
    (("JSONDecodeError", "InvalidJSONError"), CatalogError, _FOREIGN),
    (("RequestException",), CatalogUnreachableError, _SILENT),
)
_OF_DATABASES: Rules = (
    (("OperationalError", "InterfaceError"), CatalogUnreachableError, _SILENT),
    (("SQLAlchemyError",), CatalogError, "cannot be used: check its uri, and its database"),
)
_OF_GLUE: Rules = (
    (
        ("NoCredentialsError", "PartialCredentialsError", "NoRegionError"),
        CatalogError,
        "cannot be asked: set glue.region, glue.access-key-id and glue.secret-access-key, or give "
        "the process a region and a role",
    ),
    (("ClientError",), CatalogError, "refuses the request: check its credentials and permissions"),
    (("BotoCoreError",), CatalogUnreachableError, _SILENT),
)
_OF_HIVE: Rules = (
    (("TTransportException",), CatalogUnreachableError, _SILENT),
    (("TException",), CatalogError, "does not take the request"),
)
_OF_ANSWERS: Rules = ((("ValidationError",), CatalogError, _FOREIGN),)
_LIBRARIES = {
    "pyiceberg.exceptions": _OF_PYICEBERG,
    "pydantic_core": _OF_ANSWERS,
    "requests.exceptions": _OF_REQUESTS,
    "sqlalchemy.exc": _OF_DATABASES,
    "botocore.exceptions": _OF_GLUE,
    "thrift.transport.TTransport": _OF_HIVE,
    "thrift.Thrift": _OF_HIVE,
}


def catalog_error(error: BaseException, where: str) -> CatalogError | None:
    """Return the error for a call to a catalog that failed; None if it is no failure of a catalog.

    That a table does not exist is none, and neither is a lost race of commits.

    Args:
        error: What the call raised.
        where: The catalog, for people.
    """
    for module, rules in _LIBRARIES.items():
        # What was raised is of a library that is loaded.
        if module not in sys.modules:
            continue
        for names, kind, says in rules:
            if isinstance(error, tuple(_classes(module, names))):
                return kind(f"{where} {says} ({reason_of(error)})")
    return None


def catalog_not_opened(error: Exception, where: str) -> CatalogError:
    """Return the error for a catalog that could not be opened."""
    found = catalog_error(error, where)
    if found is not None:
        return found
    return CatalogError(f"{where} cannot be opened: {reason_of(error)}")


def reason_of(error: BaseException) -> str:
    """Return the text of an error on one line, of bounded length."""
    # SQLAlchemy adds the statement and a link after an empty line and in a line.
    text = str(error).split("\n[SQL:")[0].split("\n(Background")[0]
    line = " ".join(text.split()) or type(error).__name__
    return line if len(line) <= _SHOWN_MAX else f"{line[:_SHOWN_MAX]}…"


def _classes(module: str, names: tuple[str, ...]) -> Iterator[type[BaseException]]:
    for name in names:
        found = getattr(sys.modules[module], name, None)
        if isinstance(found, type):
            yield found
