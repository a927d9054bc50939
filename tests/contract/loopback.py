"""Servers on loopback that are no Fluss, or one that answers a few calls and then fails."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fluss_client.wire import apis
from fluss_client.wire import fluss_pb2 as pb

Handler = Callable[[socket.socket], None]
_HEADER = struct.Struct(">hhi")
_TABLE = {
    "version": 1,
    "schema": {
        "version": 1,
        "columns": [{"name": "id", "data_type": {"type": "INTEGER", "nullable": False}, "id": 0}],
        "highest_field_id": 0,
    },
    "partition_key": [],
    "bucket_key": [],
    "bucket_count": 1,
    "properties": {},
    "custom_properties": {},
}


@contextmanager
def serving(handler: Handler) -> Iterator[str]:
    """Hand every connection to `handler` on a thread of its own; gives the address."""
    listener = socket.create_server(("127.0.0.1", 0))
    open_sockets: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def work(connection: socket.socket) -> None:
        try:
            handler(connection)
        except OSError:
            pass  # the client has gone, or the test is over
        finally:
            connection.close()

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            open_sockets.append(connection)
            threads.append(threading.Thread(target=work, args=(connection,), daemon=True))
            threads[-1].start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield "{}:{}".format(*listener.getsockname())
    finally:
        # A blocked accept or recv returns when its socket is shut down.
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join()
        for connection in open_sockets:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for thread in threads:
            thread.join()


def closes(connection: socket.socket) -> None:
    """Accepts, and ends the line."""


def is_silent(connection: socket.socket) -> None:
    """Takes everything and says nothing."""
    while connection.recv(65536):
        pass


def speaks_http(connection: socket.socket) -> None:
    """Answers as a web server does to what it does not know."""
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    is_silent(connection)


def says_nonsense(connection: socket.socket) -> None:
    """Whole frames with nothing in them that could be read."""
    connection.recv(65536)
    connection.sendall(struct.pack(">ib", 9, 0) + bytes(4) + b"\xff" * 4)
    is_silent(connection)


class OneTable:
    """A Fluss server with one table, `db.t`, that fails at one call in the way it is told to."""

    def __init__(self, fails_at: apis.Api[object, object], how: Handler) -> None:
        self._fails_at = fails_at.key
        self._how = how
        self.asked = 0
        """How often the failing call was made."""
        self._address = ("", 0)

    def __call__(self, connection: socket.socket) -> None:
        self._address = connection.getsockname()
        while True:
            head = _exactly(connection, 4)
            body = _exactly(connection, struct.unpack(">i", head)[0])
            key, _, request_id = _HEADER.unpack_from(body)
            if key == self._fails_at:
                self.asked += 1
                self._how(connection)
                return
            answer = self._answer(key).SerializeToString()
            connection.sendall(struct.pack(">ibi", len(answer) + 5, 0, request_id) + answer)

    def _answer(self, key: int) -> pb.ApiVersionsResponse:
        host, port = self._address
        if key == apis.API_VERSIONS.key:
            versions = pb.ApiVersionsResponse()
            for known in range(1000, 1062):
                versions.api_versions.add(api_key=known, min_version=0, max_version=0)
            return versions
        if key == apis.GET_METADATA.key:
            metadata = pb.MetadataResponse()
            metadata.coordinator_server.CopyFrom(pb.PbServerNode(node_id=0, host=host, port=port))
            metadata.tablet_servers.add(node_id=1, host=host, port=port)
            table = metadata.table_metadata.add(
                table_id=7, schema_id=1, table_json=b"{}", created_time=1, modified_time=1
            )
            table.table_path.CopyFrom(pb.PbTablePath(database_name="db", table_name="t"))
            table.bucket_metadata.add(bucket_id=0, leader_id=1)
            return metadata  # type: ignore[return-value]
        if key == apis.GET_TABLE_INFO.key:
            return pb.GetTableInfoResponse(  # type: ignore[return-value]
                table_id=7,
                schema_id=1,
                table_json=json.dumps(_TABLE).encode(),
                created_time=1,
                modified_time=1,
            )
        if key == apis.INIT_WRITER.key:
            return pb.InitWriterResponse(writer_id=1)  # type: ignore[return-value]
        raise OSError(f"a call that no test makes: {key}")


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise OSError("the client has gone")
        data += part
    return data
