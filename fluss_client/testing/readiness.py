"""Waits until servers are ready, and says why if they are not.

A server is asked with two requests on a blocking socket. This uses the message definitions only and
not the client, so that a fault of the client cannot make a cluster look broken.
"""

from __future__ import annotations

import http.client
import socket
import struct
import time
from collections import deque
from collections.abc import Collection
from pathlib import Path

from google.protobuf.message import Message

from fluss_client.testing.errors import ServerStartError
from fluss_client.testing.server_config import COORDINATOR, ZOOKEEPER, Layout, tablet_name
from fluss_client.testing.services import HOST, LISTENER, SERVICES
from fluss_client.testing.state import ClusterState
from fluss_client.wire import fluss_pb2 as pb

START_DEADLINE_S = 180.0
LOG_TAIL_LINES = 20
_ASK_TIMEOUT_S = 5.0
_POLL_S = 0.1
_API_VERSIONS = 1000
_GET_METADATA = 1012
_SUCCESS = 0
_ANSWER_BYTES_MAX = 64 << 20


def serves(state: ClusterState, name: str, timeout_s: float = _ASK_TIMEOUT_S) -> bool:
    """Return whether server `name` is ready.

    A coordinator or tablet server is ready when its metadata lists every running server with its
    port. Without a running coordinator no metadata is complete, so any answer counts.
    """
    ports = state.servers[name].ports
    if name == ZOOKEEPER:
        return zookeeper_serves(ports["CLIENT"], timeout_s)
    if name in SERVICES:
        return http_serves(ports[LISTENER], timeout_s)
    try:
        metadata = ask_metadata(ports["FLUSS"], timeout_s)
    except NotServingError:
        return False
    if not state.servers[COORDINATOR].is_running:
        return True
    listed = {(tablet_name(node.node_id), node.port) for node in metadata.tablet_servers}
    if metadata.HasField("coordinator_server"):
        listed.add((COORDINATOR, metadata.coordinator_server.port))
    return listed >= {
        (other, server.ports["FLUSS"])
        for other, server in state.servers.items()
        if "FLUSS" in server.ports and server.is_running
    }


def all_serve(state: ClusterState, timeout_s: float = _ASK_TIMEOUT_S) -> bool:
    """Return whether every server of the cluster runs and is ready."""
    return all(server.is_running for server in state.servers.values()) and all(
        serves(state, name, timeout_s) for name in state.servers
    )


def wait_until_serving(layout: Layout, state: ClusterState, names: Collection[str]) -> None:
    """Wait until all of `names` are ready.

    Raises:
        ServerStartError: A server ended, or was not ready within `START_DEADLINE_S`.
    """
    waiting = list(names)
    give_up_at = time.monotonic() + START_DEADLINE_S
    while True:
        for name in names:
            if not state.servers[name].is_running:
                raise start_error(layout, name, "ended while the cluster was starting")
        waiting = [name for name in waiting if not serves(state, name)]
        if not waiting:
            return
        if time.monotonic() > give_up_at:
            raise start_error(layout, waiting[0], f"was not ready after {START_DEADLINE_S:.0f} s")
        time.sleep(_POLL_S)


def start_error(layout: Layout, name: str, what: str) -> ServerStartError:
    """Return the error for server `name`, with the last lines of its log."""
    # A server that fails before it logs prints to its output; the log may be of an earlier run.
    printed = log_tail(layout.output(name), LOG_TAIL_LINES)
    logged = log_tail(layout.log(name), LOG_TAIL_LINES)
    return ServerStartError(
        f"{name} {what}: see the last lines above, or all of them in {layout.log(name)}",
        server=name,
        log_tail=(*logged, *printed),
    )


def log_tail(path: Path, lines_max: int) -> tuple[str, ...]:
    """Return the last lines of a log; none if there is no log."""
    try:
        with path.open(errors="replace") as file:
            return tuple(line.rstrip("\n") for line in deque(file, maxlen=lines_max))
    except FileNotFoundError:
        return ()


class NotServingError(Exception):
    """The server did not give a valid answer in time."""


def ask_metadata(port: int, timeout_s: float) -> pb.MetadataResponse:
    """Return the cluster's metadata as the server at `port` knows it.

    Raises:
        NotServingError: The server did not give a valid answer within `timeout_s`.
    """
    try:
        with socket.create_connection((HOST, port), timeout=timeout_s) as connection:
            give_up_at = time.monotonic() + timeout_s
            hello = pb.ApiVersionsRequest(client_software_name="probe", client_software_version="1")
            _call(connection, _API_VERSIONS, 0, hello, give_up_at)
            body = _call(connection, _GET_METADATA, 1, pb.MetadataRequest(), give_up_at)
            return pb.MetadataResponse.FromString(body)
    except (OSError, ValueError, struct.error) as error:
        raise NotServingError(f"{HOST}:{port}: {error or type(error).__name__}") from error


def zookeeper_serves(port: int, timeout_s: float) -> bool:
    """Return whether the ZooKeeper at `port` answers its `srvr` command."""
    try:
        with socket.create_connection((HOST, port), timeout=timeout_s) as connection:
            connection.sendall(b"srvr")
            return b"Mode:" in _read_to_end(connection)
    except OSError:
        return False


def http_serves(port: int, timeout_s: float) -> bool:
    """Return whether the server at `port` answers requests of HTTP, with any status."""
    connection = http.client.HTTPConnection(HOST, port, timeout=timeout_s)
    try:
        connection.request("GET", "/v1/config")
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return True


def _read_to_end(connection: socket.socket) -> bytes:
    content = b""
    while chunk := connection.recv(4096):
        content += chunk
    return content


def _call(
    connection: socket.socket, api_key: int, request_id: int, request: Message, give_up_at: float
) -> bytes:
    body = request.SerializeToString()
    connection.sendall(struct.pack(">ihhi", 8 + len(body), api_key, 0, request_id) + body)
    (length,) = struct.unpack(">i", _read_exactly(connection, 4, give_up_at))
    if not 5 <= length <= _ANSWER_BYTES_MAX:
        raise ValueError(f"an answer of {length} bytes")
    frame = _read_exactly(connection, length, give_up_at)
    kind, answered_id = struct.unpack_from(">bi", frame)
    if kind != _SUCCESS or answered_id != request_id:
        raise ValueError(f"an answer of type {kind} to request {answered_id}")
    return frame[5:]


def _read_exactly(connection: socket.socket, size: int, give_up_at: float) -> bytes:
    content = bytearray()
    while len(content) < size:
        connection.settimeout(max(give_up_at - time.monotonic(), 0.001))
        chunk = connection.recv(size - len(content))
        if not chunk:
            raise ValueError("the server closed the connection")
        content += chunk
    return bytes(content)
