"""Sends batches to the servers of their buckets, in order, until each is acknowledged or lost.

Everything here runs on one event loop and is driven by events: a batch that was pushed, an encoded
one, an answer. Encoding runs on worker threads; the queue of the bucket (`BucketLine`), not the
order in which workers finish, decides what is sent first. The outcome of a batch is reported once,
by `Batch.finish`.

Before the batches of a bucket can be sent, and again after an error, `Preparer` waits for the
backoff, finds the server and gets a writer id.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from fluss_client.aio.existence import Existence
from fluss_client.aio.writing.accumulator import NEVER, Batch
from fluss_client.aio.writing.bucket_line import BucketLine, LineRules, State
from fluss_client.aio.writing.channels import Channel
from fluss_client.aio.writing.corrections import Corrections, Reroute
from fluss_client.backend.contract import (
    NO_WRITER,
    Backend,
    BucketAck,
    BucketWrite,
    Payload,
    WriteRoute,
)
from fluss_client.config import Config
from fluss_client.errors import (
    ClosedError,
    CorruptDataError,
    DuplicateSequenceError,
    FlussError,
    InvalidBucketRoutingError,
    NetworkError,
    StorageBackpressureError,
)
from fluss_client.model.table import TableBucket, TableInfo
from fluss_client.net.retry import Backoff
from fluss_client.runtime import workers

log = logging.getLogger(__name__)
REQUESTS_PER_CONNECTION_MAX = 8
"""Requests of one writer on one connection without an answer; batches that are ready meanwhile
share the next request."""
EXISTENCE_CHECK_EVERY = 4
"""Failed attempts after which the sender asks whether table and partition still exist."""

Entry = tuple[BucketLine, Batch]


class Preparer:
    """Prepares bucket lines for sending.

    The first writer id serves all buckets. A bucket that needs another one later gets its own.
    """

    def __init__(self, backend: Backend, table: TableInfo, config: Config) -> None:
        self._backend = backend
        self._table = table
        self._backoff = Backoff.of(config)
        self._throttle_max_ms = config.writer_kv_backpressure_max_throttle_ms
        self._existence = Existence(backend, table)
        self._first_writer: asyncio.Task[int] | None = None

    async def attempt(self, line: BucketLine) -> None:
        """Try once to prepare a line.

        Raises:
            FlussError: Why the batches of the line cannot be sent now.
        """
        if line.failures:
            await asyncio.sleep(self._pause_ms(line) / 1000)
        if line.stale:
            await self._backend.forget_location(self._table, line.bucket)
            line.stale = False
            if line.failures and line.failures % EXISTENCE_CHECK_EVERY == 0:
                gone = await self._existence.find_dropped(line.bucket)
                if gone is not None:
                    raise gone
        if line.needs_writer:
            line.adopt_writer(await self._writer_id(line))
        node = await self._backend.locate(self._table, line.bucket)
        if line.route is None:
            line.route = WriteRoute(node, self._backend.write_connection(node))
        else:
            line.route = line.route._replace(node=node)

    def _pause_ms(self, line: BucketLine) -> float:
        pause_ms = self._backoff.delay_ms(line.failures - 1)
        if isinstance(line.last_error, StorageBackpressureError):
            # The server is up and refuses load only for a while, so its pauses have a bound of
            # their own.
            return min(pause_ms, self._throttle_max_ms)
        return pause_ms

    async def _writer_id(self, line: BucketLine) -> int:
        paths = [self._table.table_path]
        if line.writer_id != NO_WRITER:
            return await self._backend.init_writer(paths)
        task = self._first_writer
        if task is None:
            task = self._first_writer = asyncio.ensure_future(self._backend.init_writer(paths))
        try:
            # Other buckets wait for the same task: cancelling one of them must not cancel it.
            return await asyncio.shield(task)
        except FlussError:
            if self._first_writer is task:
                self._first_writer = None
            raise


def line_rules(config: Config, channel: Channel) -> LineRules:
    """Return the rules that a configuration sets for every bucket."""
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
    """Sends the complete batches of one writer, each bucket's in their order.

    Args:
        backend: Where the table is. It must belong to the event loop that runs the sender.
        table: The table that is written.
        config: Sets the size of requests and the backoff.
        channel: Encodes batches and makes requests of them.
        rules: What holds for every bucket.
    """

    def __init__(
        self,
        backend: Backend,
        table: TableInfo,
        config: Config,
        channel: Channel,
        rules: LineRules,
    ) -> None:
        self._channel = channel
        self._preparer = Preparer(backend, table, config)
        self._request_bytes_max = config.writer_request_max_size
        self._throttle_max_ms = config.writer_kv_backpressure_max_throttle_ms
        self._rules = rules
        self._lines: dict[TableBucket, BucketLine] = {}
        self._ready: dict[TableBucket, BucketLine] = {}
        self._route_requests: Counter[WriteRoute] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._pumping = False
        self.counters: Counter[str] = Counter()
        self._corrections: Corrections | None = None
        self._backend = backend
        self._table = table

    def correct_with(self, reroute: Reroute, close_open: Callable[[int | None], None]) -> None:
        """Place rows anew if a server says that they were placed by a wrong bucket count.

        Args:
            reroute: Places rows anew.
            close_open: Hands the open batches of a partition to this sender.
        """
        self._corrections = Corrections(
            self._backend, self._table, reroute, close_open, self._lines.values, self.push
        )

    def line(self, bucket: TableBucket) -> BucketLine:
        """Return the queue of a bucket; it is made on first use."""
        line = self._lines.get(bucket)
        if line is None:
            line = self._lines[bucket] = BucketLine(bucket, self._rules)
        return line

    def push(self, batch: Batch) -> None:
        """Queue a complete batch and have it encoded."""
        line = self.line(batch.bucket)
        line.push(batch, time.monotonic())
        loop = asyncio.get_running_loop()

        def on_encoded(job: concurrent.futures.Future[Payload]) -> None:
            # Runs on the worker thread: the state of the line belongs to the loop.
            loop.call_soon_threadsafe(self._encoded, line, batch, job)

        try:
            workers().submit(self._channel.encode, batch.slices).add_done_callback(on_encoded)
        except RuntimeError as error:  # the interpreter is shutting down
            line.queue.remove(batch)
            batch.finish(error)
            return
        self._wake(line)

    def _encoded(
        self, line: BucketLine, batch: Batch, job: concurrent.futures.Future[Payload]
    ) -> None:
        if batch.done or batch.replaced:
            return
        error = job.exception()
        if error is not None:
            line.queue.remove(batch)
            batch.finish(error)
        else:
            batch.encoded(job.result())
        self._wake(line)

    # Requests

    def _wake(self, line: BucketLine) -> None:
        """Do what a line needs next; called after every change of its state."""
        if line.state is State.DRAINING and not line.awaiting:
            line.drained()
            self._prepare(line)
        elif line.state is State.NEW and line.backlog:
            self._prepare(line)
        if line.sendable() is not None:
            self._ready[line.bucket] = line
            self._pump_soon()

    def _pump_soon(self) -> None:
        if not self._pumping:
            self._pumping = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        """Send all that can be sent: requests of one batch per bucket, several at a time."""
        self._pumping = False
        while requests := self._gather():
            for route, entries in requests.items():
                self._start_request(route, entries)

    def _gather(self) -> dict[WriteRoute, list[Entry]]:
        """Return at most one request per connection, from the buckets that have waited longest."""
        requests: dict[WriteRoute, list[Entry]] = {}
        sizes: Counter[WriteRoute] = Counter()
        now, resume_at = time.monotonic(), NEVER
        for bucket, line in list(self._ready.items()):
            head = line.sendable()
            if head is None:
                del self._ready[bucket]
                continue
            assert head.payload is not None
            assert line.route is not None
            route, size = line.route, head.payload.nbytes
            if self._corrections is not None and self._corrections.blocks(bucket.partition_id):
                continue
            if self._route_requests[route] >= REQUESTS_PER_CONNECTION_MAX:
                continue
            if line.resume_at > now:
                resume_at = min(resume_at, line.resume_at)
                continue
            if sizes[route] and sizes[route] + size > self._request_bytes_max:
                continue
            sizes[route] += size
            requests.setdefault(route, []).append((line, line.take()))
            # To the end of the order: a bucket with much to send must not starve the others.
            del self._ready[bucket]
            self._ready[bucket] = line
        if not requests and resume_at < NEVER:
            asyncio.get_running_loop().call_later(resume_at - now, self._pump_soon)
        return requests

    def _start_request(self, route: WriteRoute, entries: list[Entry]) -> None:
        self._route_requests[route] += 1
        self._spawn(self._request(route, entries))

    async def _request(self, route: WriteRoute, entries: list[Entry]) -> None:
        answers: dict[TableBucket, BucketAck] = {}
        failure: FlussError = CorruptDataError("the server gave no answer for this bucket")
        try:
            acks = await self._channel.send(route, [_write(batch) for _, batch in entries])
            answers = {ack.bucket: ack for ack in acks}
        except FlussError as error:
            failure = error
        except OSError as error:
            failure = NetworkError(f"the line to server {route.node} broke: {error}")
            failure.__cause__ = error
        except asyncio.CancelledError:
            failure = ClosedError("the client was closed while rows were being written")
        except Exception as error:  # noqa: BLE001 - a fault must fail its rows, not hang them
            failure = CorruptDataError(f"sending failed: {error!r}")
            failure.__cause__ = error
        self._route_requests[route] -= 1
        self.counters["requests"] += 1
        for line, batch in entries:
            ack = answers.get(batch.bucket) or BucketAck(batch.bucket, error=failure)
            self._answered(line, batch, ack)
        if self._corrections is not None:
            self._corrections.answered()
        if self._ready:
            self._pump_soon()

    def _answered(self, line: BucketLine, batch: Batch, ack: BucketAck) -> None:
        now = time.monotonic()
        error = ack.error
        if error is None or isinstance(error, DuplicateSequenceError):
            batch.offset = ack.offset
            line.acknowledged(batch, now)
            if ack.pressure > 0:
                # The server asks for slower writes before it has to refuse them (error 72).
                pause_ms = min(ack.pressure, 1.0) * self._throttle_max_ms
                line.resume_at = now + pause_ms / 1000
                self.counters["throttles"] += 1
            batch.finish(None)
        elif line.refused(batch, error, now):
            batch.finish(error)
        else:
            self.counters["retries"] += 1
            log.debug("%s: sequence %d is sent again after %r", batch.bucket, batch.sequence, error)
        self._wake(line)

    # Preparing a bucket before its first batch and after an error

    def _prepare(self, line: BucketLine) -> None:
        line.state = State.PREPARING
        self._spawn(self._prepare_until_ready(line))

    async def _prepare_until_ready(self, line: BucketLine) -> None:
        if line.last_error is not None:
            dropped = line.drop(None if line.broken else time.monotonic())
            _finish_all(dropped, line.last_error)
        while line.backlog:
            try:
                await self._preparer.attempt(line)
                if self._corrections is not None and _misplaced(line):
                    line.last_error = None
                    await self._corrections.correct(line.bucket.partition_id)
                    self._pump_soon()
                if not line.needs_writer:
                    break
            except FlussError as error:
                keep_trying = error.retriable and line.failures < line.rules.retries_max
                line.failures += 1
                line.stale, line.last_error = True, error
                _finish_all(line.drop(time.monotonic() if keep_trying else None), error)
            except BaseException as error:
                _finish_all(line.drop(), error)
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


def _misplaced(line: BucketLine) -> bool:
    return isinstance(line.last_error, InvalidBucketRoutingError)


def _finish_all(batches: Iterable[Batch], error: BaseException) -> None:
    for batch in batches:
        batch.finish(error)


def _write(batch: Batch) -> BucketWrite:
    assert batch.payload is not None
    return BucketWrite(
        batch.bucket, batch.payload, batch.writer_id, batch.sequence, batch.bucket_count
    )
