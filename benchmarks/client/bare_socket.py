"""One blocking connection to the server that leads a table's first bucket."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from types import TracebackType
from typing import Any

import pyarrow as pa

import fluss_client as fluss
from fluss_client.backend.contract import Backend
from fluss_client.runtime import runtime
from fluss_client.wire import apis
from fluss_client.wire.rpc import encode_request

IN_FLIGHT = 5


class BareSocket:
    """Sends requests and receives answers, and nothing else."""

    def __init__(self, connection: fluss.FlussConnection, path: fluss.TablePath) -> None:
        backend: Backend = connection.backend
        self.info = connection.get_table(path).result().get_table_info()
        node = runtime().call(backend.locate(self.info, fluss.TableBucket(self.info.table_id, 0)))
        nodes = runtime().call(backend.get_server_nodes())
        address = next(n for n in nodes if n.id == node and n.server_type == "TabletServer")
        self._socket = socket.create_connection((address.host, address.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._next = 0

    def __enter__(self) -> BareSocket:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def ask(self, api: apis.Api[Any, Any], parts: list[Any]) -> memoryview:
        """Send one request and wait for the body of its answer."""
        self._send(api, parts)
        return self._receive()

    def pump(self, api: apis.Api[Any, Any], requests: Iterable[list[Any]]) -> None:
        """Send requests, five in flight, until all are answered."""
        waiting = 0
        for parts in requests:
            self._send(api, parts)
            waiting += 1
            if waiting >= IN_FLIGHT:
                self._receive()
                waiting -= 1
        for _ in range(waiting):
            self._receive()

    def _send(self, api: apis.Api[Any, Any], parts: list[Any]) -> None:
        for part in encode_request(api.key, 0, self._next, parts):
            self._socket.sendall(part)
        self._next += 1

    def _receive(self) -> memoryview:
        (length,) = struct.unpack(">i", self._exactly(4))
        frame = self._exactly(length)
        if frame[0] != 0:
            raise SystemExit(f"the server refused a request: {bytes(frame[:200])!r}")
        return frame[5:]

    def _exactly(self, count: int) -> memoryview:
        buffer = memoryview(pa.allocate_buffer(count)).cast("B")
        filled = 0
        while filled < count:
            got = self._socket.recv_into(buffer[filled:])
            if not got:
                raise SystemExit("the server closed the connection")
            filled += got
        return buffer
