"""Sends batches to the servers of their buckets, in order, until each is acknowledged or lost.

Everything here runs on one event loop and is driven by events: a queued batch, an encoded one, an
answer. Encoding runs on worker threads; a bucket's queue, not the order in which workers finish,
decides what goes out first.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from fluss_client.aio.batching import Batch
from fluss_client.aio.bucket_line import BucketLine, LineRules, State
from fluss_client.aio.channels import Channel
from fluss_client.aio.preparing import Preparer
from fluss_client.backend.contract import BucketAck, BucketWrite, Payload
from fluss_client.config import Config
from fluss_client.errors import (
    ClosedError,
    CorruptDataError,
    DuplicateSequenceError,
    FlussError,
    NetworkError,
)
from fluss_client.model.table import TableBucket
from fluss_client.runtime import workers

log = logging.getLogger(__name__)

REQUESTS_PER_NODE_MAX = 8
"""Requests of one writer on their way to one server; what is ready meanwhile shares the next."""

Entry = tuple[BucketLine, Batch]


def line_rules(config: Config, channel: Channel) -> LineRules:
    """The rules that a configuration sets for every bucket."""
    inflight_max = config.writer_max_inflight_requests_per_bucket
    if channel.ordered and not config.writer_enable_idempotence:
        # Without sequences the server cannot refuse a batch that overtook a failed one.
        inflight_max = 1
    return LineRules(
        inflight_max=inflight_max,
        retries_max=config.writer_retries,
        retry_timeout_s=config.retry_timeout_ms / 1000,
        idempotent=config.writer_enable_idempotence,
    )


class Sender:
    """The sealed batches of one writer.

    `on_done(batch, error)` is called once for every batch: acknowledged (None), or lost.
    `on_room(line)` is called when a bucket may take another batch.
    """

    def __init__(
        self,
        channel: Channel,
        preparer: Preparer,
        request_bytes_max: int,
        on_done: Callable[[Batch, BaseException | None], None],
        on_room: Callable[[BucketLine], None],
        on_encoded: Callable[[Batch], None],
    ) -> None:
        self._channel = channel
        self._preparer = preparer
        self._request_bytes_max = request_bytes_max
        self._on_done = on_done
        self._on_room = on_room
        self._on_encoded = on_encoded
        self._ready: dict[TableBucket, BucketLine] = {}
        self._node_requests: Counter[int] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._pumping = False
        self.counters: Counter[str] = Counter()

    def push(self, line: BucketLine, batch: Batch) -> None:
        """Queue a complete batch and have it encoded."""
        line.push(batch, time.monotonic())
        loop = asyncio.get_running_loop()

        def tell(job: concurrent.futures.Future[Payload]) -> None:
            loop.call_soon_threadsafe(self._encoded, line, batch, job)

        try:
            workers().submit(self._channel.encode, batch.pieces).add_done_callback(tell)
        except RuntimeError as error:  # the interpreter is shutting down
            line.queue.remove(batch)
            self._done(batch, error)
            return
        self._wake(line)

    def _encoded(
        self, line: BucketLine, batch: Batch, job: concurrent.futures.Future[Payload]
    ) -> None:
        if batch.done:
            return
        error = job.exception()
        if error is not None:
            line.queue.remove(batch)
            self._done(batch, error)
        else:
            batch.payload = job.result()
            batch.pieces = []
            self._on_encoded(batch)
        self._wake(line)

    def _done(self, batch: Batch, error: BaseException | None) -> None:
        batch.done = True
        batch.pieces = []
        batch.payload = None
        self._on_done(batch, error)

    def _lost(self, batches: Iterable[Batch], error: BaseException) -> None:
        for batch in batches:
            self._done(batch, error)

    # Going out

    def _wake(self, line: BucketLine) -> None:
        """Something about the line changed: do what it needs next."""
        if line.state is State.DRAINING and not line.awaiting:
            line.drained()
            self._prepare(line)
        elif line.state is State.NEW and line.backlog:
            self._prepare(line)
        if line.sendable() is not None:
            self._ready[line.bucket] = line
            self._pump_soon()
        self._on_room(line)

    def _pump_soon(self) -> None:
        if not self._pumping:
            self._pumping = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        """Send what can be sent: one batch per bucket and request, several requests at a time."""
        self._pumping = False
        while requests := self._gather():
            for node, entries in requests.items():
                self._start_request(node, entries)

    def _gather(self) -> dict[int, list[Entry]]:
        """At most one request per node, from the buckets that have waited longest."""
        requests: dict[int, list[Entry]] = {}
        sizes: Counter[int] = Counter()
        for bucket, line in list(self._ready.items()):
            head = line.sendable()
            if head is None:
                del self._ready[bucket]
                continue
            assert head.payload is not None
            node, size = line.node, head.payload.nbytes
            if self._node_requests[node] >= REQUESTS_PER_NODE_MAX:
                continue
            if sizes[node] and sizes[node] + size > self._request_bytes_max:
                continue
            sizes[node] += size
            requests.setdefault(node, []).append((line, line.take()))
            # Behind the others: a bucket with much to send leaves room for them.
            del self._ready[bucket]
            self._ready[bucket] = line
        return requests

    def _start_request(self, node: int, entries: list[Entry]) -> None:
        self._node_requests[node] += 1
        self._spawn(self._request(node, entries))

    async def _request(self, node: int, entries: list[Entry]) -> None:
        answers: dict[TableBucket, BucketAck] = {}
        failure: FlussError = CorruptDataError("the server gave no answer for this bucket")
        try:
            acks = await self._channel.send(node, [_write(batch) for _, batch in entries])
            answers = {ack.bucket: ack for ack in acks}
        except FlussError as error:
            failure = error
        except OSError as error:
            failure = NetworkError(f"the line to server {node} broke: {error}")
            failure.__cause__ = error
        except asyncio.CancelledError:
            failure = ClosedError("the client was closed while rows were being written")
        except Exception as error:  # noqa: BLE001 - a fault must fail its rows, not hang them
            failure = CorruptDataError(f"sending failed: {error!r}")
            failure.__cause__ = error
        self._node_requests[node] -= 1
        self.counters["requests"] += 1
        for line, batch in entries:
            ack = answers.get(batch.bucket) or BucketAck(batch.bucket, error=failure)
            self._answered(line, batch, ack)
        if self._ready:
            self._pump_soon()

    def _answered(self, line: BucketLine, batch: Batch, ack: BucketAck) -> None:
        now = time.monotonic()
        error = ack.error
        if error is None or isinstance(error, DuplicateSequenceError):
            batch.offset = ack.offset
            line.acknowledged(batch, now)
            self._done(batch, None)
        elif line.refused(batch, error, now):
            self._done(batch, error)
        else:
            self.counters["retries"] += 1
            log.debug("%s: sequence %d goes again after %r", batch.bucket, batch.sequence, error)
        self._wake(line)

    # Before the first batch, and after an error

    def _prepare(self, line: BucketLine) -> None:
        line.state = State.PREPARING
        self._spawn(self._make_ready(line))

    async def _make_ready(self, line: BucketLine) -> None:
        if line.last_error is not None:
            dropped = line.drop(None if line.broken else time.monotonic())
            self._lost(dropped, line.last_error)
        while line.backlog:
            try:
                await self._preparer.attempt(line)
                break
            except FlussError as error:
                keep_trying = error.retriable and line.failures < line.rules.retries_max
                line.failures += 1
                line.stale, line.last_error = True, error
                self._lost(line.drop(time.monotonic() if keep_trying else None), error)
            except BaseException as error:
                self._lost(line.drop(), error)
                line.state = State.NEW
                raise
        if line.backlog:
            line.ready()
        else:
            line.state, line.failures = State.NEW, 0
        self._wake(line)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _write(batch: Batch) -> BucketWrite:
    assert batch.payload is not None
    return BucketWrite(batch.bucket, batch.payload, batch.writer_id, batch.sequence)
