"""Which table is meant, for good: names can be used again, identities cannot.

The cluster's part is its configured alias, never its address: addresses change, and two names of
one cluster must not look like two tables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from fluss_client import TableInfo, TablePath
from fluss_client.errors import ConfigError
from fluss_orchestrate.core import plain_values as plain

URI_SCHEME = "fluss"
_ALIAS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")


@dataclass(frozen=True, slots=True)
class TableIdentity:
    """One table of one cluster. A table that is dropped and created again has another identity.

    Attributes:
        cluster: The alias of the cluster.
        path: The table's database and name.
        table_id: The id of the table.
        created_time: When it was created, in milliseconds since 1970.
    """

    cluster: str
    path: TablePath
    table_id: int
    created_time: int

    @classmethod
    def of(cls, cluster_alias: str, info: TableInfo) -> TableIdentity:
        """Return the identity of a table.

        Args:
            cluster_alias: The alias of the cluster.
            info: The table as the server describes it.
        """
        return cls(check_alias(cluster_alias), info.table_path, info.table_id, info.created_time)

    @property
    def uri(self) -> str:
        """`fluss://cluster/database/table`."""
        return table_uri(self.cluster, self.path)

    def to_json(self) -> dict[str, Any]:
        """Return the identity as plain values."""
        return {
            "cluster": self.cluster,
            "table": str(self.path),
            "table_id": self.table_id,
            "created_time": self.created_time,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> TableIdentity:
        """Return the identity from the `value` that `to_json` returned."""
        with plain.reading("identity of a table"):
            return cls(
                check_alias(plain.text(value["cluster"])),
                TablePath.parse(plain.text(value["table"])),
                plain.number(value["table_id"]),
                plain.number(value["created_time"]),
            )


def check_alias(alias: str) -> str:
    """The alias itself, or an error that says what one may hold."""
    if not _ALIAS.match(alias):
        raise ConfigError(
            f"'{alias}' is no cluster alias: use letters, digits, '.', '_' and '-', beginning "
            "with a letter or digit"
        )
    return alias


def table_uri(cluster: str, path: TablePath) -> str:
    """Return the URI of a table: `fluss://cluster/database/table`.

    Args:
        cluster: The alias of the cluster.
        path: The table.
    """
    return f"{URI_SCHEME}://{cluster}/{quote(path.database_name)}/{quote(path.table_name)}"


def parse_table_uri(uri: str) -> tuple[str, TablePath]:
    """Return the cluster alias and the path of a table from its `uri`."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        raise ConfigError(
            f"'{uri}' is no table URI: write fluss://cluster/database/table"
        ) from None
    names = [unquote(name) for name in parts.path.strip("/").split("/")]
    if parts.scheme != URI_SCHEME or not parts.netloc or len(names) != 2 or not all(names):
        raise ConfigError(f"'{uri}' is no table URI: write fluss://cluster/database/table")
    return check_alias(parts.netloc), TablePath(names[0], names[1])
