"""The rows of a first-row table in Fluss: look-ups, and writes of which the first one wins.

The table keeps the first row of every key, so a write that is sent twice, or that arrives late,
does no harm. Only a look-up shows whether a write was the first one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from fluss_client import Config, Schema, TableBucket, TableDescriptor, TableInfo, TablePath
from fluss_client.engine import (
    KV_FORMAT,
    Backend,
    Blobs,
    BucketWrite,
    Deadline,
    KeyMaker,
    Payload,
    RowFormat,
    WriteRoute,
    decode_row_scalar,
    decode_value,
    encode_rows,
    retrying,
    workers,
)
from fluss_client.errors import FlussError, RowError, SchemaError, TableNotExistError

log = logging.getLogger(__name__)

ACKS_ALL = -1
REPLICAS_WANTED = 3
INLINE_ENCODE_BYTES_MAX = 16 << 10
MERGE_ENGINE = "table.merge-engine"
REPLICATION = "table.replication.factor"

Row = Mapping[str, Any]
Key = tuple[str, int]

_KEY = [
    pa.field("name", pa.string(), nullable=False),
    pa.field("seq", pa.int64(), nullable=False),
]
_BODY = pa.field("body", pa.binary())
EVENT_COLUMNS = pa.schema([*_KEY, ("kind", pa.string()), ("nonce", pa.string()), _BODY])
"""The columns of a table of events; the rest of an event is in its body."""
LEDGER_COLUMNS = pa.schema(
    [
        *_KEY,
        ("kind", pa.string()),
        ("nonce", pa.string()),
        ("run_key", pa.string()),
        ("plan_id", pa.string()),
        ("created_ms", pa.int64()),
        ("target", pa.int64()),
        _BODY,
    ]
)
"""The columns of other ledgers, which are read row by row and not as histories."""


class CheckpointTable:
    """A first-row table. Its coroutines run on the I/O thread."""

    def __init__(
        self, backend: Backend, config: Config, info: TableInfo, columns: pa.Schema
    ) -> None:
        self._columns = columns
        self._backend = backend
        self._config = config
        self._info = info
        self._bucket = TableBucket(info.table_id, 0)
        self._keys = KeyMaker(info, info.primary_keys, info.physical_primary_keys)
        self._format = RowFormat[info.properties.get(KV_FORMAT, "COMPACTED").upper()]
        self._types = [c.type for c in info.schema.columns]

    @staticmethod
    async def open(
        backend: Backend,
        config: Config,
        path: TablePath,
        replicas: int,
        columns: pa.Schema = LEDGER_COLUMNS,
    ) -> CheckpointTable:
        """Open the table, and create it if it does not exist. Many may do this at once."""
        try:
            info = await backend.get_table_info(path)
        except TableNotExistError:
            await backend.create_database(path.database_name, None, True)
            descriptor = await _descriptor(backend, path, replicas, columns)
            await backend.create_table(path, descriptor, True)
            info = await backend.get_table_info(path)
        _check(info, columns)
        return CheckpointTable(backend, config, info, columns)

    async def lookup(self, keys: Sequence[Key]) -> list[dict[str, Any] | None]:
        """Return the rows of some keys with one request; None for a key without a row."""
        wanted = [(self._bucket, self._keys.encode_one(key)[0]) for key in keys]

        async def ask() -> list[list[bytes] | FlussError]:
            node = await self._backend.locate(self._info, self._bucket)
            found = await self._backend.lookup_few(self._info, node, wanted, False)
            for answer in found:
                if isinstance(answer, FlussError):
                    raise answer
            return found

        deadline = Deadline(self._config.request_timeout_ms)
        answers = await retrying(ask, deadline, on_error=self._forget)
        return [self._row(answer) for answer in answers]

    def _row(self, answer: list[bytes] | FlussError) -> dict[str, Any] | None:
        if isinstance(answer, FlussError) or not answer:
            return None
        _, row = decode_value(answer[0])
        return decode_row_scalar(bytes(row), self._types, self._columns.names, self._format)

    async def _forget(self, error: FlussError) -> None:
        if error.stale_metadata:
            await self._backend.forget_location(self._info, self._bucket)

    async def put(self, rows: Sequence[Row]) -> None:
        """Write rows in one batch; rows whose key exists are ignored.

        It returns when every replica in sync has the batch. If there is no answer, the same bytes
        are sent again until `retry-timeout` has passed. After that it is not known whether they
        were written, and the error says so.
        """
        if sum(len(row.get("body") or b"") for row in rows) <= INLINE_ENCODE_BYTES_MAX:
            payload = self._encode(rows)
        else:
            loop = asyncio.get_running_loop()
            payload = await loop.run_in_executor(workers(), self._encode, rows)
        timeout_ms = self._config.request_timeout_ms

        async def send() -> None:
            node = await self._backend.locate(self._info, self._bucket)
            write = BucketWrite(self._bucket, payload)
            acks = await self._backend.upsert(
                self._info, WriteRoute(node), [write], None, ACKS_ALL, timeout_ms
            )
            if acks[0].error is not None:
                raise acks[0].error

        await retrying(send, Deadline(self._config.retry_timeout_ms), on_error=self._forget)

    def _encode(self, rows: Sequence[Row]) -> Payload:
        names = self._columns.names
        for row in rows:
            if not row.keys() <= set(names):
                raise RowError(f"{self._info.table_path} has {names}, not {sorted(row)}")
        whole = [{name: row.get(name) for name in names} for row in rows]
        keys = Blobs.from_list([self._keys.encode_one((r["name"], r["seq"]))[0] for r in whole])
        batch = _batch(whole, self._columns)
        values = encode_rows(batch, self._types, self._format)
        return self._backend.encode_upsert(self._info, keys, values, None, [batch])


def _batch(rows: Sequence[Row], columns: pa.Schema) -> pa.RecordBatch:
    """Return rows as Arrow, from buffers: `pa.array` imports pandas, which takes 0.2 s.

    Every run writes here, and most of them need pandas for nothing else.
    """
    arrays = [_array([row[field.name] for row in rows], field.type) for field in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    valid = pa.py_buffer(np.packbits([v is not None for v in values], bitorder="little"))
    if kind == pa.int64():
        numbers = np.array([0 if value is None else value for value in values], np.int64)
        return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(numbers)])
    parts = [v.encode() if isinstance(v, str) else v or b"" for v in values]
    ends = np.cumsum([0, *map(len, parts)], dtype=np.int32)
    buffers = [valid, pa.py_buffer(ends), pa.py_buffer(b"".join(parts))]
    return pa.Array.from_buffers(kind, len(values), buffers)


async def _descriptor(
    backend: Backend, path: TablePath, wanted: int, columns: pa.Schema
) -> TableDescriptor:
    properties = {MERGE_ENGINE: "first_row"}
    if backend.capabilities.replication:
        nodes = await backend.get_server_nodes()
        tablets = sum(node.server_type == "TabletServer" for node in nodes)
        replicas = max(1, min(wanted, tablets))
        if replicas < REPLICAS_WANTED:
            log.warning(
                "checkpoint table %s gets %d replica(s), because the cluster has %d tablet "
                "server(s): checkpoints can be lost with a disk",
                path,
                replicas,
                tablets,
            )
        properties[REPLICATION] = str(replicas)
    schema = Schema(columns, primary_keys=["name", "seq"])
    return TableDescriptor(
        schema,
        bucket_count=1,
        bucket_keys=["name"],
        comment="Checkpoints of fluss-orchestrate",
        properties=properties,
    )


def _check(info: TableInfo, columns: pa.Schema) -> None:
    engine = info.properties.get(MERGE_ENGINE, "").lower()
    wrong = ""
    if info.get_column_names() != columns.names:
        wrong = f"its columns are {info.get_column_names()}"
    elif engine != "first_row" or info.num_buckets != 1:
        wrong = f"its merge engine is '{engine}' with {info.num_buckets} bucket(s)"
    if wrong:
        raise SchemaError(
            f"{info.table_path} is no checkpoint table: {wrong}; give the store another table "
            "name and let it create the table"
        )
