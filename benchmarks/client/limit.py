"""The limit: pre-encoded batches on a bare socket, and a bare fetch with pyarrow's decoding.

Nothing of the client's own machinery is used but the encoders of single messages, so this is what
one Python thread, one connection and this server can do at all.
"""

from __future__ import annotations

import socket
import struct

import pyarrow as pa
import pyarrow.compute as pc

import fluss_client as fluss
from benchmarks.harness import Timed, stopwatch
from fluss_client.backend.contract import Backend
from fluss_client.codec.log_batch import iter_log_batches
from fluss_client.runtime import runtime
from fluss_client.wire import apis, hot
from fluss_client.wire import fluss_pb2 as pb
from fluss_client.wire.framing import encode_request

IN_FLIGHT = 5
FETCH_BYTES = 16 << 20


class BareSocket:
    """One blocking connection to the leader of one bucket."""

    def __init__(self, connection: fluss.FlussConnection, info: fluss.TableInfo) -> None:
        backend: Backend = connection.backend
        bucket = fluss.TableBucket(info.table_id, 0)
        node = runtime().call(backend.locate(info, bucket))
        nodes = runtime().call(backend.get_server_nodes())
        address = next(n for n in nodes if n.id == node and n.server_type == "TabletServer")
        self._socket = socket.create_connection((address.host, address.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._next = 0

    def send(self, api: apis.Api, parts: list) -> None:  # type: ignore[type-arg]
        """Send one request."""
        buffers = encode_request(api.key, 0, self._next, parts)
        self._next += 1
        for part in buffers:
            self._socket.sendall(part)

    def receive(self) -> memoryview:
        """Receive one response and give its body."""
        length = struct.unpack(">i", self._exactly(4))[0]
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

    def close(self) -> None:
        self._socket.close()


def produce(
    connection: fluss.FlussConnection, path: fluss.TablePath, batches: list[pa.RecordBatch]
) -> Timed:
    """Send batches that were encoded before the clock starts, five in flight."""
    info = connection.get_table(path).result().get_table_info()
    line = BareSocket(connection, info)
    payloads = [connection.backend.encode_append(info, batch) for batch in batches]
    size = sum(batch.nbytes for batch in batches)

    def work() -> tuple[float, object]:
        waiting = 0
        for payload in payloads:
            records = hot.BucketRecords(0, payload.stamped(-1, -1))  # type: ignore[attr-defined]
            parts = hot.encode_produce_log(info.table_id, [records], acks=-1, timeout_ms=30_000)
            line.send(apis.PRODUCE_LOG, parts)
            waiting += 1
            if waiting >= IN_FLIGHT:
                line.receive()
                waiting -= 1
        for _ in range(waiting):
            line.receive()
        return size, None

    timed = stopwatch(work)
    line.close()
    return timed


def encode_and_produce(
    connection: fluss.FlussConnection, path: fluss.TablePath, batches: list[pa.RecordBatch]
) -> Timed:
    """The same with encoding inside the clock, on the one thread."""
    info = connection.get_table(path).result().get_table_info()
    line = BareSocket(connection, info)
    size = sum(batch.nbytes for batch in batches)

    def work() -> tuple[float, object]:
        waiting = 0
        for batch in batches:
            payload = connection.backend.encode_append(info, batch)
            records = hot.BucketRecords(0, payload.stamped(-1, -1))  # type: ignore[attr-defined]
            parts = hot.encode_produce_log(info.table_id, [records], acks=-1, timeout_ms=30_000)
            line.send(apis.PRODUCE_LOG, parts)
            waiting += 1
            if waiting >= IN_FLIGHT:
                line.receive()
                waiting -= 1
        for _ in range(waiting):
            line.receive()
        return size, None

    timed = stopwatch(work)
    line.close()
    return timed


def fetch(
    connection: fluss.FlussConnection, path: fluss.TablePath, rows: int, size: float
) -> Timed:
    """Fetch and decode everything, one request at a time."""
    info = connection.get_table(path).result().get_table_info()
    line = BareSocket(connection, info)
    schema = info.schema.wire

    def work() -> tuple[float, object]:
        offset = total = 0
        decoded = []
        while offset < rows:
            request = pb.FetchLogRequest(
                follower_server_id=-1, max_bytes=FETCH_BYTES, min_bytes=1, max_wait_ms=500
            )
            table = request.tables_req.add(
                table_id=info.table_id, projection_pushdown_enabled=False
            )
            table.buckets_req.add(bucket_id=0, fetch_offset=offset, max_fetch_bytes=FETCH_BYTES)
            line.send(apis.FETCH_LOG, [request.SerializeToString()])
            answer = hot.decode_fetch_log(line.receive())[0]
            assert answer.records is not None
            for header in iter_log_batches(answer.records):
                decoded.append(pa.ipc.read_record_batch(pa.py_buffer(header.body), schema))
                offset = header.next_offset
        read = pa.Table.from_batches(decoded)
        total = pc.sum(read.column("id")).as_py()
        return size, (read.num_rows, total)

    timed = stopwatch(work)
    line.close()
    return timed


def put(
    connection: fluss.FlussConnection, path: fluss.TablePath, batches: list[pa.RecordBatch]
) -> Timed:
    """Send key batches that were encoded before the clock starts."""
    from fluss_client.codec.keys import KeyEncoding, encode_keys
    from fluss_client.codec.rows import RowFormat, encode_rows

    info = connection.get_table(path).result().get_table_info()
    line = BareSocket(connection, info)
    types = [column.type for column in info.schema.columns]
    payloads = []
    for batch in batches:
        keys = encode_keys([batch.column(0)], types[:1], ["id"], KeyEncoding.COMPACTED)
        rows = encode_rows(batch, types, RowFormat.COMPACTED)
        payloads.append(connection.backend.encode_upsert(info, keys, rows, None))

    def work() -> tuple[float, object]:
        waiting = 0
        for payload in payloads:
            records = hot.BucketRecords(0, payload.stamped(-1, -1))  # type: ignore[attr-defined]
            parts = hot.encode_put_kv(info.table_id, [records], acks=-1, timeout_ms=30_000)
            line.send(apis.PUT_KV, parts)
            waiting += 1
            if waiting >= IN_FLIGHT:
                line.receive()
                waiting -= 1
        for _ in range(waiting):
            line.receive()
        return sum(batch.num_rows for batch in batches), None

    timed = stopwatch(work)
    line.close()
    return timed
