"""Properties of storage: endpoints, regions and credentials, by the names of pyiceberg.

They come from four places; the first that says how to sign requests decides the credentials:

1. what the caller gives,
2. the environment: `FLUSS_STORAGE_<NAME>__S3__ENDPOINT` is `s3.endpoint` of the storage called
   NAME, `FLUSS_STORAGE__S3__ENDPOINT` that of every storage (`__` is a dot, `_` a dash),
3. for the files of a cluster: the security token of its servers,
4. the store's own chain: `AWS_*` variables, profiles, web identities (IRSA) and instance profiles
   for S3, application default credentials for Google, managed identities for Azure.

Properties contain secrets: nothing here prints them, and `StorageProperties` pickles none.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping

from fluss_client.errors import ConfigError, CorruptDataError

VARIABLE_PREFIX = "FLUSS_STORAGE_"
# Properties that say who signs a request. They are taken from one place together: the access key of
# one place and the session token of another would never fit.
CREDENTIALS = {
    "s3": (
        *("s3.access-key-id", "s3.secret-access-key", "s3.session-token"),
        *("s3.anonymous", "s3.role-arn", "s3.role-session-name", "s3.profile-name"),
    ),
    "gcs": ("gcs.oauth2.token", "gcs.oauth2.token-expires-at", "gcs.anonymous"),
    "abfs": (
        *("adls.account-key", "adls.sas-token", "adls.connection-string"),
        *("adls.client-id", "adls.client-secret", "adls.tenant-id", "adls.token"),
    ),
}
_KNOWN_PREFIXES = ("s3.", "gcs.", "adls.", "hdfs.", "fs.")


class StorageProperties(Mapping[str, str]):
    """Properties of one storage. They are not shown, and credentials are never pickled.

    Args:
        values: The properties by their names.

    Raises:
        ConfigError: A name is none of a property of storage.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values = {key: str(value) for key, value in (values or {}).items()}
        for key in self._values:
            if not key.startswith(_KNOWN_PREFIXES):
                raise ConfigError(
                    f"{key} is no property of storage: their names begin with "
                    f"{', '.join(_KNOWN_PREFIXES)} (such as s3.endpoint)"
                )

    def __getitem__(self, key: str) -> str:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"StorageProperties({', '.join(sorted(self._values))})"

    def __reduce__(self) -> tuple[object, ...]:
        if not any(self.has_credentials(family) for family in CREDENTIALS):
            return StorageProperties, (self._values,)
        raise ConfigError(
            "properties of storage hold credentials and are never pickled: pass the name of the "
            f"storage, and set {VARIABLE_PREFIX}<NAME>__… where it is opened"
        )

    def over(self, others: Mapping[str, str]) -> StorageProperties:
        """Return these properties, and of `others` what is missing here.

        Credentials are taken from one of the two, never mixed.
        """
        taken = dict(others)
        for keys in CREDENTIALS.values():
            if any(key in self._values for key in keys):
                taken = {key: value for key, value in taken.items() if key not in keys}
        return StorageProperties({**taken, **self._values})

    def has_credentials(self, family: str) -> bool:
        """Return whether the properties say who signs requests to stores of a `family`."""
        return any(key in self._values for key in CREDENTIALS.get(family, ()))


def environment_storage(name: str | None = None) -> StorageProperties:
    """Return the properties of a storage that the environment sets.

    Args:
        name: The name of the storage, or the alias of a cluster; None for what is set for all.
    """
    general = StorageProperties(_variables(f"{VARIABLE_PREFIX}_"))
    if not name:
        return general
    word = re.sub(r"[^A-Za-z0-9]", "_", name).upper()
    return StorageProperties(_variables(f"{VARIABLE_PREFIX}{word}__")).over(general)


def storage_properties(
    given: Mapping[str, str] | None = None, name: str | None = None
) -> StorageProperties:
    """Return the properties of a storage: what is given, then what the environment sets.

    Args:
        given: Properties that the caller knows.
        name: The name of the storage in the environment.

    Raises:
        ConfigError: A property is unknown.
    """
    mine = given if isinstance(given, StorageProperties) else StorageProperties(given)
    return mine.over(environment_storage(name))


def _variables(prefix: str) -> dict[str, str]:
    return {
        key.removeprefix(prefix).lower().replace("__", ".").replace("_", "-"): value
        for key, value in os.environ.items()
        if key.startswith(prefix)
    }


def token_properties(scheme: str, token: bytes, extra: Mapping[str, str]) -> StorageProperties:
    """Return the properties that a server's security token stands for.

    Args:
        scheme: The scheme of the files, such as `s3a`.
        token: The token: JSON with keys, or with a token of OAuth. Empty if the storage needs none.
        extra: What the server says beside it, in the names of Hadoop.

    Raises:
        CorruptDataError: The token is no JSON object.
    """
    keys = _parsed(token)
    if scheme in ("gs", "gcs"):
        return _named({"gcs.oauth2.token": keys.get("security_token")})
    if scheme in ("abfs", "abfss", "wasb", "wasbs"):
        return _named({"adls.token": keys.get("security_token")})
    if scheme in ("hdfs", "viewfs"):
        return StorageProperties()
    # The names differ between versions of the server and between its plugins.
    place = {"oss": "fs.oss", "obs": "fs.obs", "cosn": "fs.cosn"}.get(scheme, "fs.s3a")
    path_style = extra.get(f"{place}.path.style.access", "").lower()
    return _named(
        {
            "s3.access-key-id": keys.get("access_key_id"),
            "s3.secret-access-key": keys.get("access_key_secret"),
            "s3.session-token": keys.get("security_token"),
            "s3.endpoint": extra.get(f"{place}.endpoint"),
            "s3.region": extra.get(f"{place}.region") or extra.get(f"{place}.endpoint.region"),
            "s3.force-virtual-addressing": "true" if path_style == "false" else None,
        }
    )


def _parsed(token: bytes) -> dict[str, str]:
    if not token:
        return {}
    try:
        keys = json.loads(token)
    except ValueError:
        # The text of the token must not reach an error.
        keys = None
    if not isinstance(keys, dict):
        raise CorruptDataError("the servers' security token for remote storage is no JSON object")
    return keys


def _named(values: Mapping[str, str | None]) -> StorageProperties:
    return StorageProperties({key: value for key, value in values.items() if value})
