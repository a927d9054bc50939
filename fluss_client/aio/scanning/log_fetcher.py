"""Fetches the logs of some buckets, ahead of the user.

One fetch per server is in flight at a time. The head of an answer tells where its buckets continue,
so the next fetch is sent while this answer is decoded; `fetch_plan` says what it asks for. Nothing
runs without a reason: a scanner that was not closed and is not polled any more stops fetching.
"""

from __future__ import annotations

import asyncio
import math
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any

from fluss_client.aio.offsets import resolve_offsets
from fluss_client.aio.projection import Projection
from fluss_client.aio.scanning.bucket_state import BucketState, Chunk, Decoder
from fluss_client.aio.scanning.errors import (
    Diagnosis,
    check_bucket_id,
    may_start_again,
    wants_diagnosis,
    with_bucket,
)
from fluss_client.aio.scanning.fetch_plan import (
    FIRST_FETCH_BYTES,
    fetch_bytes_max,
    make_request,
    plan_fetch,
)
from fluss_client.aio.scanning.filtering import kept_rows
from fluss_client.backend.contract import Backend, FetchedBucket, FetchRequest
from fluss_client.config import Config
from fluss_client.errors import (
    ClosedError,
    FlussError,
    LeaderNotAvailableError,
    LogOffsetOutOfRangeError,
)
from fluss_client.model.records import RecordBatch
from fluss_client.model.table import TableBucket, TableInfo
from fluss_client.net.retry import Backoff

LOCATE_TIMEOUT_S = 2.0
"""How long a backend may look for a leader before the client asks whether the table exists."""
EMPTY_PAUSE_S = 0.01
"""The least time between two fetches from a server if the first brought no rows."""
_under_way: weakref.WeakSet[LogFetcher] = weakref.WeakSet()
"""The scans of this process, which share the bound of bytes. Weak: a scan may be dropped without
`close`."""


class _Node:
    """A server, and the buckets that it leads."""

    __slots__ = ("busy", "fetch_bytes", "id", "rest_until", "states")

    def __init__(self, node_id: int) -> None:
        self.id = node_id
        self.states: dict[TableBucket, BucketState] = {}
        self.busy = False
        self.fetch_bytes = FIRST_FETCH_BYTES
        self.rest_until = 0.0


class LogFetcher:
    """Fetches and decodes the buckets of one scan.

    Everything happens on the loop that it was made on, so there is no lock.
    """

    def __init__(
        self, backend: Backend, table: TableInfo, projection: Projection, config: Config
    ) -> None:
        self._backend = backend
        self._table = table
        self._columns = projection.columns
        predicate = projection.predicate
        self._sent = projection.pruning if predicate is None else predicate
        keep = None if predicate is None else partial(kept_rows, predicate)
        self._config = config
        self._backoff = Backoff.of(config)
        self._loop = asyncio.get_running_loop()
        self._decoder = Decoder(
            projection.restore, config.scanner_log_fetch_max_bytes, self._list, keep
        )
        self._diagnosis = Diagnosis(backend, table)
        self._states: dict[TableBucket, BucketState] = {}
        self._unplaced: dict[TableBucket, BucketState] = {}
        """Buckets whose offset or leader is not known, or not any more."""
        self._nodes: dict[int, _Node] = {}
        self._ready: deque[BucketState] = deque()
        self._failed: deque[BucketState] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._waiters = 0
        self._started = False
        self._closed = False
        self._pump_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._urgent: BucketState | None = None
        self._counts = dict.fromkeys(("fetches", "bytes", "batches", "rows", "retries"), 0)
        self._skipped = 0

    # Subscriptions

    def add(self, bucket: TableBucket, start: int, stop: int | None = None) -> BucketState:
        """Subscribe to a bucket from `start` on, also if it was subscribed at another offset."""
        self.remove(bucket)
        state = BucketState(bucket, start, stop)
        self._states[bucket] = state
        self._unplaced[bucket] = state
        self._kick()
        return state

    def remove(self, bucket: TableBucket) -> bool:
        """Unsubscribe from a bucket and drop its rows. Return whether it was subscribed."""
        state = self._states.pop(bucket, None)
        if state is None:
            return False
        state.closed = True
        self._skipped += state.skipped
        self._unplaced.pop(bucket, None)
        if state.node is not None:
            self._nodes[state.node].states.pop(bucket, None)
        if state in self._failed:
            self._failed.remove(state)
        self._decoder.release(*state.drop_queue())
        self._kick()
        return True

    @property
    def has_buckets(self) -> bool:
        """Return whether any bucket is subscribed."""
        return bool(self._states)

    def positions(self) -> dict[TableBucket, int]:
        """Return the next offset to return of every bucket; negative if it is not looked up yet."""
        return {bucket: state.position for bucket, state in self._states.items()}

    def look_up_offsets(self) -> None:
        """Look up now what earliest and latest mean, instead of with the first poll."""
        self._find_offsets(self._loop.time())

    def set_urgent(self, state: BucketState) -> None:
        """Exempt this bucket from the bounds that it shares with others."""
        if state is not self._urgent:
            self._urgent = self._decoder.urgent = state
            self._decoder.start()
            self._kick()

    # Returning rows

    @property
    def has_news(self) -> bool:
        """Return whether `take` or `take_error` may return something."""
        return bool(self._ready or self._failed)

    @property
    def has_errors(self) -> bool:
        """Return whether `take_error` returns an error."""
        return bool(self._failed)

    def take_error(self) -> Exception | None:
        """Return the error of a bucket whose earlier rows were all returned, or None.

        After a retriable error the bucket stays subscribed and is retried at the same offset.
        After any other error it is unsubscribed.
        """
        if not self._failed:
            return None
        state = self._failed.popleft()
        error = state.error
        assert error is not None
        if isinstance(error, FlussError) and error.is_retriable:
            state.error = None
            state.succeeded()
            self._kick()
        else:
            self.remove(state.bucket)
        return error

    def take(self) -> RecordBatch | None:
        """Return the next rows of the next bucket, or None if nothing is decoded yet."""
        while self._ready:
            state = self._ready.popleft()
            state.listed = False
            if not state.closed and state.has_rows_ready:
                return self.take_from(state)
        return None

    def take_from(self, state: BucketState) -> RecordBatch:
        """Return the next rows of a bucket that has some."""
        rows, used_up = state.take()
        self._counts["rows"] += rows.batch.num_rows
        if used_up is not None:
            state.buffered -= used_up.nbytes
            self._decoder.release(used_up)
            self._kick()
        self._list_state(state)
        return rows

    async def wait(self, timeout_s: float | None, until: Callable[[], bool] | None = None) -> bool:
        """Wait for rows or an error, or until `until()` is true.

        Returns:
            False if the time was over first.

        Raises:
            ClosedError: The scan was closed meanwhile.
        """
        self._started = True
        _under_way.add(self)
        self._waiters += 1
        try:
            self._kick()
            async with asyncio.timeout(timeout_s):
                while not (self.has_news if until is None else until()):
                    if self._closed:
                        raise ClosedError("the scanner was closed while it was waited for")
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        finally:
            self._waiters -= 1
        return True

    def metrics(self) -> dict[str, float]:
        """Return the counters of this scan, and the bytes that it holds now."""
        states = self._states.values()
        return {
            **{name: float(count) for name, count in self._counts.items()},
            "offsets_without_rows": float(self._skipped + sum(s.skipped for s in states)),
            "bytes_buffered": float(sum(s.buffered for s in states)),
            "buckets": float(len(self._states)),
        }

    async def close(self) -> None:
        """Stop fetching, and drop what was fetched."""
        if self._closed:
            return
        self._closed = True
        _under_way.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        self._decoder.close()
        for state in self._states.values():
            state.closed = True
            state.drop_queue()
        self._changed.set()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # What to do next

    def _kick(self) -> None:
        # Deferred to the next cycle of the loop: several changes in one cycle are planned once.
        if self._started and not self._pump_due and not self._closed:
            self._pump_due = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._pump_due = False
        if self._closed:
            return
        now = self._loop.time()
        look_again_at = min(self._find_offsets(now), self._find_leaders(now))
        fetch_max = self._decoder.bytes_max = fetch_bytes_max(self._config, len(_under_way))
        with_buckets = sum(1 for node in self._nodes.values() if node.states)
        for node in self._nodes.values():
            if node.busy or not node.states:
                continue
            if node.rest_until > now:
                look_again_at = min(look_again_at, node.rest_until)
                continue
            plan = plan_fetch(
                node.states.values(),
                fetch_max,
                nodes=with_buckets,
                now=now,
                wanted=self._waiters > 0,
                urgent=self._urgent,
                bytes_max=node.fetch_bytes,
            )
            look_again_at = min(look_again_at, plan.look_again_at)
            if plan.chosen:
                request = make_request(plan, self._table, self._columns, self._config, self._sent)
                node.busy = True
                node.fetch_bytes = 2 * plan.bytes_max
                self._spawn(self._fetch(node, plan.chosen, request), plan.chosen)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not math.isinf(look_again_at):
            self._timer = self._loop.call_at(look_again_at, self._kick)

    def _due(self, states: Iterable[BucketState], now: float) -> tuple[list[BucketState], float]:
        due = []
        look_again_at = math.inf
        for state in states:
            if state.busy or state.error is not None:
                continue
            if state.retry_at > now:
                look_again_at = min(look_again_at, state.retry_at)
            else:
                due.append(state)
        return due, look_again_at

    def _find_offsets(self, now: float) -> float:
        unknown = [state for state in self._unplaced.values() if state.offset < 0]
        due, look_again_at = self._due(unknown, now)
        if due:
            self._spawn(self._resolve(due), due)
        return look_again_at

    def _find_leaders(self, now: float) -> float:
        known = [state for state in self._unplaced.values() if state.offset >= 0]
        due, look_again_at = self._due(known, now)
        for state in due:
            # One task each: a bucket without a leader must not delay the others.
            self._spawn(self._locate(state), [state])
        return look_again_at

    # Asking the backend

    def _spawn(self, work: Coroutine[Any, Any, None], states: list[BucketState]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        for state in states:
            state.busy += 1

        def finished(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            for state in states:
                state.busy -= 1
            if task.cancelled():
                return
            error = task.exception()
            if isinstance(error, Exception):
                for state in states:
                    self._give_up(state, error)
            self._kick()

        task.add_done_callback(finished)

    async def _resolve(self, states: list[BucketState]) -> None:
        asked = {state.bucket: state.offset for state in states}
        try:
            found = await resolve_offsets(self._backend, self._table, asked)
        except FlussError as error:
            self._fail(states, error)
            return
        for state in states:
            state.offset = state.position = found[state.bucket]

    async def _locate(self, state: BucketState) -> None:
        bucket = state.bucket
        try:
            if state.stale:
                state.stale = False
                await self._backend.forget_location(self._table, bucket)
            async with asyncio.timeout(LOCATE_TIMEOUT_S):
                partition_id = bucket.partition_id
                if self._backend.known_bucket_count(self._table, partition_id) is None:
                    count = await self._backend.bucket_count(self._table, partition_id)
                    check_bucket_id(self._table, bucket, count)
                node_id = await self._backend.locate(self._table, bucket)
        except FlussError as error:
            self._fail([state], error)
            return
        except TimeoutError:
            # Retried soon, unless the table was dropped meanwhile.
            self._fail([state], LeaderNotAvailableError("no server is known to lead it"))
            return
        if not state.closed:
            self._unplaced.pop(bucket, None)
            state.node = node_id
            self._nodes.setdefault(node_id, _Node(node_id)).states[bucket] = state

    async def _fetch(self, node: _Node, chosen: list[BucketState], request: FetchRequest) -> None:
        self._counts["fetches"] += 1
        began = self._loop.time()
        try:
            answers = await self._backend.fetch(node.id, request)
        except FlussError as error:
            self._fail(chosen, error)
            return
        finally:
            node.busy = False
        asked = {state.bucket: state for state in chosen if not state.closed}
        received = 0
        for answer in answers:
            state = asked.get(answer.bucket)
            if state is None:
                continue
            if answer.error is not None:
                self._fail([state], answer.error)
            else:
                received += self._receive(node, state, answer)
        if not received:
            # No bucket had rows, so none was left out only because the answer was full.
            for state in chosen:
                state.at_end = True
            node.rest_until = began + EMPTY_PAUSE_S

    # Answers and errors

    def _receive(self, node: _Node, state: BucketState, answer: FetchedBucket) -> int:
        """Queue an answer for decoding, and return the number of its chunks."""
        state.succeeded()
        try:
            chunks = state.accept(answer, self._decoder.chunk_bytes)
        except FlussError as error:
            self._give_up(state, error)
            return 0
        if chunks:
            self._counts["bytes"] += sum(chunk.nbytes for chunk in chunks)
            self._counts["batches"] += len(answer.slices)
            # A bucket that got rows moves to the end: a full answer may have left out the others.
            if node.states.pop(state.bucket, None) is not None:
                node.states[state.bucket] = state
            self._decoder.add(chunks)
        return len(chunks)

    def _list(self, chunk: Chunk) -> None:
        self._list_state(chunk.state)

    def _list_state(self, state: BucketState) -> None:
        """List the bucket for `take` if it has rows, or for `take_error` if it has an error."""
        if state.closed:
            return
        if state.queue:
            error = state.queue[0].error
            if error is not None:
                self._decoder.release(*state.drop_queue())
                self._give_up(state, error)
            elif state.has_rows_ready:
                if not state.listed:
                    state.listed = True
                    self._ready.append(state)
                self._changed.set()
        elif state.error is not None and state not in self._failed:
            self._failed.append(state)
            self._changed.set()

    def _give_up(self, state: BucketState, error: Exception) -> None:
        if not isinstance(error, LogOffsetOutOfRangeError):
            error = with_bucket(error, self._table, state.bucket, state.offset)
        state.error = error
        self._list_state(state)

    def _fail(self, states: Iterable[BucketState], error: FlussError) -> None:
        """Handle a failed request: retry later, find the cause, or give up."""
        for state in states:
            if state.closed:
                continue
            if wants_diagnosis(state, error):
                self._spawn(self._diagnose(state, error), [state])
            else:
                self._judge(state, error)

    async def _diagnose(self, state: BucketState, error: FlussError) -> None:
        self._judge(state, await self._diagnosis.of(state, error))

    def _judge(self, state: BucketState, error: FlussError) -> None:
        if state.closed:
            return
        if isinstance(error, LogOffsetOutOfRangeError) and may_start_again(state):
            state.failures += 1
            state.offset = state.position = state.start
            self._unplace(state)
            return
        now = self._loop.time()
        if state.failing_since is None:
            state.failing_since = now
        state.last_failure = error
        failing_ms = (now - state.failing_since) * 1000
        if not error.is_retriable or failing_ms >= self._config.retry_timeout_ms:
            self._give_up(state, error)
            return
        self._counts["retries"] += 1
        state.retry_at = now + self._backoff.delay_ms(state.failures) / 1000
        state.failures += 1
        if error.stale_metadata:
            self._unplace(state)

    def _unplace(self, state: BucketState) -> None:
        if state.node is not None:
            self._nodes[state.node].states.pop(state.bucket, None)
            state.node = None
            state.stale = True
        self._unplaced[state.bucket] = state
