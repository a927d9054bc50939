"""The metadata of a cluster: its servers, and the leader of each bucket.

A leader is cached until a server says that it does not lead the bucket (`forget`). Callers that ask
while a request is under way are answered together by the next one, so many stale buckets at once
cost two requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from fluss_client.config import Config
from fluss_client.errors import (
    ClosedError,
    ConnectError,
    FlussError,
    LeaderNotAvailableError,
    NetworkError,
    TimedOutError,
)
from fluss_client.model.cluster import ServerNode
from fluss_client.model.table import TableBucket, TablePath
from fluss_client.net.connection import Address, Connection
from fluss_client.net.pool import ConnectionPool
from fluss_client.wire import fluss_pb2 as pb
from fluss_client.wire.apis import GET_METADATA

log = logging.getLogger(__name__)
COORDINATOR = "CoordinatorServer"
TABLET_SERVER = "TabletServer"
NO_LEADER = -1
COUNTS_KEPT_MAX = 200_000
"""Partitions whose bucket count is kept; above that, counts are asked for again."""
NO_ANSWER = (ConnectError, NetworkError, TimedOutError)

Question = tuple[TablePath, int | None]
"""A table and a partition id, or None for a table without partitions."""


class Metadata:
    """The cached metadata of one client."""

    def __init__(self, bootstrap: list[Address], pool: ConnectionPool, config: Config) -> None:
        self._bootstrap = bootstrap
        self._pool = pool
        self._config = config
        self.coordinator: ServerNode | None = None
        self.tablets: dict[int, ServerNode] = {}
        self._leaders: dict[TableBucket, int] = {}
        self._bucket_counts: dict[int, int] = {}
        """The bucket count of each partition that a server has described. A partition keeps its
        count and ids are not reused, so entries are removed only after error 74."""
        self._waiting: dict[Question, asyncio.Future[None]] = {}
        self._worker: asyncio.Task[None] | None = None
        self._closed = False

    def nodes(self) -> list[ServerNode]:
        """Return every known server, the coordinator first."""
        head = [] if self.coordinator is None else [self.coordinator]
        return head + [self.tablets[i] for i in sorted(self.tablets)]

    def addresses(self) -> list[Address]:
        """Return the addresses to ask: the known servers, then the bootstrap addresses."""
        known = [Address(node.host, node.port) for node in self.nodes()]
        return list(dict.fromkeys(known + self._bootstrap))

    def tablet_address(self, node_id: int) -> Address:
        """Return the address of a tablet server.

        Raises:
            LeaderNotAvailableError: The server is not in the cluster any more.
        """
        node = self.tablets.get(node_id)
        if node is None:
            raise LeaderNotAvailableError(f"tablet server {node_id} is not in the cluster")
        return Address(node.host, node.port)

    async def any_connection(self) -> Connection:
        """Return a connection to any server that answers."""
        return await self._pool.any_of(self.addresses())

    async def refresh_servers(self) -> None:
        """Ask the cluster for its servers."""
        await self._ask([])

    def leader(self, bucket: TableBucket) -> int | None:
        """Return the leader of a bucket if it is cached."""
        return self._leaders.get(bucket)

    def forget(self, bucket: TableBucket) -> None:
        """Remove a bucket from the cache: a server said that it does not lead it."""
        self._leaders.pop(bucket, None)

    def forget_node(self, node_id: int) -> None:
        """Remove all buckets of a server from the cache: it cannot be reached."""
        for bucket in [b for b, leader in self._leaders.items() if leader == node_id]:
            del self._leaders[bucket]

    def bucket_count(self, partition_id: int) -> int | None:
        """Return the bucket count of a partition if it is known."""
        return self._bucket_counts.get(partition_id)

    def set_bucket_count(self, partition_id: int, count: int) -> None:
        """Keep the bucket count of a partition."""
        if len(self._bucket_counts) >= COUNTS_KEPT_MAX:
            self._bucket_counts.clear()
        self._bucket_counts[partition_id] = count

    def forget_bucket_count(self, partition_id: int) -> None:
        """Remove a bucket count: a server said that it is another one."""
        self._bucket_counts.pop(partition_id, None)

    async def find_leader(self, path: TablePath, bucket: TableBucket) -> int:
        """Return the leader of a bucket; ask the cluster if it is not cached.

        Raises:
            LeaderNotAvailableError: The bucket has no leader at this moment.
        """
        known = self._leaders.get(bucket)
        if known is None:
            await self._join(path, bucket.partition_id)
            known = self._leaders.get(bucket)
        if known is None:
            raise LeaderNotAvailableError(f"{path}: {bucket} has no leader yet")
        return known

    async def _join(self, path: TablePath, partition_id: int | None) -> None:
        if self._closed:
            # A scanner that was left open may still ask, on a loop that is ending.
            raise ClosedError("the connection was closed; make a new FlussConnection")
        question = (path, partition_id)
        future = self._waiting.get(question)
        if future is None:
            future = asyncio.get_running_loop().create_future()
            future.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._waiting[question] = future
        if self._worker is None or self._worker.done():
            self._worker = asyncio.ensure_future(self._work())
        await asyncio.shield(future)

    async def _work(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, {}
            try:
                await self._ask(batch)
            except FlussError as error:
                # One missing table fails the whole request, so each is asked for alone. But if no
                # server answered, the error is the answer to all.
                if len(batch) == 1 or isinstance(error, NO_ANSWER):
                    _settle(batch.values(), error)
                    continue
                await asyncio.gather(*(self._ask_alone(*asked) for asked in batch.items()))
            else:
                _settle(batch.values(), None)

    async def _ask_alone(self, question: Question, future: asyncio.Future[None]) -> None:
        try:
            await self._ask([question])
        except FlussError as error:
            _settle([future], error)
        else:
            _settle([future], None)

    async def _ask(self, questions: Iterable[Question]) -> None:
        request = pb.MetadataRequest()
        for path in dict.fromkeys(path for path, _ in questions):
            request.table_path.add(database_name=path.database_name, table_name=path.table_name)
        request.partitions_id.extend(pid for _, pid in questions if pid is not None)
        connection = await self.any_connection()
        answer = await connection.call(GET_METADATA, request)
        self._learn(answer)

    def _learn(self, answer: pb.MetadataResponse) -> None:
        if answer.HasField("coordinator_server"):
            self.coordinator = _node(answer.coordinator_server, COORDINATOR)
        self.tablets = {n.node_id: _node(n, TABLET_SERVER) for n in answer.tablet_servers}
        for table in answer.table_metadata:
            for bucket in table.bucket_metadata:
                self._set_leader(TableBucket(table.table_id, bucket.bucket_id), bucket)
        for partition in answer.partition_metadata:
            if partition.HasField("bucket_count"):
                self.set_bucket_count(partition.partition_id, partition.bucket_count)
            for bucket in partition.bucket_metadata:
                place = TableBucket(
                    partition.table_id, bucket.bucket_id, partition_id=partition.partition_id
                )
                self._set_leader(place, bucket)

    def _set_leader(self, place: TableBucket, bucket: pb.PbBucketMetadata) -> None:
        leader = bucket.leader_id if bucket.HasField("leader_id") else NO_LEADER
        if leader == NO_LEADER or leader not in self.tablets:
            self._leaders.pop(place, None)
        else:
            self._leaders[place] = leader

    async def close(self) -> None:
        """Cancel the requests under way and all that wait for them."""
        self._closed = True
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
        for future in self._waiting.values():
            future.cancel()


def _settle(futures: Iterable[asyncio.Future[None]], error: FlussError | None) -> None:
    for future in futures:
        if not future.done():
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)


def _node(node: pb.PbServerNode, kind: str) -> ServerNode:
    return ServerNode(node.node_id, node.host, node.port, kind)
