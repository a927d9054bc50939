"""The limit: pre-encoded batches on a bare socket, and a bare fetch with pyarrow's decoding.

Nothing of the client's own machinery is used but the encoders of single messages, so this is what
one Python thread, one connection and this server can do at all. `encode` and `decode` need no
server: they are what all cores of the machine can do when nothing else has to be done.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import fluss_client as fluss
from benchmarks.client.bare_socket import BareSocket
from benchmarks.harness import Measured, stopwatch
from fluss_client.codec.keys import encode_keys, key_encoding_for
from fluss_client.codec.log_batch import LogBatchHeader, iter_log_batches
from fluss_client.codec.rows import RowFormat, encode_rows
from fluss_client.wire import apis, hot
from fluss_client.wire import fluss_pb2 as pb

FETCH_BYTES = 16 << 20
ACKS_ALL, TIMEOUT_MS = -1, 30_000
T = TypeVar("T")
R = TypeVar("R")


class Limit:
    """The same work on a bare socket."""

    def __init__(self, connection: fluss.FlussConnection) -> None:
        self._connection = connection
        self._backend: Any = connection.backend

    def produce(self, path: fluss.TablePath, batches: Sequence[pa.RecordBatch]) -> Measured:
        """Batches that were encoded before the clock starts."""
        with BareSocket(self._connection, path) as line:
            payloads = [self._backend.encode_append(line.info, batch) for batch in batches]

            def work() -> tuple[float, object]:
                line.pump(apis.PRODUCE_LOG, _produced(line.info, iter(payloads)))
                return sum(batch.nbytes for batch in batches), None

            return stopwatch(work)

    def encode_and_produce(
        self, path: fluss.TablePath, batches: Sequence[pa.RecordBatch]
    ) -> Measured:
        """The same with encoding inside the clock, on the one thread."""
        with BareSocket(self._connection, path) as line:

            def work() -> tuple[float, object]:
                payloads = (self._backend.encode_append(line.info, batch) for batch in batches)
                line.pump(apis.PRODUCE_LOG, _produced(line.info, payloads))
                return sum(batch.nbytes for batch in batches), None

            return stopwatch(work)

    def encode(self, path: fluss.TablePath, batches: Sequence[pa.RecordBatch]) -> Measured:
        """Encoding and nothing else, on every core."""
        info = self._connection.get_table(path).result().get_table_info()

        def work() -> tuple[float, object]:
            for _ in _on_every_core(partial(self._backend.encode_append, info), batches):
                pass
            return sum(batch.nbytes for batch in batches), None

        return stopwatch(work)

    def put(self, path: fluss.TablePath, batches: Sequence[pa.RecordBatch]) -> Measured:
        """Key batches that were encoded before the clock starts."""
        with BareSocket(self._connection, path) as line:
            info = line.info
            types = [column.type for column in info.schema.columns]
            payloads = [
                self._backend.encode_upsert(
                    info, _keys(info, batch.column(0)), encode_rows(batch, types, _ROWS), None
                )
                for batch in batches
            ]

            def work() -> tuple[float, object]:
                requests = (
                    hot.encode_put_kv(
                        info.table_id, [_records(payload)], acks=ACKS_ALL, timeout_ms=TIMEOUT_MS
                    )
                    for payload in payloads
                )
                line.pump(apis.PUT_KV, requests)
                return sum(batch.num_rows for batch in batches), None

            return stopwatch(work)

    def fetch(
        self, path: fluss.TablePath, rows: int, size: float, column: int | None = None
    ) -> Measured:
        """Fetch and decode everything, or one column, one request at a time."""
        with BareSocket(self._connection, path) as line:
            schema = line.info.schema.wire
            if column is not None:
                schema = pa.schema([schema.field(column)])

            def work() -> tuple[float, object]:
                return size, _sums([decoded(h, schema) for h in _fetched(line, rows, column)])

            return stopwatch(work)

    def decode(self, path: fluss.TablePath, rows: int, size: float) -> Measured:
        """Decoding what was fetched before and nothing else, on every core."""
        with BareSocket(self._connection, path) as line:
            headers = list(_fetched(line, rows, None))
            schema = line.info.schema.wire

        def work() -> tuple[float, object]:
            return size, _sums(_on_every_core(partial(decoded, schema=schema), headers))

        return stopwatch(work)

    def lookup(self, path: fluss.TablePath, count: int) -> Measured:
        """One key after the other; the rows come back and are not decoded."""
        with BareSocket(self._connection, path) as line:
            blobs = _keys(line.info, pa.array(range(count), pa.int64()))
            keys = [hot.BucketKeys(0, *_one(key)) for key in blobs.to_list()]

            def work() -> tuple[float, object]:
                for key in keys:
                    parts = hot.encode_lookup(line.info.table_id, [key])
                    (answer,) = hot.decode_lookup(line.ask(apis.LOOKUP, parts))
                    assert answer.lengths[0] > 0
                return count, None

            return stopwatch(work)


_ROWS = RowFormat.COMPACTED


def _on_every_core(work: Callable[[T], R], things: Sequence[T]) -> list[R]:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(work, things))


def _fetched(line: BareSocket, rows: int, column: int | None) -> Iterator[LogBatchHeader]:
    offset = 0
    while offset < rows:
        body = line.ask(apis.FETCH_LOG, [_fetch_request(line.info, offset, column)])
        records = hot.decode_fetch_log(body)[0].records
        assert records is not None
        for header in iter_log_batches(records):
            yield header
            offset = header.next_offset


def decoded(header: LogBatchHeader, schema: pa.Schema) -> pa.RecordBatch:
    return pa.ipc.read_record_batch(pa.py_buffer(header.body), schema)


def _sums(batches: Sequence[pa.RecordBatch]) -> tuple[int, int]:
    read = pa.Table.from_batches(batches)
    return read.num_rows, pc.sum(read.column("id")).as_py()


def _records(payload: Any) -> hot.BucketRecords:
    return hot.BucketRecords(0, payload.stamped(-1, -1))


def _produced(info: fluss.TableInfo, payloads: Iterator[Any]) -> Iterator[list[Any]]:
    for payload in payloads:
        yield hot.encode_produce_log(
            info.table_id, [_records(payload)], acks=ACKS_ALL, timeout_ms=TIMEOUT_MS
        )


def _keys(info: fluss.TableInfo, keys: pa.Array) -> Any:
    column = info.schema.columns[0]
    encoding, _ = key_encoding_for(info.properties, info.bucket_keys, info.primary_keys)
    return encode_keys([keys], [column.type], [column.name], encoding)


def _one(key: bytes) -> tuple[Any, Any]:
    return np.frombuffer(key, np.uint8), np.array([0, len(key)])


def _fetch_request(info: fluss.TableInfo, offset: int, column: int | None) -> bytes:
    request = pb.FetchLogRequest(
        follower_server_id=-1, max_bytes=FETCH_BYTES, min_bytes=1, max_wait_ms=500
    )
    table = request.tables_req.add(
        table_id=info.table_id,
        projection_pushdown_enabled=column is not None,
        projected_fields=[] if column is None else [column],
    )
    table.buckets_req.add(bucket_id=0, fetch_offset=offset, max_fetch_bytes=FETCH_BYTES)
    return bytes(request.SerializeToString())
