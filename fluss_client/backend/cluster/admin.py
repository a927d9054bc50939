"""Databases, tables, partitions and offsets on a cluster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence

from fluss_client.backend.cluster.calls import Calls, partition_of, path_pb
from fluss_client.backend.cluster.coordinator_faults import (
    await_database_leaders,
    await_partition_leaders,
    check_known,
    drop_if_missed,
)
from fluss_client.backend.contract import TableChange
from fluss_client.errors import (
    ClientError,
    CorruptDataError,
    DatabaseNotExistError,
    FlussError,
    InvalidBucketRoutingError,
    PartitionNotExistError,
    SchemaNotExistError,
    TableAlreadyExistError,
    TableNotExistError,
    TableNotReadyError,
    UnknownServerError,
    UnsupportedByServerError,
    error_for,
)
from fluss_client.model.cluster import OffsetSpec
from fluss_client.model.json import (
    data_type_to_json,
    database_from_json,
    database_to_json,
    descriptor_from_json,
    descriptor_to_json,
    schema_from_json,
)
from fluss_client.model.schema import Schema
from fluss_client.model.table import (
    DatabaseDescriptor,
    DatabaseInfo,
    PartitionInfo,
    TableBucket,
    TableDescriptor,
    TableInfo,
    TablePath,
)
from fluss_client.net.connection import Connection
from fluss_client.net.retry import Deadline, retrying
from fluss_client.wire import apis
from fluss_client.wire import fluss_pb2 as pb
from fluss_client.wire.messages import Buffer, parse

SYSTEM_PARTITION_PREFIX = "__"
"""How the values of system partitions begin; those of users must not."""
SET_OPTION, RESET_OPTION = 0, 1
COLUMN_LAST = 0
ALTER_WITH_BUCKET_COUNT = 1
"""The version of ALTER_TABLE from which on the server can change the bucket count."""
OFFSET_KINDS = {"earliest": 0, "latest": 1, "timestamp": 2}
CREATE_ATTEMPTS_MAX = 3
HALF_MADE = "No content to map due to end-of-input"
MADE_MEANWHILE = "NodeExists"
MADE_MEANWHILE_WAIT_MS = 5_000


def _retriable_read(error: FlussError) -> bool:
    """Retry also if a table is just being created: its ZooKeeper node is empty at first (0.9)."""
    half_made = isinstance(error, UnknownServerError) and HALF_MADE in str(error)
    return half_made or error.retriable


def _made_meanwhile(error: FlussError) -> bool:
    """Two clients created the table at once; 0.9 fails one. A retry says that it exists."""
    return isinstance(error, UnknownServerError) and MADE_MEANWHILE in str(error)


class AdminCalls(Calls):
    """Calls that create, change, list and drop databases, tables and partitions."""

    async def create_database(
        self, name: str, descriptor: DatabaseDescriptor | None, ignore_if_exists: bool
    ) -> None:
        request = pb.CreateDatabaseRequest(database_name=name, ignore_if_exists=ignore_if_exists)
        if descriptor is not None:
            request.database_json = database_to_json(descriptor)
        await self.on_coordinator(apis.CREATE_DATABASE, request, repeatable=ignore_if_exists)

    async def drop_database(self, name: str, ignore_if_not_exists: bool, cascade: bool) -> None:
        request = pb.DropDatabaseRequest(
            database_name=name, ignore_if_not_exists=ignore_if_not_exists, cascade=cascade
        )
        if cascade:
            await await_database_leaders(self, name)
        await self.on_coordinator(apis.DROP_DATABASE, request, repeatable=ignore_if_not_exists)

    async def list_databases(self) -> list[str]:
        answer = await self.on_any(apis.LIST_DATABASES, pb.ListDatabasesRequest())
        return list(answer.database_name)

    async def database_exists(self, name: str) -> bool:
        request = pb.DatabaseExistsRequest(database_name=name)
        if (await self.on_any(apis.DATABASE_EXISTS, request)).exists:
            return True
        if not self.pool.takes_bucket_counts:
            return False
        # Servers from 1.0 on say no, too, if the user may not see it; this call tells which it is.
        try:
            await self.get_database_info(name)
        except DatabaseNotExistError:
            return False
        return True

    async def get_database_info(self, name: str) -> DatabaseInfo:
        request = pb.GetDatabaseInfoRequest(database_name=name)
        answer = await self.on_any(apis.GET_DATABASE_INFO, request)
        descriptor = database_from_json(answer.database_json)
        return DatabaseInfo(name, descriptor, answer.created_time, answer.modified_time)

    async def create_table(
        self, path: TablePath, descriptor: TableDescriptor, ignore_if_exists: bool
    ) -> None:
        """Create a table that the coordinator knows.

        The coordinator of Fluss 0.9 sometimes misses a creation (see `coordinator_faults`). A table
        that this call created and that was certainly missed holds no row; it is dropped and created
        again. If that is not certain, nothing is dropped and `TableNotReadyError` is raised.
        """
        for _ in range(CREATE_ATTEMPTS_MAX):
            try:
                await self.send_create_table(
                    path, descriptor, ignore_if_exists=False, repeatable=ignore_if_exists
                )
            except TableAlreadyExistError:
                if ignore_if_exists:
                    return
                raise
            if not await drop_if_missed(self, await self.get_table_info(path)):
                return
        raise TableNotReadyError(
            f"the coordinator missed the creation of {path} {CREATE_ATTEMPTS_MAX} times; the table "
            "does not exist. Look at the coordinator's log, restart it and try again",
            path,
        )

    async def send_create_table(
        self,
        path: TablePath,
        descriptor: TableDescriptor,
        ignore_if_exists: bool,
        repeatable: bool = False,
    ) -> None:
        """Create a table without a check that the coordinator knows it.

        Args:
            path: The table.
            descriptor: What it is like.
            ignore_if_exists: The server ignores the request if the table exists.
            repeatable: A request that may have arrived is sent again; if it had arrived, that
                raises `TableAlreadyExistError`.
        """
        request = pb.CreateTableRequest(
            table_path=path_pb(path),
            table_json=descriptor_to_json(descriptor),
            ignore_if_exists=ignore_if_exists,
        )

        async def send() -> None:
            await self.on_coordinator(
                apis.CREATE_TABLE, request, repeatable=repeatable or ignore_if_exists
            )

        await retrying(send, Deadline(MADE_MEANWHILE_WAIT_MS), retriable=_made_meanwhile)

    async def drop_table(self, path: TablePath, ignore_if_not_exists: bool) -> None:
        request = pb.DropTableRequest(
            table_path=path_pb(path), ignore_if_not_exists=ignore_if_not_exists
        )
        await await_partition_leaders(self, path)
        await self.on_coordinator(apis.DROP_TABLE, request, repeatable=ignore_if_not_exists)

    async def alter_table(
        self, path: TablePath, change: TableChange, ignore_if_not_exists: bool
    ) -> None:
        """Send one request each for options, columns and bucket count: a request has one kind."""
        base = pb.AlterTableRequest(
            table_path=path_pb(path), ignore_if_not_exists=ignore_if_not_exists
        )
        requests = []
        if change.set_options or change.reset_options:
            options = pb.AlterTableRequest()
            options.CopyFrom(base)
            for key, value in change.set_options.items():
                options.config_changes.add(config_key=key, config_value=value, op_type=SET_OPTION)
            for key in change.reset_options:
                options.config_changes.add(config_key=key, op_type=RESET_OPTION)
            requests.append(options)
        if change.add_columns:
            columns = pb.AlterTableRequest()
            columns.CopyFrom(base)
            for column in change.add_columns:
                added = columns.add_columns.add(
                    column_name=column.name,
                    data_type_json=json.dumps(data_type_to_json(column.type)).encode(),
                    column_position_type=COLUMN_LAST,
                )
                if column.comment is not None:
                    added.comment = column.comment
            requests.append(columns)
        if change.bucket_count is not None:
            count = pb.AlterTableRequest()
            count.CopyFrom(base)
            count.modify_bucket_count.new_bucket_count = change.bucket_count
            requests.append(count)
            # An older server would ignore the field and answer that all is well.
            connection = await self.coordinator_connection()
            if connection.version(apis.ALTER_TABLE) < ALTER_WITH_BUCKET_COUNT:
                raise UnsupportedByServerError(
                    f"{path}: this server cannot change bucket counts; that needs Fluss 1.0. "
                    "Nothing was changed"
                )
        for request in requests:
            await self.on_coordinator(apis.ALTER_TABLE, request)

    async def list_tables(self, database: str) -> list[str]:
        request = pb.ListTablesRequest(database_name=database)
        return list((await self.on_any(apis.LIST_TABLES, request)).table_name)

    async def table_exists(self, path: TablePath) -> bool:
        request = pb.TableExistsRequest(table_path=path_pb(path))
        if (await self.on_any(apis.TABLE_EXISTS, request)).exists:
            return True
        if not self.pool.takes_bucket_counts:
            return False
        # See `database_exists`.
        try:
            await self.get_table_info(path)
        except (TableNotExistError, DatabaseNotExistError):
            return False
        return True

    async def get_table_info(self, path: TablePath) -> TableInfo:
        request = pb.GetTableInfoRequest(table_path=path_pb(path))
        answer = await self.on_any(apis.GET_TABLE_INFO, request, _retriable_read)
        descriptor = descriptor_from_json(answer.table_json)
        if descriptor.bucket_count is None:
            raise ClientError(f"the server described {path} without a bucket count")
        self.schemas[answer.table_id, answer.schema_id] = descriptor.schema
        return TableInfo(
            table_id=answer.table_id,
            table_path=path,
            schema_id=answer.schema_id,
            schema=descriptor.schema,
            partition_keys=descriptor.partition_keys,
            bucket_keys=descriptor.bucket_keys,
            num_buckets=descriptor.bucket_count,
            properties=descriptor.properties,
            custom_properties=descriptor.custom_properties,
            comment=descriptor.comment,
            created_time=answer.created_time,
            modified_time=answer.modified_time,
            bucket_count_epoch=answer.bucket_count_epoch,
        )

    async def get_schema(self, path: TablePath, schema_id: int | None) -> tuple[int, Schema]:
        request = pb.GetTableSchemaRequest(table_path=path_pb(path))
        if schema_id is not None:
            request.schema_id = schema_id
        try:
            answer = await self.on_any(apis.GET_TABLE_SCHEMA, request, _unless_schema_missing)
        except SchemaNotExistError:
            if not await self.table_exists(path):
                raise TableNotExistError(f"table {path} does not exist") from None
            raise
        return answer.schema_id, schema_from_json(answer.schema_json)

    async def schema_of(self, table: TableInfo, schema_id: int) -> Schema:
        """Return a schema of the table by its id, from the cache if it is there."""
        if schema_id == table.schema_id:
            return table.schema
        known = self.schemas.get((table.table_id, schema_id))
        if known is None:
            _, known = await self.get_schema(table.table_path, schema_id)
            self.schemas[table.table_id, schema_id] = known
        return known

    async def create_partition(
        self, path: TablePath, spec: Mapping[str, str], ignore_if_exists: bool
    ) -> None:
        # For a table that the coordinator missed, this call makes Fluss 0.9 stop creating any new
        # table. Another client may have created it, so it is not created again here.
        table = await self.get_table_info(path)
        if table.is_partitioned():
            await check_known(self, table)
        request = pb.CreatePartitionRequest(
            table_path=path_pb(path),
            partition_spec=_spec_pb(spec),
            ignore_if_not_exists=ignore_if_exists,
        )
        await self.on_coordinator(apis.CREATE_PARTITION, request, repeatable=ignore_if_exists)

    async def drop_partition(
        self, path: TablePath, spec: Mapping[str, str], ignore_if_not_exists: bool
    ) -> None:
        request = pb.DropPartitionRequest(
            table_path=path_pb(path),
            partition_spec=_spec_pb(spec),
            ignore_if_not_exists=ignore_if_not_exists,
        )
        await await_partition_leaders(self, path, spec)
        await self.on_coordinator(apis.DROP_PARTITION, request, repeatable=ignore_if_not_exists)

    async def list_partitions(
        self, path: TablePath, spec: Mapping[str, str] | None
    ) -> list[PartitionInfo]:
        request = pb.ListPartitionInfosRequest(table_path=path_pb(path))
        if spec:
            request.partial_partition_spec.CopyFrom(_spec_pb(spec))
        answer = await self.on_any(apis.LIST_PARTITION_INFOS, request)
        self.learn_bucket_counts(answer)
        return [partition_of(info) for info in answer.partitions_info]

    async def system_partitions(self, path: TablePath) -> list[PartitionInfo]:
        request = pb.ListPartitionInfosRequest(
            table_path=path_pb(path), include_system_partitions=True
        )
        answer = await self.on_any(apis.LIST_PARTITION_INFOS, request)
        if not answer.system_partitions_included:
            raise UnsupportedByServerError(
                f"the server does not list the system partitions of {path}: it needs Fluss 1.0"
            )
        self.learn_bucket_counts(answer)
        found = [partition_of(info) for info in answer.partitions_info]
        return [info for info in found if _is_system(info)]

    async def partition_id(self, table: TableInfo, name: str) -> int:
        # Ask by value: for a list of all partitions the server reads each of them from ZooKeeper.
        values = name.split("$")
        keys = table.partition_keys
        spec = dict(zip(keys, values, strict=True)) if len(keys) == len(values) else None
        for info in await self.list_partitions(table.table_path, spec):
            if info.partition_name == name:
                return info.partition_id
        raise PartitionNotExistError(
            f"table {table.table_path} has no partition '{name}': create it before writing to it"
        )

    async def list_offsets(
        self, table: TableInfo, partition_id: int | None, buckets: Sequence[int], spec: OffsetSpec
    ) -> dict[int, int]:
        """Send one request per leader, all at once; retry the buckets that have moved."""
        missing = dict.fromkeys(buckets)
        found: dict[int, int] = {}

        async def ask() -> None:
            by_node: dict[int, list[int]] = {}
            if self.known_bucket_count(table, partition_id) is None:
                await self.bucket_count(table, partition_id)
            for bucket in missing:
                place = TableBucket(table.table_id, bucket, partition_id=partition_id)
                by_node.setdefault(await self.locate(table, place), []).append(bucket)
            calls = (
                self._offsets_on(node, table, partition_id, on_node, spec)
                for node, on_node in by_node.items()
            )
            error: FlussError | None = None
            for answers in await asyncio.gather(*calls, return_exceptions=True):
                if isinstance(answers, FlussError):
                    error = answers
                elif isinstance(answers, BaseException):
                    raise answers
                else:
                    for bucket, answer in answers.items():
                        if isinstance(answer, FlussError):
                            error = answer
                        else:
                            found[bucket] = answer
                            missing.pop(bucket, None)
            if error is not None:
                raise error

        async def forget(error: FlussError) -> None:
            if isinstance(error, InvalidBucketRoutingError):
                self.forget_bucket_count(table, partition_id)
            if error.stale_metadata:
                table_id = table.table_id
                places = [TableBucket(table_id, b, partition_id=partition_id) for b in missing]
                for place in places:
                    self.metadata.forget(place)
                await self.check_exists(table, places[0] if places else None)

        await retrying(ask, self._deadline(), on_error=forget)
        return {bucket: found[bucket] for bucket in buckets}

    async def _offsets_on(
        self,
        node: int,
        table: TableInfo,
        partition_id: int | None,
        buckets: list[int],
        spec: OffsetSpec,
    ) -> dict[int, int | FlussError]:
        request = pb.ListOffsetsRequest(
            follower_server_id=-1,
            offset_type=OFFSET_KINDS[spec.kind],
            table_id=table.table_id,
            bucket_id=buckets,
        )
        if partition_id is not None:
            request.partition_id = partition_id
        if spec.timestamp_ms is not None:
            request.startTimestamp = spec.timestamp_ms

        def make(connection: Connection) -> list[Buffer]:
            if connection.takes_bucket_counts and counted is not None:
                request.routing_bucket_count = counted
            return [request.SerializeToString()]

        counted = self.known_bucket_count(table, partition_id)
        body = await self.on_node(node, apis.LIST_OFFSETS, make)
        answer = parse(pb.ListOffsetsResponse, body)
        found: dict[int, int | FlussError] = {}
        for part in answer.buckets_resp:
            if part.error_code:
                found[part.bucket_id] = error_for(part.error_code, part.error_message)
            elif part.HasField("offset"):
                found[part.bucket_id] = part.offset
        if found.keys() != set(buckets):
            raise CorruptDataError(
                f"{table.table_path}: server {node} was asked for the offsets of buckets "
                f"{sorted(buckets)} and answered for {sorted(found)}"
            )
        return found


def _unless_schema_missing(error: FlussError) -> bool:
    """Do not retry a missing schema: one that is requested by id does not appear later."""
    return error.retriable and not isinstance(error, SchemaNotExistError)


def _is_system(info: PartitionInfo) -> bool:
    """Return whether a partition is the server's own: users cannot give such values."""
    prefix = SYSTEM_PARTITION_PREFIX
    return any(value.startswith(prefix) for value in info.spec.values())


def _spec_pb(spec: Mapping[str, str]) -> pb.PbPartitionSpec:
    message = pb.PbPartitionSpec()
    for key, value in spec.items():
        message.partition_key_values.add(key=key, value=str(value))
    return message
