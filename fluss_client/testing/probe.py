"""Asking a server whether it serves: two requests on a blocking socket, with a timeout.

It depends on the message definitions alone, so that a cluster can be started and judged without
the client that will be tested against it.
"""

from __future__ import annotations

import socket
import struct
import time

from google.protobuf.message import Message

from fluss_client.wire import fluss_pb2 as pb

_API_VERSIONS = 1000
_GET_METADATA = 1012
_SUCCESS = 0
_ANSWER_BYTES_MAX = 64 << 20
HOST = "127.0.0.1"


class NotServingError(Exception):
    """The server did not give a proper answer in time."""


def ask_metadata(port: int, timeout_s: float) -> pb.MetadataResponse:
    """The cluster's metadata as the server at `port` sees it; `NotServingError` if it does not."""
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
    """Whether the ZooKeeper at `port` answers its status word."""
    try:
        with socket.create_connection((HOST, port), timeout=timeout_s) as connection:
            connection.sendall(b"srvr")
            return b"Mode:" in _read_to_end(connection)
    except OSError:
        return False


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
