"""Stream the key state of a bucket with the server's own scan (SCAN_KV, Fluss 1.0).

The first request opens a scan: the server keeps a snapshot of the bucket and answers with an id, a
first page in the order of the keys, and the offset of the changelog at which the snapshot is exact.
Further requests name the id and count up. A scan takes one request at a time.

A server ends a scan that is idle for some minutes (error 66 or 67), that loses its leader (12), or
whose requests do not count up (68), which also follows from an answer that was lost. A page cannot
be asked for twice. So a broken scan is never continued: the cursor raises `StateScanLostError`, and
its reader opens a new one behind the last key that it has.

A server has few scans at a time (8 per bucket). Error 69 is answered by pauses, within a bound.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from fluss_client.backend.cluster.reads import ReadCalls
from fluss_client.codec.binary.blobs import Blobs
from fluss_client.codec.kv_batch import decode_value_blobs
from fluss_client.errors import (
    ClosedError,
    CorruptDataError,
    FlussError,
    InvalidBucketRoutingError,
    InvalidScanRequestError,
    ScannerExpiredError,
    StateScanLostError,
    UnknownScannerIdError,
)
from fluss_client.model.table import TableBucket, TableInfo
from fluss_client.net.connection import Connection
from fluss_client.net.retry import Backoff, Deadline, retrying
from fluss_client.wire import apis, hot
from fluss_client.wire import fluss_pb2 as pb
from fluss_client.wire.messages import Buffer

PAGE_BYTES = 4 << 20
"""The bytes that one page asks for; servers return at most 10 MB."""
OPEN_TIMEOUT_MS = 60_000
"""How long a scan waits for its turn when the server has as many as it allows."""
_PAUSES = Backoff(first_ms=100, max_ms=2_000)
_ENDED = (ScannerExpiredError, UnknownScannerIdError, InvalidScanRequestError)


class ScanCursor:
    """The rows of one scan, in key order."""

    kind = "scan"
    snapshot_id = None
    made_ms = None

    def __init__(self, calls: ReadCalls, table: TableInfo, bucket: TableBucket) -> None:
        self._calls = calls
        self._table = table
        self._bucket = bucket
        self._node = -1
        self._scanner_id = b""
        self._sequence = 0
        self._page = Blobs.from_list([])
        self._more = False
        self._closed = False
        self.offset = 0
        self.bytes_fetched = 0

    async def open(self) -> None:
        """Open the scan and fetch its first page.

        Raises:
            TooManyScannersError: The server had as many scans as it allows for a minute.
        """
        calls, table, bucket = self._calls, self._table, self._bucket

        async def ask() -> hot.ScannedKv:
            self._node = await calls.locate(table, bucket)
            count = await calls.bucket_count(table, bucket.partition_id)
            request = pb.ScanKvRequest(call_seq_id=0, batch_size_bytes=PAGE_BYTES)
            wanted = request.bucket_scan_req
            wanted.table_id, wanted.bucket_id = table.table_id, bucket.bucket_id
            if bucket.partition_id is not None:
                wanted.partition_id = bucket.partition_id

            def make(connection: Connection) -> list[Buffer]:
                if connection.takes_bucket_counts:
                    wanted.routing_bucket_count = count
                return [request.SerializeToString()]

            body = await calls.on_node(self._node, apis.SCAN_KV, make)
            return self._answer(body)

        async def learn(error: FlussError) -> None:
            if isinstance(error, InvalidBucketRoutingError):
                calls.forget_bucket_count(table, bucket.partition_id)
            if error.stale_metadata:
                await calls.forget_location(table, bucket)
                await calls.check_exists(table, bucket)

        deadline = Deadline(max(OPEN_TIMEOUT_MS, calls.config.request_timeout_ms), _PAUSES)
        answer = await retrying(ask, deadline, on_error=learn)
        if answer.log_offset is None:
            raise CorruptDataError(f"{table.table_path}: a scan of {bucket} came without an offset")
        self.offset = answer.log_offset
        self._take(answer)

    def _answer(self, body: memoryview) -> hot.ScannedKv:
        self.bytes_fetched += len(body)
        self._calls.rate.add(len(body))
        answer = hot.decode_scan_kv(body)
        if answer.error is not None:
            raise answer.error
        return answer

    def _take(self, answer: hot.ScannedKv) -> None:
        self._scanner_id = answer.scanner_id
        self._more = answer.has_more
        self._page = decode_value_blobs(answer.records or b"")

    async def read(self, rows_max: int) -> Blobs | None:
        if self._closed:
            raise ClosedError("the cursor was closed")
        while not len(self._page):
            if not self._more:
                return None
            await self._next_page()
        page = self._page
        if len(page) <= rows_max:
            self._page = Blobs.from_list([])
            return page
        end = int(page.offsets[rows_max])
        self._page = Blobs(page.data[end:], page.offsets[rows_max:] - end)
        return Blobs(page.data[:end], page.offsets[: rows_max + 1])

    async def _next_page(self) -> None:
        await self._calls.rate.ready()
        self._sequence += 1
        request = pb.ScanKvRequest(
            scanner_id=self._scanner_id, call_seq_id=self._sequence, batch_size_bytes=PAGE_BYTES
        )
        try:
            answer = self._answer(await self._send(request))
        except FlussError as error:
            self._more = False
            ended = isinstance(error, _ENDED)
            if ended:
                self._scanner_id = b""
            if ended or error.retriable:
                raise StateScanLostError(
                    f"{self._table.table_path}: the server ended the scan of {self._bucket}: "
                    f"{error}. Read again",
                    self._bucket,
                ) from error
            raise
        self._take(answer)

    async def _send(self, request: pb.ScanKvRequest) -> memoryview:
        parts: Sequence[Buffer] = [request.SerializeToString()]
        return await self._calls.on_node(self._node, apis.SCAN_KV, lambda _: parts)

    async def close(self) -> None:
        self._closed = True
        if self._more and self._scanner_id:
            # Without this the server keeps the scan until it expires. It must not hide another
            # error, and the scan expires by itself.
            request = pb.ScanKvRequest(scanner_id=self._scanner_id, close_scanner=True)
            with contextlib.suppress(FlussError):
                await self._send(request)
        self._more = False
