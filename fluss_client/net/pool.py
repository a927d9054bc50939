"""The connections to each server; concurrent callers share the one that is being opened.

A server handles the requests of one connection one after the other. Connection 0 carries
everything; the others carry batches of writers only, so that a server works on several buckets at
once (`next_for_writes`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter

from fluss_client.config import Config
from fluss_client.errors import (
    AuthenticationError,
    ClosedError,
    ConfigError,
    ConnectError,
    FlussError,
    ForkedError,
)
from fluss_client.net.connection import Address, Connection
from fluss_client.net.metrics import Metrics
from fluss_client.wire.apis import SCAN_KV


def parse_addresses(bootstrap: str) -> list[Address]:
    """Parse `host:port[,host:port]`, with IPv6 hosts in brackets."""
    addresses = []
    for part in bootstrap.split(","):
        host, colon, port = part.strip().rpartition(":")
        bare = ":" in host and not (host.startswith("[") and host.endswith("]"))
        if not colon or not host or bare or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ConfigError(
                f"'{part.strip()}' in bootstrap.servers is no address: write host:port, several "
                "with commas between them, or embedded:PATH for the embedded engine"
            )
        addresses.append(Address(host.strip("[]"), int(port)))
    return addresses


Place = tuple[Address, int]
"""A server, and the number of the connection to it."""


class ConnectionPool:
    """The connections of one client on one event loop."""

    def __init__(self, config: Config, metrics: Metrics) -> None:
        self._config = config
        self._metrics = metrics
        self._open: dict[Place, Connection] = {}
        self._opening: dict[Place, asyncio.Task[Connection]] = {}
        self._writing: Counter[int] = Counter()
        """How many buckets of writers were given a connection, by the id of their server."""
        self._closed = False
        self.takes_bucket_counts = False
        """Whether any server so far knows bucket counts per partition (Fluss 1.0)."""
        self.serves_scan_kv = False
        """Whether any server so far serves SCAN_KV."""
        self._pid = os.getpid()
        self._loop = asyncio.get_running_loop()

    def ready(self, address: Address, number: int = 0) -> Connection | None:
        """Return the connection to a server if it is open."""
        if self._pid != os.getpid():
            # The child shares the parent's sockets: its bytes would mix with the parent's.
            raise ForkedError(
                f"this connection was made in process {self._pid} before a fork and cannot be "
                f"used in process {os.getpid()}: make a new connection after the fork"
            )
        if self._loop is not asyncio.get_running_loop():
            # Answers would arrive on the other loop, or never if that loop has ended.
            raise ClosedError(
                "this connection belongs to another event loop: make a new FlussConnection on "
                "this one, or use fluss_client, whose connections serve any loop"
            )
        connection = self._open.get((address, number))
        return connection if connection is not None and not connection.closed else None

    async def get(self, address: Address, number: int = 0) -> Connection:
        """Return the connection to a server; open it if needed.

        Callers share the task that opens it, so cancelling one caller does not affect the others.
        """
        if self._closed:
            raise ClosedError("the connection was closed; make a new FlussConnection")
        connection = self.ready(address, number)
        if connection is not None:
            return connection
        place = (address, number)
        task = self._opening.get(place)
        if task is None:
            task = asyncio.ensure_future(self._connect(place))
            self._opening[place] = task
            task.add_done_callback(lambda done: self._opened(place, done))
        return await asyncio.shield(task)

    async def any_of(self, addresses: list[Address]) -> Connection:
        """Return a connection to the first server that answers.

        Raises:
            ConnectError: No server answered; the message names the reason of each.
        """
        for address in addresses:
            connection = self.ready(address)
            if connection is not None:
                return connection
        failures: list[FlussError] = []
        for address in addresses:
            try:
                return await self.get(address)
            except (AuthenticationError, ClosedError, ConfigError):
                raise
            except FlussError as error:
                failures.append(error)
        if not failures:
            raise ConnectError("no address of a server is known: check bootstrap.servers")
        if len(failures) == 1 and not failures[0].retriable:
            raise failures[0]
        reasons = "; ".join(dict.fromkeys(str(error) for error in failures))
        raise ConnectError(
            f"no server could be reached: {reasons}. Is the cluster up, and is bootstrap.servers "
            "its address?"
        ) from failures[-1]

    def next_for_writes(self, node: int) -> int:
        """Return which connection takes the batches of one more bucket to a server.

        The caller keeps the number: batches of a bucket that took different connections could
        arrive in another order.
        """
        number = self._writing[node] % self._config.writer_connections_per_server
        self._writing[node] += 1
        return number

    async def _connect(self, place: Place) -> Connection:
        connection = await Connection.open(place[0], self._config, self._metrics)
        if self._closed:
            connection.close()
            raise ClosedError("the connection was closed while it was being opened")
        self._open[place] = connection
        self.takes_bucket_counts = self.takes_bucket_counts or connection.takes_bucket_counts
        self.serves_scan_kv = self.serves_scan_kv or connection.supports(SCAN_KV)
        return connection

    def _opened(self, place: Place, task: asyncio.Task[Connection]) -> None:
        self._opening.pop(place, None)
        if not task.cancelled():
            task.exception()

    def traffic(self) -> tuple[int, int]:
        """Return bytes sent and received on the open connections."""
        pairs = [connection.traffic for connection in self._open.values()]
        return sum(p[0] for p in pairs), sum(p[1] for p in pairs)

    async def close(self) -> None:
        """Close every connection; pending requests fail."""
        self._closed = True
        for task in list(self._opening.values()):
            task.cancel()
        await asyncio.gather(*self._opening.values(), return_exceptions=True)
        self.close_sockets()

    def close_sockets(self) -> None:
        """Close every open connection at once and let no new one be opened."""
        self._closed = True
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    def abandon(self) -> None:
        """Close every connection soon; for a client that was garbage collected, on any thread."""
        if self._pid != os.getpid():
            # After a fork the sockets and the selector belong to the parent.
            return
        if self._loop.is_closed():
            self.close_sockets()
        else:
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                self._loop.call_soon_threadsafe(self.close_sockets)
