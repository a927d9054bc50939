"""Look-ups by primary key and by a prefix of it.

A key is sent at once if no request to its server is in flight. Keys that arrive while one is in
flight are sent together in the next request, so batching needs no timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from fluss_client.aio.existence import PartitionIds
from fluss_client.aio.lookup.keys import EncodedKeys, KeyLike, KeyMaker
from fluss_client.backend.contract import Backend, LookupAnswer
from fluss_client.codec.batches.kv_batch import decode_value
from fluss_client.codec.binary.blobs import Blobs
from fluss_client.codec.rows import RowFormat, decode_row_scalar
from fluss_client.config import Config
from fluss_client.errors import (
    FlussError,
    NonPrimaryKeyTableError,
    PartitionNotExistError,
    RowError,
    UnsupportedError,
)
from fluss_client.model.table import KV_FORMAT, TableBucket, TableInfo
from fluss_client.net.retry import Backoff, Deadline, retrying

KEYS_PER_REQUEST_MAX = 8_192
REQUESTS_IN_FLIGHT_MAX = 4

_Ask = Callable[
    [TableInfo, int, Mapping[TableBucket, Blobs]],
    Coroutine[Any, Any, dict[TableBucket, LookupAnswer]],
]


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
        self._waiting: dict[int, list[tuple[TableBucket, bytes, asyncio.Future[list[bytes]]]]] = {}
        self._busy: dict[int, asyncio.Task[None] | None] = {}

    async def values(self, node: int, bucket: TableBucket, key: bytes) -> list[bytes]:
        """Return the values of one key."""
        if node in self._busy:
            future: asyncio.Future[list[bytes]] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(node, []).append((bucket, key, future))
            return await future
        self._busy[node] = None
        try:
            answers = await self._ask(node, [(bucket, key)])
        finally:
            if self._waiting.get(node):
                self._busy[node] = asyncio.ensure_future(self._drain(node))
            else:
                del self._busy[node]
        answer = answers[0]
        if isinstance(answer, FlussError):
            raise answer
        return answer

    async def _ask(
        self, node: int, keys: list[tuple[TableBucket, bytes]]
    ) -> list[list[bytes] | FlussError]:
        return await self._backend.lookup_few(self._table, node, keys, self._prefix)

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
        self, node: int, batch: list[tuple[TableBucket, bytes, asyncio.Future[list[bytes]]]]
    ) -> None:
        answers: list[list[bytes] | FlussError]
        try:
            answers = await self._ask(node, [(bucket, key) for bucket, key, _ in batch])
        except FlussError as error:
            answers = [error] * len(batch)
        for (_, _, future), answer in zip(batch, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, FlussError):
                future.set_exception(answer)
            else:
                future.set_result(answer)


class _Places:
    """Finds the partition id of a name and the server of a bucket."""

    def __init__(self, backend: Backend, table: TableInfo, config: Config) -> None:
        self.backend = backend
        self.table = table
        self.config = config
        self._backoff = Backoff.of(config)
        self._partitions = PartitionIds(backend, table)

    async def partition_id(self, name: str) -> int | None:
        """Return the id of a partition, or None if there is no such partition."""
        try:
            (found,) = self._partitions.known([name]) or await self._partitions.find([name])
        except PartitionNotExistError:
            return None
        return found

    async def forget(self, bucket: TableBucket, error: FlussError) -> None:
        """After a stale answer, drop the cached server and partition ids of a bucket."""
        if error.stale_metadata:
            await self.backend.forget_location(self.table, bucket)
        if bucket.partition_id is not None:
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
        encoded, bucket_id, partition = self._maker.encode_one(key)
        places = self._places
        table = places.table
        partition_id = None
        if partition is not None:
            partition_id = await places.partition_id(partition)
            if partition_id is None:
                return []
        bucket = TableBucket(table.table_id, bucket_id, partition_id=partition_id)

        async def ask() -> list[bytes]:
            node = await places.backend.locate(table, bucket)
            return await self._batcher.values(node, bucket, encoded)

        try:
            return await ask()
        except FlussError as error:
            if not error.retriable:
                raise
            await places.forget(bucket, error)
        try:
            return await retrying(
                ask, places.deadline(), on_error=lambda error: places.forget(bucket, error)
            )
        except PartitionNotExistError:
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

    async def many(self, encoded: EncodedKeys) -> tuple[Blobs, np.ndarray, np.ndarray]:
        """Return all values, the position of the key of each value, and the count of each key."""
        groups = await self._groups(encoded)
        limit = asyncio.Semaphore(REQUESTS_IN_FLIGHT_MAX)
        answers = await asyncio.gather(
            *(self._group(limit, bucket, encoded.keys, at) for bucket, at in groups)
        )
        counts = np.zeros(len(encoded.keys), np.int64)
        owners = []
        for (_, at), answer in zip(groups, answers, strict=True):
            counts[at] = answer.counts
            owners.append(np.repeat(at, answer.counts))
        values = Blobs.concat([answer.values for answer in answers])
        places = np.concatenate(owners) if owners else np.zeros(0, np.int64)
        return values, places, counts

    async def _groups(self, encoded: EncodedKeys) -> list[tuple[TableBucket, np.ndarray]]:
        """Return the positions of the keys of each bucket, in groups that fit one request."""
        table = self._places.table
        codes = encoded.partition_codes
        combined = encoded.buckets.astype(np.int64)
        if codes is not None:
            combined = codes * self._maker.bucket_count + combined
        order = np.argsort(combined, kind="stable")
        starts = np.flatnonzero(np.diff(combined[order], prepend=-1))
        groups = []
        for positions in np.split(order, starts[1:]) if len(order) else []:
            code, bucket_id = divmod(int(combined[positions[0]]), self._maker.bucket_count)
            partition_id = None
            if codes is not None:
                partition_id = await self._places.partition_id(encoded.partitions[code])
                if partition_id is None:
                    continue
            bucket = TableBucket(table.table_id, bucket_id, partition_id=partition_id)
            groups += [
                (bucket, positions[start : start + KEYS_PER_REQUEST_MAX])
                for start in range(0, len(positions), KEYS_PER_REQUEST_MAX)
            ]
        return groups

    async def _group(
        self, limit: asyncio.Semaphore, bucket: TableBucket, keys: Blobs, at: np.ndarray
    ) -> LookupAnswer:
        places = self._places
        wanted = keys.take(at)

        async def ask() -> LookupAnswer:
            node = await places.backend.locate(places.table, bucket)
            answer = (await self._ask(places.table, node, {bucket: wanted}))[bucket]
            if answer.error is not None:
                raise answer.error
            return answer

        async with limit:
            try:
                return await retrying(
                    ask, places.deadline(), on_error=lambda error: places.forget(bucket, error)
                )
            except PartitionNotExistError:
                return LookupAnswer(Blobs.from_list([]), np.zeros(len(at), np.int64))


class Lookuper:
    """Looks up rows by primary key.

    Obtain it with `TableLookup.create_lookuper()`; do not call the constructor.
    """

    def __init__(self, backend: Backend, table: TableInfo, config: Config) -> None:
        places = _Places(backend, table, config)
        maker = KeyMaker(table, table.primary_keys, table.physical_primary_keys)
        self._reader = _KeyedReader(places, maker, backend.lookup, prefix=False)
        self._maker = maker
        self._backend = backend
        self._table = table

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
        values, owners, counts = await self._reader.many(encoded)
        batch = await self._backend.decode_values(self._table, values, None)
        row_of_key = np.zeros(len(counts), np.int64)
        row_of_key[owners] = np.arange(len(owners))
        indices = pa.array(row_of_key, mask=counts == 0)
        schema = pa.schema([field.with_nullable(True) for field in batch.schema])
        taken = pa.Table.from_batches([batch]).cast(schema).take(indices)
        if isinstance(keys, pa.Table | pa.RecordBatch):
            return taken
        found = counts.tolist()
        return [row if n else None for row, n in zip(taken.to_pylist(), found, strict=True)]


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
