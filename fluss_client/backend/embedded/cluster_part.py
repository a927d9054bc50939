"""What a cluster has and a directory has not, said so; and the one server there is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fluss_client.backend.embedded.engine import NODE_ID, Engine
from fluss_client.errors import SecurityDisabledError, UnsupportedError
from fluss_client.model.cluster import Acl, ConfigEntry, KvSnapshot, ServerNode
from fluss_client.model.table import TableInfo

HOST, PORT = "localhost", 0
_NO_ACLS = "a local directory has no users: its files' permissions decide"


class ClusterPart(Engine):
    """The cluster's own operations."""

    async def get_server_nodes(self) -> list[ServerNode]:
        self._check_process()
        return [
            ServerNode(NODE_ID, HOST, PORT, "CoordinatorServer"),
            ServerNode(NODE_ID, HOST, PORT, "TabletServer"),
        ]

    async def list_kv_snapshots(
        self, table: TableInfo, partition_name: str | None
    ) -> list[KvSnapshot]:
        raise UnsupportedError("the embedded engine makes no snapshots of the key state")

    async def describe_cluster_configs(self) -> list[ConfigEntry]:
        """The settings of the lake, as a cluster shows them."""
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
        raise UnsupportedError("the embedded engine has no cluster settings to change")

    async def create_acls(self, acls: Sequence[Acl]) -> None:
        raise SecurityDisabledError(_NO_ACLS)

    async def list_acls(self, acl_filter: Mapping[str, str]) -> list[Acl]:
        raise SecurityDisabledError(_NO_ACLS)

    async def drop_acls(self, filters: Sequence[Mapping[str, str]]) -> list[Acl]:
        raise SecurityDisabledError(_NO_ACLS)
