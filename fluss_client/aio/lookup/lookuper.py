"""Look-ups by primary key and by a prefix of it.

A key is sent at once if no request to its server is in flight. Keys that arrive while one is in
flight are sent together in the next request, so batching needs no timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from fluss_client.aio.existence import PartitionIds
from fluss_client.aio.lookup.keys import EncodedKeys, KeyLike, KeyMaker
from fluss_client.backend.contract import Backend, LookupAnswer
from fluss_client.codec.binary.blobs import Blobs
from fluss_client.codec.kv_batch import decode_value
from fluss_client.codec.rows import RowFormat, decode_row_scalar
from fluss_client.config import Config
from fluss_client.errors import (
    ExpiredPartitionError,
    FlussError,
    InvalidBucketRoutingError,
    NonPrimaryKeyTableError,
    PartitionNotExistError,
    RowError,
    UnsupportedError,
)
from fluss_client.model.table import KV_FORMAT, TableBucket, TableInfo
from fluss_client.net.retry import Backoff, Deadline, retrying

NO_ROW = -1
KEYS_PER_REQUEST_MAX = 8_192
REQUESTS_IN_FLIGHT_MAX = 4

DECODED_APART_MIN = 1_024
"""Values of one answer that are decoded while other answers are awaited; fewer are decoded together
at the end, because each batch has a cost of its own."""
PLACED_MAX = 4
"""How often the keys of one look-up are placed, if the bucket count of a partition changes."""

_Ask = Callable[
    [TableInfo, int, Mapping[TableBucket, Blobs], int | None],
    Coroutine[Any, Any, dict[TableBucket, LookupAnswer]],
]


class PlacedKey(NamedTuple):
    """An encoded key, its bucket, and the bucket count by which it was placed."""

    bucket: TableBucket
    key: bytes
    bucket_count: int


class TableLookup:
    """Builds look-ups.

    Obtain it with `FlussTable.new_lookup()`; do not call the constructor.
    """

    def __init__(self, backend: Backend, table: TableInfo, config: Config) -> None:
        if not table.has_primary_key():
            raise NonPrimaryKeyTableError(
                f"{table.table_path} has no primary key: look-ups need one; scan it instead"
            )
        self._backend = backend
        self._table = table
        self._config = config

    def create_lookuper(self) -> Lookuper:
        """Create a look-up by the whole primary key."""
        return Lookuper(self._backend, self._table, self._config)

    def lookup_by(self, column_names: Sequence[str]) -> TablePrefixLookup:
        """Return a builder of look-ups by a prefix of the primary key.

        Args:
            column_names: The partition columns and the bucket key columns.

        Raises:
            UnsupportedError: The columns are not such a prefix.
        """
        return TablePrefixLookup(self._backend, self._table, self._config, column_names)


class TablePrefixLookup:
    """Builds a `PrefixLookuper`.

    Obtain it with `TableLookup.lookup_by()`; do not call the constructor.
    """

    def __init__(
        self, backend: Backend, table: TableInfo, config: Config, column_names: Sequence[str]
    ) -> None:
        prefix = [name for name in column_names if name not in table.partition_keys]
        physical = table.physical_primary_keys
        if (
            tuple(prefix) != tuple(table.bucket_keys)
            or tuple(prefix) != physical[: len(prefix)]
            or len(prefix) >= len(physical)
            or set(table.partition_keys) - set(column_names)
        ):
            unknown = [name for name in column_names if name not in table.schema.index]
            what = f"Unknown column name '{unknown[0]}'; " if unknown else ""
            raise UnsupportedError(
                f"{table.table_path}: {what}a prefix lookup takes the partition fields "
                f"{list(table.partition_keys)} and the bucket keys {list(table.bucket_keys)}, not "
                f"{list(column_names)}; and the bucket keys must be a proper prefix of the primary "
                f"key {list(physical)}"
            )
        self._lookuper = PrefixLookuper(backend, table, config, column_names, prefix)

    def create_lookuper(self) -> PrefixLookuper:
        """Create a look-up by the prefix."""
        return self._lookuper


class _Batcher:
    """Sends one request at a time to each server, with all keys that wait for it.

    A caller that finds the server idle sends its own key, without a task. Afterwards it starts a
    task for the keys that other callers have added meanwhile.
    """

    def __init__(self, backend: Backend, table: TableInfo, prefix: bool) -> None:
        self._backend = backend
        self._table = table
        self._prefix = prefix
        self._waiting: dict[int, list[tuple[PlacedKey, asyncio.Future[list[bytes]]]]] = {}
        self._busy: dict[int, asyncio.Task[None] | None] = {}

    async def values(self, node: int, key: PlacedKey) -> list[bytes]:
        """Return the values of one key."""
        if node in self._busy:
            future: asyncio.Future[list[bytes]] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(node, []).append((key, future))
            return await future
        self._busy[node] = None
        try:
            answers = await self._ask(node, [key])
        finally:
            if self._waiting.get(node):
                self._busy[node] = asyncio.ensure_future(self._drain(node))
            else:
                del self._busy[node]
        answer = answers[0]
        if isinstance(answer, FlussError):
            raise answer
        return answer

    async def _ask(self, node: int, keys: list[PlacedKey]) -> list[list[bytes] | FlussError]:
        plain = [(key.bucket, key.key) for key in keys]
        counts = [key.bucket_count for key in keys]
        return await self._backend.lookup_few(self._table, node, plain, self._prefix, counts)

    async def _drain(self, node: int) -> None:
        try:
            while self._waiting.get(node):
                queue = self._waiting[node]
                batch, self._waiting[node] = (
                    queue[:KEYS_PER_REQUEST_MAX],
                    queue[KEYS_PER_REQUEST_MAX:],
                )
                await self._send(node, batch)
        finally:
            del self._busy[node]

    async def _send(
        self, node: int, batch: list[tuple[PlacedKey, asyncio.Future[list[bytes]]]]
    ) -> None:
        answers: list[list[bytes] | FlussError]
        try:
            answers = await self._ask(node, [key for key, _ in batch])
        except FlussError as error:
            answers = [error] * len(batch)
        for (_, future), answer in zip(batch, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, FlussError):
                future.set_exception(answer)
            else:
                future.set_result(answer)


class _Places:
    """Finds the partition id of a name, its bucket count, and the server of a bucket."""

    def __init__(self, backend: Backend, table: TableInfo, config: Config) -> None:
        self.backend = backend
        self.table = table
        self.config = config
        self._backoff = Backoff.of(config)
        self._partitions = PartitionIds(backend, table)

    async def partition_id(self, name: str) -> int | None:
        """Return the id of a partition, or None if there is no such partition.

        Raises:
            ExpiredPartitionError: There is none, and rows of an expired one may be elsewhere.
        """
        try:
            (found,) = self._partitions.known([name]) or await self._partitions.find([name])
        except PartitionNotExistError:
            self.check_not_expired(name)
            return None
        return found

    def check_not_expired(self, name: str) -> None:
        """Raise `ExpiredPartitionError` if the table keeps rows of expired partitions."""
        if self.table.takes_late_rows:
            raise ExpiredPartitionError(
                f"{self.table.table_path} has no partition '{name}'. If it has expired, its rows "
                "are in the lake and in the system partition of the table, where look-ups of this "
                "client do not go: query the lake for it"
            )

    async def bucket_count(self, partition_id: int | None) -> int:
        """Return the bucket count of a partition."""
        known = self.backend.known_bucket_count(self.table, partition_id)
        if known is not None:
            return known
        return await self.backend.bucket_count(self.table, partition_id)

    async def forget(self, partition_id: int | None, error: FlussError) -> None:
        """After a stale answer, drop what is cached about a partition and its name."""
        if isinstance(error, InvalidBucketRoutingError):
            self.backend.forget_bucket_count(self.table, partition_id)
        if partition_id is not None:
            self._partitions.forget()

    def deadline(self) -> Deadline:
        return Deadline(self.config.request_timeout_ms, self._backoff)


class _KeyedReader:
    """What look-ups by primary key and by prefix share."""

    def __init__(self, places: _Places, maker: KeyMaker, ask: _Ask, prefix: bool) -> None:
        self._places = places
        self._maker = maker
        self._ask = ask
        self._batcher = _Batcher(places.backend, places.table, prefix)
        table = places.table
        self._names = tuple(table.get_column_names())
        self._types = tuple(c.type for c in table.schema.columns)
        self._format = RowFormat[table.properties.get(KV_FORMAT, "COMPACTED").upper()]

    async def values_of(self, key: KeyLike) -> list[bytes]:
        """Return the values of one key."""
        encoded, hashed, partition = self._maker.encode_one(key)
        places = self._places
        table = places.table
        partition_id = None
        if partition is not None:
            partition_id = await places.partition_id(partition)
            if partition_id is None:
                return []

        async def ask() -> list[bytes]:
            # The bucket is computed anew for each attempt: the count may have been corrected.
            count = await places.bucket_count(partition_id)
            bucket_id = self._maker.bucket(hashed, count)
            bucket = TableBucket(table.table_id, bucket_id, partition_id=partition_id)
            try:
                node = await places.backend.locate(table, bucket)
                return await self._batcher.values(node, PlacedKey(bucket, encoded, count))
            except FlussError as error:
                if error.stale_metadata:
                    await places.backend.forget_location(table, bucket)
                raise

        try:
            return await ask()
        except FlussError as error:
            if not error.retriable:
                raise
            await places.forget(partition_id, error)
        try:
            return await retrying(
                ask, places.deadline(), on_error=lambda error: places.forget(partition_id, error)
            )
        except PartitionNotExistError:
            places.check_not_expired(str(partition))
            return []

    async def rows_of(self, values: Sequence[bytes]) -> list[dict[str, Any]]:
        """Return values as rows of the table's current schema."""
        rows = []
        for value in values:
            schema_id, row = decode_value(value)
            if schema_id == self._places.table.schema_id:
                rows.append(decode_row_scalar(bytes(row), self._types, self._names, self._format))
            else:
                blobs = Blobs.from_list([value])
                batch = await self._places.backend.decode_values(self._places.table, blobs, None)
                rows.extend(batch.to_pylist())
        return rows

    async def many(self, encoded: EncodedKeys) -> tuple[pa.Table, np.ndarray]:
        """Return all rows, and for each of them the position of its key."""
        limit = asyncio.Semaphore(REQUESTS_IN_FLIGHT_MAX)
        found = await asyncio.gather(
            *(self._of_partition(limit, encoded, name, at) for name, at in _partitioned(encoded))
        )
        groups = [group for part in found for group in part]
        groups.sort(key=lambda group: group.rows is None)
        batches = [group.rows for group in groups if group.rows is not None]
        left = [group.answer.values for group in groups if group.rows is None]
        if left or not batches:
            batches.append(await self._decoded(Blobs.concat(left)))
        owners = [np.repeat(group.at, group.answer.counts) for group in groups]
        places = np.concatenate(owners) if owners else np.zeros(0, np.int64)
        return pa.Table.from_batches(batches), places

    async def _decoded(self, values: Blobs) -> pa.RecordBatch:
        return await self._places.backend.decode_values(self._places.table, values, None)

    async def _of_partition(
        self, limit: asyncio.Semaphore, encoded: EncodedKeys, name: str | None, at: np.ndarray
    ) -> list[_Group]:
        """Return the answers for the keys of one partition, in groups of keys."""
        partition_id = None
        if name is not None:
            partition_id = await self._places.partition_id(name)
            if partition_id is None:
                return []
        found: list[_Group] = []
        left = [at]
        for _ in range(PLACED_MAX):
            asked = [
                (group, self._group(limit, partition_id, bucket, count, encoded, group))
                for positions in left
                for bucket, count, group in await self._groups(partition_id, encoded, positions)
            ]
            answers = await asyncio.gather(*(answer for _, answer in asked))
            left = []
            for (group, _), answer in zip(asked, answers, strict=True):
                if answer is None:
                    left.append(group)
                else:
                    found.append(_Group(group, *answer))
            if not left:
                return found
        raise InvalidBucketRoutingError(
            f"{self._places.table.table_path}: the bucket count of partition {partition_id} "
            f"changed {PLACED_MAX} times during one look-up; try again"
        )

    async def _groups(
        self, partition_id: int | None, encoded: EncodedKeys, at: np.ndarray
    ) -> list[tuple[TableBucket, int, np.ndarray]]:
        """Return the bucket, bucket count and positions of keys, in groups that fit a request."""
        count = await self._places.bucket_count(partition_id)
        hashed = encoded.hashed if len(at) == len(encoded.keys) else encoded.hashed.take(at)
        buckets = self._maker.buckets(hashed, count)
        order = np.argsort(buckets, kind="stable")
        starts = np.flatnonzero(np.diff(buckets[order], prepend=-1))
        groups = []
        for some in np.split(order, starts[1:]) if len(order) else []:
            bucket = TableBucket(
                self._places.table.table_id, int(buckets[some[0]]), partition_id=partition_id
            )
            positions = at[some]
            groups += [
                (bucket, count, positions[start : start + KEYS_PER_REQUEST_MAX])
                for start in range(0, len(positions), KEYS_PER_REQUEST_MAX)
            ]
        return groups

    async def _group(
        self,
        limit: asyncio.Semaphore,
        partition_id: int | None,
        bucket: TableBucket,
        count: int,
        encoded: EncodedKeys,
        at: np.ndarray,
    ) -> tuple[LookupAnswer, pa.RecordBatch | None] | None:
        """Return the answer for keys of one bucket; None if they must be placed anew.

        Its rows are with it if there are many.
        """
        places = self._places
        wanted = encoded.keys.take(at)

        async def ask() -> LookupAnswer | None:
            if await places.bucket_count(partition_id) != count:
                return None
            try:
                node = await places.backend.locate(places.table, bucket)
                answer = (await self._ask(places.table, node, {bucket: wanted}, count))[bucket]
                if answer.error is not None:
                    raise answer.error
            except FlussError as error:
                if error.stale_metadata:
                    await places.backend.forget_location(places.table, bucket)
                raise
            return answer

        async with limit:
            try:
                answer = await retrying(
                    ask,
                    places.deadline(),
                    on_error=lambda error: places.forget(partition_id, error),
                )
            except PartitionNotExistError:
                if encoded.partition_codes is not None:
                    places.check_not_expired(encoded.partitions[encoded.partition_codes[at[0]]])
                answer = LookupAnswer(Blobs.from_list([]), np.zeros(len(at), np.int64))
        if answer is None:
            return None
        # The next request is under way meanwhile.
        apart = len(answer.values) >= DECODED_APART_MIN
        return answer, await self._decoded(answer.values) if apart else None


class _Group(NamedTuple):
    """The positions of some keys, the answer for them, and its rows if they are decoded."""

    at: np.ndarray
    answer: LookupAnswer
    rows: pa.RecordBatch | None


def _partitioned(encoded: EncodedKeys) -> list[tuple[str | None, np.ndarray]]:
    """Return the positions of the keys of each partition."""
    codes = encoded.partition_codes
    if codes is None:
        return [(None, np.arange(len(encoded.keys)))]
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    split = np.split(order, starts[1:]) if len(order) else []
    return [(encoded.partitions[int(codes[at[0]])], at) for at in split]


class Lookuper:
    """Looks up rows by primary key.

    Obtain it with `TableLookup.create_lookuper()`; do not call the constructor.
    """

    def __init__(self, backend: Backend, table: TableInfo, config: Config) -> None:
        places = _Places(backend, table, config)
        maker = KeyMaker(table, table.primary_keys, table.physical_primary_keys)
        self._reader = _KeyedReader(places, maker, backend.lookup, prefix=False)
        self._maker = maker

    async def lookup(self, pk: KeyLike) -> dict[str, Any] | None:
        """Return the row of a key.

        Args:
            pk: The primary key: a dict of its columns, or their values in order.

        Returns:
            The row, or None if there is none.

        Raises:
            RowError: The key does not fit the columns.
        """
        rows = await self._reader.rows_of(await self._reader.values_of(pk))
        return rows[0] if rows else None

    async def lookup_many(
        self, keys: pa.Table | pa.RecordBatch | Sequence[KeyLike]
    ) -> pa.Table | list[dict[str, Any] | None]:
        """Return the rows of several keys.

        Args:
            keys: A list of keys, or an Arrow table or batch with the primary-key columns.

        Returns:
            One row per key, in the order of the keys. For a list of keys it is a list, with None
            for a key without a row. For Arrow keys it is an Arrow table, with a row of nulls.

        Raises:
            RowError: A key does not fit the columns.
        """
        if isinstance(keys, str | bytes | Mapping):
            raise RowError("lookup_many takes several keys: a list of them or an Arrow table")
        encoded = self._maker.encode_many(keys)
        rows, owners = await self._reader.many(encoded)
        rows = rows.cast(pa.schema([field.with_nullable(True) for field in rows.schema]))
        if not np.array_equal(owners, np.arange(len(encoded.keys))):
            row_of_key = np.full(len(encoded.keys), NO_ROW, np.int64)
            row_of_key[owners] = np.arange(len(owners))
            rows = rows.take(pa.array(row_of_key, mask=row_of_key == NO_ROW))
        if isinstance(keys, pa.Table | pa.RecordBatch):
            return rows
        found = np.zeros(len(encoded.keys), np.bool_)
        found[owners] = True
        return [row if n else None for row, n in zip(rows.to_pylist(), found.tolist(), strict=True)]


class PrefixLookuper:
    """Looks up all rows whose primary key begins with a prefix.

    Obtain it with `TablePrefixLookup.create_lookuper()`; do not call the constructor.
    """

    def __init__(
        self,
        backend: Backend,
        table: TableInfo,
        config: Config,
        columns: Sequence[str],
        prefix: Sequence[str],
    ) -> None:
        maker = KeyMaker(table, columns, prefix)
        self._reader = _KeyedReader(
            _Places(backend, table, config), maker, backend.prefix_lookup, prefix=True
        )

    async def lookup(self, prefix: KeyLike) -> list[dict[str, Any]]:
        """Return all rows whose key begins with a prefix.

        Args:
            prefix: A dict of the columns given to `lookup_by`, or their values in order.

        Returns:
            The rows, which may be none.

        Raises:
            RowError: The prefix does not fit the columns.
        """
        return await self._reader.rows_of(await self._reader.values_of(prefix))
