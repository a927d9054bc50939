"""The embedded backend: all operations in one class, and its capabilities.

Operations that only a cluster has raise an error that says so.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from fluss_client.backend.contract import Capabilities
from fluss_client.backend.embedded.admin import AdminOperations
from fluss_client.backend.embedded.lake.snapshots import LakeOperations
from fluss_client.backend.embedded.reads import ReadOperations
from fluss_client.backend.embedded.store.database import Database, Settings
from fluss_client.backend.embedded.store.engine import NODE_ID, Engine
from fluss_client.backend.embedded.writes import WriteOperations
from fluss_client.config import EMBEDDED_SCHEME, Config
from fluss_client.errors import ConfigError, SecurityDisabledError, UnsupportedError
from fluss_client.model.cluster import Acl, ConfigEntry, KvSnapshot, ServerNode
from fluss_client.model.table import TableInfo

HOST, PORT = "localhost", 0
_NO_ACLS = "an embedded directory has no users and no ACLs: set the permissions of its files"


class ClusterOperations(Engine):
    """Describes the one server; refuses what only a cluster has."""

    async def get_server_nodes(self) -> list[ServerNode]:
        self._check_process()
        return [
            ServerNode(NODE_ID, HOST, PORT, "CoordinatorServer"),
            ServerNode(NODE_ID, HOST, PORT, "TabletServer"),
        ]

    async def list_kv_snapshots(
        self, table: TableInfo, partition_name: str | None
    ) -> list[KvSnapshot]:
        raise UnsupportedError(
            "the embedded engine makes no snapshots of the key state: read the table itself"
        )

    async def describe_cluster_configs(self) -> list[ConfigEntry]:
        """Return the settings of the lake, under the names that a cluster has for them."""
        self._check_process()
        settings = {"format": "iceberg"}
        settings |= {f"iceberg.{key}": text for key, text in self.lake.settings().items()}
        return [
            ConfigEntry(f"datalake.{key}", text, "INITIAL_SERVER_CONFIG")
            for key, text in settings.items()
        ]

    async def alter_cluster_configs(
        self, set_configs: Mapping[str, str], reset_configs: Sequence[str]
    ) -> None:
        raise UnsupportedError(
            "the embedded engine has no cluster settings to change: set embedded.* in Config"
        )

    async def create_acls(self, acls: Sequence[Acl]) -> None:
        raise SecurityDisabledError(_NO_ACLS)

    async def list_acls(self, acl_filter: Mapping[str, str]) -> list[Acl]:
        raise SecurityDisabledError(_NO_ACLS)

    async def drop_acls(self, filters: Sequence[Mapping[str, str]]) -> list[Acl]:
        raise SecurityDisabledError(_NO_ACLS)


class EmbeddedBackend(
    AdminOperations, WriteOperations, ReadOperations, LakeOperations, ClusterOperations
):
    """The backend contract on one directory of a local disk."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.capabilities = Capabilities(
            name="embedded",
            versioned_merge_engine=False,
            aggregation_merge_engine=False,
            auto_increment=False,
            remote_log=False,
            kv_snapshots=False,
            acls=False,
            cluster_configs=False,
            replication=False,
            scan_kv=False,
            local_directory=str(database.directory),
        )

    @classmethod
    async def open(cls, config: Config) -> EmbeddedBackend:
        """Open the directory that `bootstrap.servers` names; create it if it is missing."""
        settings = Settings(config.embedded_synchronous, config.embedded_lock_timeout_ms)
        database = Database(directory_of(config.resolved_bootstrap()), settings)
        await asyncio.to_thread(database.prepare)
        backend = cls(database)
        try:
            await backend.keep_all_auto_partitions()
        except BaseException:
            await backend.close()
            raise
        return backend


def directory_of(address: str) -> Path:
    """Return the absolute directory of an address such as `embedded:~/data`."""
    name = address.removeprefix(EMBEDDED_SCHEME).strip()
    if not name:
        raise ConfigError(f"'{address}' names no directory: write {EMBEDDED_SCHEME}PATH")
    return Path(os.path.abspath(os.path.expanduser(name)))
