"""The servers, key snapshots, settings and ACLs of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fluss_client.backend.cluster.admin import RESET_OPTION, SET_OPTION, AdminCalls
from fluss_client.backend.cluster.calls import path_pb
from fluss_client.backend.contract import DatabaseChange
from fluss_client.errors import FlussError, SchemaError, error_for
from fluss_client.model.cluster import (
    Acl,
    ClusterHealth,
    ConfigEntry,
    KvSnapshot,
    RemoteLogManifest,
    ServerNode,
)
from fluss_client.model.table import TableBucket, TableInfo
from fluss_client.net.retry import retrying
from fluss_client.wire import apis
from fluss_client.wire import fluss_pb2 as pb

RESOURCE_TYPES = {"any": 1, "cluster": 2, "database": 3, "table": 4}
OPERATIONS = {
    "any": 1,
    "all": 2,
    "read": 3,
    "write": 4,
    "create": 5,
    "drop": 6,
    "alter": 7,
    "describe": 8,
}
PERMISSIONS = {"any": 1, "allow": 2}
HEALTH = {0: "green", 1: "yellow", 2: "red"}
USER = "User"


class ClusterAdminCalls(AdminCalls):
    """Calls about the cluster itself."""

    async def get_server_nodes(self) -> list[ServerNode]:
        async def ask() -> list[ServerNode]:
            await self.metadata.refresh_servers()
            return self.metadata.nodes()

        return await retrying(ask, self._deadline())

    async def list_kv_snapshots(
        self, table: TableInfo, partition_name: str | None
    ) -> list[KvSnapshot]:
        request = pb.GetLatestKvSnapshotsRequest(table_path=path_pb(table.table_path))
        if partition_name is not None:
            request.partition_name = partition_name
        answer = await self.on_any(apis.GET_LATEST_KV_SNAPSHOTS, request)
        return _snapshots(answer, answer.latest_snapshots)

    async def list_all_kv_snapshots(
        self, table: TableInfo, partition_id: int | None
    ) -> list[KvSnapshot]:
        request = pb.ListKvSnapshotsRequest(table_id=table.table_id)
        if partition_id is not None:
            request.partition_id = partition_id
        answer = await self.on_coordinator(apis.LIST_KV_SNAPSHOTS, request, repeatable=True)
        return _snapshots(answer, answer.active_snapshots)

    async def list_remote_log_manifests(
        self, table: TableInfo, partition_id: int | None
    ) -> list[RemoteLogManifest]:
        request = pb.ListRemoteLogManifestsRequest(table_id=table.table_id)
        if partition_id is not None:
            request.partition_id = partition_id
        answer = await self.on_coordinator(apis.LIST_REMOTE_LOG_MANIFESTS, request, repeatable=True)
        return [
            RemoteLogManifest(
                TableBucket(
                    entry.table_bucket.table_id,
                    entry.table_bucket.bucket_id,
                    partition_id=(
                        entry.table_bucket.partition_id
                        if entry.table_bucket.HasField("partition_id")
                        else None
                    ),
                ),
                entry.remote_log_manifest_path,
                entry.remote_log_end_offset,
            )
            for entry in answer.manifests
        ]

    async def get_cluster_health(self) -> ClusterHealth:
        answer = await self.on_any(apis.GET_CLUSTER_HEALTH, pb.GetClusterHealthRequest())
        return ClusterHealth(
            HEALTH.get(answer.status, "unknown"),
            answer.num_replicas,
            answer.in_sync_replicas,
            answer.num_leader_replicas,
            answer.active_leader_replicas,
        )

    async def alter_database(
        self, name: str, change: DatabaseChange, ignore_if_not_exists: bool
    ) -> None:
        request = pb.AlterDatabaseRequest(
            database_name=name, ignore_if_not_exists=ignore_if_not_exists
        )
        for key, value in change.set_properties.items():
            request.config_changes.add(config_key=key, config_value=value, op_type=SET_OPTION)
        for key in change.reset_properties:
            request.config_changes.add(config_key=key, op_type=RESET_OPTION)
        if change.comment is not None:
            request.comment = change.comment
        await self.on_coordinator(apis.ALTER_DATABASE, request, repeatable=True)

    async def describe_cluster_configs(self) -> list[ConfigEntry]:
        request = pb.DescribeClusterConfigsRequest()
        answer = await self.on_any(apis.DESCRIBE_CLUSTER_CONFIGS, request)
        return [
            ConfigEntry(
                entry.config_key,
                entry.config_value if entry.HasField("config_value") else None,
                entry.config_source,
            )
            for entry in answer.configs
        ]

    async def alter_cluster_configs(
        self, set_configs: Mapping[str, str], reset_configs: Sequence[str]
    ) -> None:
        request = pb.AlterClusterConfigsRequest()
        for key, value in set_configs.items():
            request.alter_configs.add(config_key=key, config_value=value, op_type=SET_OPTION)
        for key in reset_configs:
            request.alter_configs.add(config_key=key, op_type=RESET_OPTION)
        await self.on_coordinator(apis.ALTER_CLUSTER_CONFIGS, request)

    async def create_acls(self, acls: Sequence[Acl]) -> None:
        request = pb.CreateAclsRequest(acl=[_acl_pb(acl) for acl in acls])
        answer = await self.on_coordinator(apis.CREATE_ACLS, request)
        for part in answer.aclRes:
            _raise_part(part.error_code, part.error_message)

    async def list_acls(self, acl_filter: Mapping[str, str]) -> list[Acl]:
        request = pb.ListAclsRequest(acl_filter=_filter_pb(acl_filter))
        answer = await self.on_any(apis.LIST_ACLS, request)
        return [_acl(part) for part in answer.acl]

    async def drop_acls(self, filters: Sequence[Mapping[str, str]]) -> list[Acl]:
        request = pb.DropAclsRequest(acl_filter=[_filter_pb(part) for part in filters])
        answer = await self.on_coordinator(apis.DROP_ACLS, request)
        dropped = []
        for result in answer.filter_results:
            _raise_part(result.error_code, result.error_message)
            for match in result.matching_acls:
                _raise_part(match.error_code, match.error_message)
                dropped.append(_acl(match.acl))
        return dropped


def _snapshots(
    answer: pb.GetLatestKvSnapshotsResponse | pb.ListKvSnapshotsResponse,
    parts: Iterable[pb.PbKvSnapshot],
) -> list[KvSnapshot]:
    partition = answer.partition_id if answer.HasField("partition_id") else None
    return [
        KvSnapshot(
            TableBucket(answer.table_id, part.bucket_id, partition_id=partition),
            part.snapshot_id if part.HasField("snapshot_id") else None,
            part.log_offset if part.HasField("log_offset") else None,
        )
        for part in parts
    ]


def _raise_part(code: int, message: str) -> None:
    if code:
        error: FlussError = error_for(code, message)
        raise error


def _number(table: Mapping[str, int], word: str, what: str) -> int:
    number = table.get(word.lower())
    if number is None:
        raise SchemaError(f"{what} is one of {', '.join(table)}, not '{word}'")
    return number


def _word(table: Mapping[str, int], number: int) -> str:
    return next((word for word, value in table.items() if value == number), str(number))


def _acl_pb(acl: Acl) -> pb.PbAclInfo:
    return pb.PbAclInfo(
        resource_name=acl.resource_name,
        resource_type=_number(RESOURCE_TYPES, acl.resource_type, "resource_type"),
        principal_name=acl.principal,
        principal_type=acl.principal_type,
        host=acl.host,
        operation_type=_number(OPERATIONS, acl.operation, "operation"),
        permission_type=_number(PERMISSIONS, acl.permission, "permission"),
    )


def _acl(part: pb.PbAclInfo) -> Acl:
    return Acl(
        resource_type=_word(RESOURCE_TYPES, part.resource_type),
        resource_name=part.resource_name,
        principal=part.principal_name,
        operation=_word(OPERATIONS, part.operation_type),
        permission=_word(PERMISSIONS, part.permission_type),
        principal_type=part.principal_type,
        host=part.host,
    )


def _filter_pb(wanted: Mapping[str, str]) -> pb.PbAclFilter:
    known = {
        "resource_type",
        "resource_name",
        "principal",
        "principal_type",
        "host",
        "operation",
        "permission",
    }
    unknown = set(wanted) - known
    if unknown:
        raise SchemaError(f"an ACL filter has no {sorted(unknown)}; it has {sorted(known)}")
    message = pb.PbAclFilter(
        resource_type=_number(RESOURCE_TYPES, wanted.get("resource_type", "any"), "resource_type"),
        operation_type=_number(OPERATIONS, wanted.get("operation", "any"), "operation"),
        permission_type=_number(PERMISSIONS, wanted.get("permission", "any"), "permission"),
    )
    for key, name in (
        ("resource_name", "resource_name"),
        ("principal", "principal_name"),
        ("principal_type", "principal_type"),
        ("host", "host"),
    ):
        if key in wanted:
            setattr(message, name, wanted[key])
    if "principal" in wanted and "principal_type" not in wanted:
        # Servers ignore a principal that has a name but no type.
        message.principal_type = USER
    return message
