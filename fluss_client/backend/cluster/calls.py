"""Sends a call to the right server and retries it where that is safe.

`Calls` is the base class of the cluster backend. A call that reads is retried within the request
timeout. A call that changes something is retried only if the request was never sent, or if the
caller says that doing it twice is harmless.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from google.protobuf.message import Message

from fluss_client.config import Config
from fluss_client.errors import (
    ConnectError,
    FlussError,
    LeaderNotAvailableError,
    NotCoordinatorLeaderError,
    PartitionNotExistError,
    TableNotExistError,
    UnknownServerError,
)
from fluss_client.model.schema import Schema
from fluss_client.model.table import PartitionInfo, TableBucket, TableInfo, TablePath
from fluss_client.net.connection import Address, Connection
from fluss_client.net.metadata import Metadata
from fluss_client.net.metrics import Metrics, TraceHook
from fluss_client.net.pool import ConnectionPool
from fluss_client.net.retry import Backoff, Deadline, retrying
from fluss_client.wire import fluss_pb2 as pb
from fluss_client.wire.apis import LIST_PARTITION_INFOS, TABLE_EXISTS, Api
from fluss_client.wire.messages import Buffer

ResponseT = TypeVar("ResponseT", bound=Message)


class Calls:
    """The connections and metadata of one client of one cluster."""

    def __init__(self, bootstrap: list[Address], config: Config) -> None:
        self.config = config
        self._backoff = Backoff.of(config)
        self.net_metrics = Metrics()
        self.pool = ConnectionPool(config, self.net_metrics)
        self.metadata = Metadata(bootstrap, self.pool, config)
        self.schemas: dict[tuple[int, int], Schema] = {}
        self._partition_asks: dict[TablePath, asyncio.Task[pb.ListPartitionInfosResponse]] = {}
        # The event loop refers to the sockets, and the sockets do not refer to this object. So a
        # client that nobody uses is garbage collected, and its finalizer closes the sockets. At
        # interpreter exit they are closed with the process.
        weakref.finalize(self, self.pool.abandon).atexit = False

    def _deadline(self) -> Deadline:
        return Deadline(self.config.request_timeout_ms, self._backoff)

    async def _learn_from(self, error: FlussError) -> None:
        self.net_metrics.count("retries")
        if error.stale_metadata:
            try:
                await self.metadata.refresh_servers()
            except FlussError:
                # The call is retried anyway, and its own error says what is wrong.
                self.net_metrics.count("metadata.refresh_failures")

    async def on_any(
        self,
        api: Api[Any, ResponseT],
        request: Message,
        retriable: Callable[[FlussError], bool] = lambda error: error.retriable,
    ) -> ResponseT:
        """Send a call to any server; retry until one answers or the request timeout has passed."""

        async def ask() -> ResponseT:
            connection = await self.metadata.any_connection()
            return await connection.call(api, request)

        return await retrying(ask, self._deadline(), on_error=self._learn_from, retriable=retriable)

    async def on_coordinator(
        self, api: Api[Any, ResponseT], request: Message, *, repeatable: bool = False
    ) -> ResponseT:
        """Send a call to the coordinator.

        Args:
            api: The call.
            request: Its message.
            repeatable: Doing it twice is harmless. Otherwise a request that may have arrived is
                not sent again.

        Returns:
            The answer.
        """

        async def ask() -> ResponseT:
            connection = await self.coordinator_connection()
            return await connection.call(api, request)

        def may_repeat(error: FlussError) -> bool:
            if repeatable:
                return error.retriable
            unsent = (ConnectError, NotCoordinatorLeaderError, LeaderNotAvailableError)
            return isinstance(error, unsent)

        return await retrying(
            ask, self._deadline(), on_error=self._learn_from, retriable=may_repeat
        )

    async def coordinator_connection(self) -> Connection:
        """Return the connection to the coordinator.

        Raises:
            LeaderNotAvailableError: The cluster has no coordinator at this moment.
        """
        if self.metadata.coordinator is None:
            await self.metadata.refresh_servers()
        node = self.metadata.coordinator
        if node is None:
            raise LeaderNotAvailableError(
                "the cluster has no coordinator right now: check that the coordinator is up"
            )
        return await self.pool.get(Address(node.host, node.port))

    async def on_any_tablet(self, api: Api[Any, ResponseT], request: Message) -> ResponseT:
        """Send a call to any tablet server; retry within the request timeout."""

        async def ask() -> ResponseT:
            if not self.metadata.tablets:
                await self.metadata.refresh_servers()
            nodes = self.metadata.tablets.values()
            connection = await self.pool.any_of([Address(n.host, n.port) for n in nodes])
            return await connection.call(api, request)

        return await retrying(ask, self._deadline(), on_error=self._learn_from)

    async def on_node(
        self,
        node: int,
        api: Api[Any, Any],
        make: Callable[[Connection], Sequence[Buffer]],
        timeout_ms: float | None = None,
        connection_number: int = 0,
    ) -> memoryview:
        """Send a call to one tablet server, once. If its connection breaks, forget its buckets.

        Args:
            node: The id of the server.
            api: The call.
            make: Makes the message for what this server understands.
            timeout_ms: How long to wait; the request timeout if None.
            connection_number: Which of the connections to the server carries the call.
        """
        try:
            address = self.metadata.tablet_address(node)
            connection = await self.pool.get(address, connection_number)
            return await connection.request(api, make(connection), timeout_ms)
        except FlussError as error:
            if error.stale_metadata:
                self.metadata.forget_node(node)
            raise

    def known_bucket_count(self, table: TableInfo, partition_id: int | None) -> int | None:
        if partition_id is None or not self.pool.takes_bucket_counts:
            # Servers before 1.0 cannot change the bucket count of a table.
            return table.num_buckets
        return self.metadata.bucket_count(partition_id)

    async def bucket_count(self, table: TableInfo, partition_id: int | None) -> int:
        """List the partitions, which the server reads from where they are stored, not a cache."""

        async def ask() -> int:
            known = self.known_bucket_count(table, partition_id)
            if known is not None or partition_id is None:
                return table.num_buckets if known is None else known
            for info in (await self._list_of(table)).partitions_info:
                if info.partition_id == partition_id:
                    # Without a count, the table was not rescaled when the server answered.
                    partition = partition_of(info)
                    count = table.bucket_count_of(partition)
                    self.metadata.set_bucket_count(partition_id, count)
                    return count
            raise _no_partition(table, partition_id)

        return await retrying(ask, self._deadline())

    def forget_bucket_count(self, table: TableInfo, partition_id: int | None) -> None:
        if partition_id is not None:
            self.metadata.forget_bucket_count(partition_id)

    def learn_bucket_counts(self, answer: pb.ListPartitionInfosResponse) -> None:
        """Keep the bucket counts of listed partitions."""
        for info in answer.partitions_info:
            if info.HasField("bucket_count"):
                self.metadata.set_bucket_count(info.partition_id, info.bucket_count)

    async def locate(self, table: TableInfo, bucket: TableBucket) -> int:
        """Return the leader of a bucket; wait for one within the request timeout."""
        known = self.metadata.leader(bucket)
        if known is not None:
            return known

        async def ask() -> int:
            try:
                return await self.metadata.find_leader(table.table_path, bucket)
            except UnknownServerError as error:
                await self.check_exists(table, bucket)
                raise LeaderNotAvailableError(
                    f"{table.table_path}: {bucket} is not known to the cluster yet"
                ) from error

        try:
            return await retrying(ask, self._deadline())
        except LeaderNotAvailableError:
            await self.check_exists(table, bucket)
            raise

    async def forget_location(self, table: TableInfo, bucket: TableBucket) -> None:
        """Make the next `locate` of this bucket ask the cluster."""
        self.metadata.forget(bucket)

    async def check_exists(self, table: TableInfo, bucket: TableBucket | None = None) -> None:
        """Raise a typed error if the table, or the partition of the bucket, was dropped."""
        shared = table.table_path in self._partition_asks
        try:
            await self._check_exists(table, bucket)
        except (TableNotExistError, PartitionNotExistError):
            if not shared:
                raise
            # The shared request may have begun before the table was created: ask once more.
            await self._check_exists(table, bucket)

    async def _check_exists(self, table: TableInfo, bucket: TableBucket | None) -> None:
        listed = await self._list_of(table)
        partitions = {info.partition_id for info in listed.partitions_info}
        missing = bucket.partition_id not in partitions if bucket is not None else False
        if bucket is not None and table.is_partitioned() and missing:
            raise _no_partition(table, bucket.partition_id)

    async def _list_of(self, table: TableInfo) -> pb.ListPartitionInfosResponse:
        """Return the partitions of a table that exists; concurrent callers share one request."""
        path = table.table_path
        task = self._partition_asks.get(path)
        if task is None:
            task = self._partition_asks[path] = asyncio.ensure_future(self._ask_partitions(table))

            def done(task: asyncio.Task[pb.ListPartitionInfosResponse]) -> None:
                del self._partition_asks[path]
                _ = task.cancelled() or task.exception()

            task.add_done_callback(done)
        return await asyncio.shield(task)

    async def _ask_partitions(self, table: TableInfo) -> pb.ListPartitionInfosResponse:
        path = table.table_path
        answer = await self.on_any(TABLE_EXISTS, pb.TableExistsRequest(table_path=path_pb(path)))
        if not answer.exists:
            raise TableNotExistError(f"table {path} does not exist (any more)")
        if not table.is_partitioned():
            return pb.ListPartitionInfosResponse()
        request = pb.ListPartitionInfosRequest(table_path=path_pb(path))
        if table.takes_late_rows:
            # Its buckets are read like those of others; servers before 1.0 ignore the field.
            request.include_system_partitions = True
        found = await self.on_any(LIST_PARTITION_INFOS, request)
        self.learn_bucket_counts(found)
        return found

    def metrics(self) -> dict[str, float]:
        """Return counters of requests, retries and bytes."""
        figures = self.net_metrics.snapshot()
        sent, received = self.pool.traffic()
        figures["bytes.sent"] = figures.get("bytes.sent", 0) + sent
        figures["bytes.received"] = figures.get("bytes.received", 0) + received
        return figures

    async def close(self) -> None:
        """Close every connection."""
        await self.metadata.close()
        await self.pool.close()

    def close_sockets(self) -> None:
        """Close every socket at once; unlike `close`, this needs no running loop."""
        self.pool.close_sockets()

    def set_trace_hook(self, hook: TraceHook | None) -> None:
        """Call `hook` after every request; None removes it."""
        self.net_metrics.trace = hook


def partition_of(info: pb.PbPartitionInfo) -> PartitionInfo:
    """Return a listed partition; its bucket count is None if the server does not say it."""
    values = {kv.key: kv.value for kv in info.partition_spec.partition_key_values}
    count = info.bucket_count if info.HasField("bucket_count") else None
    return PartitionInfo(info.partition_id, "$".join(values.values()), values, count)


def _no_partition(table: TableInfo, partition_id: int | None) -> PartitionNotExistError:
    return PartitionNotExistError(
        f"partition {partition_id} of table {table.table_path} does not exist (any more)"
    )


def path_pb(path: TablePath) -> pb.PbTablePath:
    """Return a table path as a message."""
    return pb.PbTablePath(database_name=path.database_name, table_name=path.table_name)
