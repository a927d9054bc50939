"""The calls of the protocol: key, versions, message classes, and which server answers them.

A server does not answer a key that it does not support: the request would wait until its timeout.
So every call first asks the `ApiTable`, which is made from the server's ApiVersions answer, and an
unsupported call raises an error before anything is sent.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

from fluss_client.errors import UnsupportedByServerError
from fluss_client.wire import fluss_pb2 as pb

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)


class Served(enum.Flag):
    """Which servers answer a call. Single values equal `ApiVersionsResponse.server_type`."""

    COORDINATOR = 1
    TABLET = 2
    BOTH = 3


@dataclass(frozen=True, slots=True)
class Api(Generic[RequestT, ResponseT]):
    """One call: its number on the wire and the versions that this client supports."""

    key: int
    name: str
    request: type[RequestT]
    response: type[ResponseT]
    served: Served
    version_max: int = 0
    version_min: int = 0


@dataclass(frozen=True, slots=True)
class ApiTable:
    """The calls of one server, each in the version that both sides support."""

    server: str
    versions: Mapping[int, int]
    offered: Mapping[int, int] = field(default_factory=dict)
    """The highest version of each call that the server supports."""

    def supports(self, api: Api[Any, Any]) -> bool:
        """Return whether the server supports this call in a version of the client."""
        return api.key in self.versions

    @property
    def takes_bucket_counts(self) -> bool:
        """Whether requests to this server say by which bucket count they were made (Fluss 1.0).

        Not every call that has the field got a new version for it. Tablet servers show that they
        know bucket counts by version 1 of PRODUCE_LOG, coordinators by version 1 of ALTER_TABLE.
        """
        return any(self.offered.get(api.key, 0) >= 1 for api in (PRODUCE_LOG, ALTER_TABLE))

    def version(self, api: Api[Any, Any]) -> int:
        """Return the version to send.

        Raises:
            UnsupportedByServerError: The server does not support the call.
        """
        try:
            return self.versions[api.key]
        except KeyError:
            raise UnsupportedByServerError(
                f"{api.name} ({api.key}) is not served by {self.server} in a version that this "
                f"client speaks ({api.version_min} to {api.version_max}); calls of this kind go "
                f"to {_PLACES[api.served]}, and some need a newer Fluss"
            ) from None


_PLACES = {
    Served.COORDINATOR: "the coordinator",
    Served.TABLET: "a tablet server",
    Served.BOTH: "any server",
}

_C, _T, _B = Served.COORDINATOR, Served.TABLET, Served.BOTH

# One line per call, so that it reads as a table.
# ruff: noqa: E501
# fmt: off
API_VERSIONS = Api(1000, "API_VERSIONS", pb.ApiVersionsRequest, pb.ApiVersionsResponse, _B)
CREATE_DATABASE = Api(1001, "CREATE_DATABASE", pb.CreateDatabaseRequest, pb.CreateDatabaseResponse, _C)
DROP_DATABASE = Api(1002, "DROP_DATABASE", pb.DropDatabaseRequest, pb.DropDatabaseResponse, _C)
LIST_DATABASES = Api(1003, "LIST_DATABASES", pb.ListDatabasesRequest, pb.ListDatabasesResponse, _B)
DATABASE_EXISTS = Api(1004, "DATABASE_EXISTS", pb.DatabaseExistsRequest, pb.DatabaseExistsResponse, _B)
CREATE_TABLE = Api(1005, "CREATE_TABLE", pb.CreateTableRequest, pb.CreateTableResponse, _C)
DROP_TABLE = Api(1006, "DROP_TABLE", pb.DropTableRequest, pb.DropTableResponse, _C)
GET_TABLE_INFO = Api(1007, "GET_TABLE_INFO", pb.GetTableInfoRequest, pb.GetTableInfoResponse, _B)
LIST_TABLES = Api(1008, "LIST_TABLES", pb.ListTablesRequest, pb.ListTablesResponse, _B)
LIST_PARTITION_INFOS = Api(1009, "LIST_PARTITION_INFOS", pb.ListPartitionInfosRequest, pb.ListPartitionInfosResponse, _B)
TABLE_EXISTS = Api(1010, "TABLE_EXISTS", pb.TableExistsRequest, pb.TableExistsResponse, _B)
GET_TABLE_SCHEMA = Api(1011, "GET_TABLE_SCHEMA", pb.GetTableSchemaRequest, pb.GetTableSchemaResponse, _B)
GET_METADATA = Api(1012, "GET_METADATA", pb.MetadataRequest, pb.MetadataResponse, _B)
# Version 1 of PRODUCE_LOG and ALTER_TABLE, and version 3 of PUT_KV: bucket counts per partition.
PRODUCE_LOG = Api(1014, "PRODUCE_LOG", pb.ProduceLogRequest, pb.ProduceLogResponse, _T, version_max=1)
FETCH_LOG = Api(1015, "FETCH_LOG", pb.FetchLogRequest, pb.FetchLogResponse, _T)
# Version 1 of the three key calls tells the server that the client knows key format 2; version 2 of
# PUT_KV that it knows error 72.
PUT_KV = Api(1016, "PUT_KV", pb.PutKvRequest, pb.PutKvResponse, _T, version_max=3)
LOOKUP = Api(1017, "LOOKUP", pb.LookupRequest, pb.LookupResponse, _T, version_max=1)
LIST_OFFSETS = Api(1021, "LIST_OFFSETS", pb.ListOffsetsRequest, pb.ListOffsetsResponse, _T)
GET_LATEST_KV_SNAPSHOTS = Api(1023, "GET_LATEST_KV_SNAPSHOTS", pb.GetLatestKvSnapshotsRequest, pb.GetLatestKvSnapshotsResponse, _B)
# Servers of 1.0 also have version 1, with the same message. Version 0 is what this client was tested with.
GET_KV_SNAPSHOT_METADATA = Api(1024, "GET_KV_SNAPSHOT_METADATA", pb.GetKvSnapshotMetadataRequest, pb.GetKvSnapshotMetadataResponse, _B)
GET_FILESYSTEM_SECURITY_TOKEN = Api(1025, "GET_FILESYSTEM_SECURITY_TOKEN", pb.GetFileSystemSecurityTokenRequest, pb.GetFileSystemSecurityTokenResponse, _B)
INIT_WRITER = Api(1026, "INIT_WRITER", pb.InitWriterRequest, pb.InitWriterResponse, _T)
COMMIT_LAKE_TABLE_SNAPSHOT = Api(1030, "COMMIT_LAKE_TABLE_SNAPSHOT", pb.CommitLakeTableSnapshotRequest, pb.CommitLakeTableSnapshotResponse, _C)
GET_LAKE_SNAPSHOT = Api(1032, "GET_LAKE_SNAPSHOT", pb.GetLakeSnapshotRequest, pb.GetLakeSnapshotResponse, _B)
LIMIT_SCAN = Api(1033, "LIMIT_SCAN", pb.LimitScanRequest, pb.LimitScanResponse, _T)
PREFIX_LOOKUP = Api(1034, "PREFIX_LOOKUP", pb.PrefixLookupRequest, pb.PrefixLookupResponse, _T, version_max=1)
GET_DATABASE_INFO = Api(1035, "GET_DATABASE_INFO", pb.GetDatabaseInfoRequest, pb.GetDatabaseInfoResponse, _B)
CREATE_PARTITION = Api(1036, "CREATE_PARTITION", pb.CreatePartitionRequest, pb.CreatePartitionResponse, _C)
DROP_PARTITION = Api(1037, "DROP_PARTITION", pb.DropPartitionRequest, pb.DropPartitionResponse, _C)
AUTHENTICATE = Api(1038, "AUTHENTICATE", pb.AuthenticateRequest, pb.AuthenticateResponse, _B)
CREATE_ACLS = Api(1039, "CREATE_ACLS", pb.CreateAclsRequest, pb.CreateAclsResponse, _C)
LIST_ACLS = Api(1040, "LIST_ACLS", pb.ListAclsRequest, pb.ListAclsResponse, _B)
DROP_ACLS = Api(1041, "DROP_ACLS", pb.DropAclsRequest, pb.DropAclsResponse, _C)
LAKE_TIERING_HEARTBEAT = Api(1042, "LAKE_TIERING_HEARTBEAT", pb.LakeTieringHeartbeatRequest, pb.LakeTieringHeartbeatResponse, _C)
ALTER_TABLE = Api(1044, "ALTER_TABLE", pb.AlterTableRequest, pb.AlterTableResponse, _C, version_max=1)
DESCRIBE_CLUSTER_CONFIGS = Api(1045, "DESCRIBE_CLUSTER_CONFIGS", pb.DescribeClusterConfigsRequest, pb.DescribeClusterConfigsResponse, _B)
ALTER_CLUSTER_CONFIGS = Api(1046, "ALTER_CLUSTER_CONFIGS", pb.AlterClusterConfigsRequest, pb.AlterClusterConfigsResponse, _C)
ADD_SERVER_TAG = Api(1047, "ADD_SERVER_TAG", pb.AddServerTagRequest, pb.AddServerTagResponse, _C)
REMOVE_SERVER_TAG = Api(1048, "REMOVE_SERVER_TAG", pb.RemoveServerTagRequest, pb.RemoveServerTagResponse, _C)
REBALANCE = Api(1049, "REBALANCE", pb.RebalanceRequest, pb.RebalanceResponse, _C)
LIST_REBALANCE_PROGRESS = Api(1050, "LIST_REBALANCE_PROGRESS", pb.ListRebalanceProgressRequest, pb.ListRebalanceProgressResponse, _C)
CANCEL_REBALANCE = Api(1051, "CANCEL_REBALANCE", pb.CancelRebalanceRequest, pb.CancelRebalanceResponse, _C)
PREPARE_LAKE_TABLE_SNAPSHOT = Api(1052, "PREPARE_LAKE_TABLE_SNAPSHOT", pb.PrepareLakeTableSnapshotRequest, pb.PrepareLakeTableSnapshotResponse, _C)
REGISTER_PRODUCER_OFFSETS = Api(1053, "REGISTER_PRODUCER_OFFSETS", pb.RegisterProducerOffsetsRequest, pb.RegisterProducerOffsetsResponse, _C)
GET_PRODUCER_OFFSETS = Api(1054, "GET_PRODUCER_OFFSETS", pb.GetProducerOffsetsRequest, pb.GetProducerOffsetsResponse, _C)
DELETE_PRODUCER_OFFSETS = Api(1055, "DELETE_PRODUCER_OFFSETS", pb.DeleteProducerOffsetsRequest, pb.DeleteProducerOffsetsResponse, _C)
ACQUIRE_KV_SNAPSHOT_LEASE = Api(1056, "ACQUIRE_KV_SNAPSHOT_LEASE", pb.AcquireKvSnapshotLeaseRequest, pb.AcquireKvSnapshotLeaseResponse, _C)
RELEASE_KV_SNAPSHOT_LEASE = Api(1057, "RELEASE_KV_SNAPSHOT_LEASE", pb.ReleaseKvSnapshotLeaseRequest, pb.ReleaseKvSnapshotLeaseResponse, _C)
DROP_KV_SNAPSHOT_LEASE = Api(1058, "DROP_KV_SNAPSHOT_LEASE", pb.DropKvSnapshotLeaseRequest, pb.DropKvSnapshotLeaseResponse, _C)
GET_TABLE_STATS = Api(1059, "GET_TABLE_STATS", pb.GetTableStatsRequest, pb.GetTableStatsResponse, _T)
# From here on: Fluss 1.0.
ALTER_DATABASE = Api(1060, "ALTER_DATABASE", pb.AlterDatabaseRequest, pb.AlterDatabaseResponse, _C)
SCAN_KV = Api(1061, "SCAN_KV", pb.ScanKvRequest, pb.ScanKvResponse, _T)
GET_CLUSTER_HEALTH = Api(1062, "GET_CLUSTER_HEALTH", pb.GetClusterHealthRequest, pb.GetClusterHealthResponse, _B)
LIST_REMOTE_LOG_MANIFESTS = Api(1063, "LIST_REMOTE_LOG_MANIFESTS", pb.ListRemoteLogManifestsRequest, pb.ListRemoteLogManifestsResponse, _C)
LIST_KV_SNAPSHOTS = Api(1064, "LIST_KV_SNAPSHOTS", pb.ListKvSnapshotsRequest, pb.ListKvSnapshotsResponse, _C)
ADD_SERVER_TAG_BY_RACK = Api(1065, "ADD_SERVER_TAG_BY_RACK", pb.AddServerTagByRackRequest, pb.AddServerTagByRackResponse, _C)
REMOVE_SERVER_TAG_BY_RACK = Api(1066, "REMOVE_SERVER_TAG_BY_RACK", pb.RemoveServerTagByRackRequest, pb.RemoveServerTagByRackResponse, _C)
# fmt: on

APIS: Mapping[int, Api[Any, Any]] = MappingProxyType(
    {value.key: value for value in list(globals().values()) if isinstance(value, Api)}
)


def negotiate(server_versions: Iterable[pb.PbApiVersion], server: str) -> ApiTable:
    """Choose the highest version that both sides support of every call that the server lists.

    Calls that this client does not know, or without a common version, are left out. `server` is the
    name that errors show.
    """
    chosen: dict[int, int] = {}
    highest: dict[int, int] = {}
    for offered in server_versions:
        highest[offered.api_key] = offered.max_version
        api = APIS.get(offered.api_key)
        if api is None:
            continue
        version = min(api.version_max, offered.max_version)
        if version >= max(api.version_min, offered.min_version):
            chosen[api.key] = version
    return ApiTable(server, MappingProxyType(chosen), MappingProxyType(highest))
