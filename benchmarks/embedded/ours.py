"""The embedded engine, driven by its contract."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pyarrow as pa

from fluss_client.backend.contract import BucketWrite, FetchPosition, FetchRequest
from fluss_client.backend.embedded.backend import EmbeddedBackend
from fluss_client.codec.binary.blobs import Blobs
from fluss_client.codec.keys import KeyEncoding, encode_keys
from fluss_client.codec.rows import RowFormat, encode_rows
from fluss_client.config import Config
from fluss_client.model.schema import Schema
from fluss_client.model.table import TableBucket, TableDescriptor, TableInfo, TablePath

IN_FLIGHT = 4
FETCH_BYTES = 64 << 20


class Ours:
    """One directory, one loop."""

    def __init__(self, folder: Path) -> None:
        self.loop = asyncio.new_event_loop()
        config = Config({"bootstrap.servers": f"embedded:{folder}"})
        self.backend = self.loop.run_until_complete(EmbeddedBackend.open(config))

    def close(self) -> None:
        self.loop.run_until_complete(self.backend.close())
        self.loop.close()

    def table(self, name: str, schema: pa.Schema, keys: list[str] | None = None) -> TableInfo:
        """A new, empty table of that name."""
        path = TablePath("fluss", name)

        async def make() -> TableInfo:
            await self.backend.drop_table(path, True)
            descriptor = TableDescriptor(Schema(schema, primary_keys=keys))
            await self.backend.create_table(path, descriptor, False)
            return await self.backend.get_table_info(path)

        return self.loop.run_until_complete(make())

    def append(self, table: TableInfo, batch: pa.RecordBatch, times: int) -> None:
        """Append a batch so often, each acknowledged; a few are under way at once."""
        place = TableBucket(table.table_id, 0)
        gate = asyncio.Semaphore(IN_FLIGHT)

        async def one() -> None:
            async with gate:
                payload = await asyncio.to_thread(self.backend.encode_append, table, batch)
                write = BucketWrite(place, payload)
                (ack,) = await self.backend.append(table, 0, [write], -1, 60_000)
                assert ack.error is None

        async def all_of_them() -> None:
            await asyncio.gather(*(one() for _ in range(times)))

        self.loop.run_until_complete(all_of_them())

    def scan(self, table: TableInfo, columns: tuple[int, ...] | None) -> list[pa.RecordBatch]:
        """Every batch of the log as Arrow."""
        place = TableBucket(table.table_id, 0)

        async def read() -> list[pa.RecordBatch]:
            batches: list[pa.RecordBatch] = []
            offset = 0
            while True:
                request = FetchRequest(
                    table,
                    [FetchPosition(place, offset, FETCH_BYTES)],
                    columns,
                    bytes_max=FETCH_BYTES,
                    wait_ms=0,
                )
                (answer,) = await self.backend.fetch(0, request)
                if not answer.slices:
                    return batches
                batches += [part.decode()[0] for part in answer.slices]
                offset = answer.next_offset

        return self.loop.run_until_complete(read())

    def upsert(self, table: TableInfo, batches: list[pa.RecordBatch]) -> None:
        """Upsert batches one after the other, rows encoded here as a writer does it."""
        types = [column.type for column in table.schema.columns]
        place = TableBucket(table.table_id, 0)

        async def put() -> None:
            for batch in batches:
                rows = encode_rows(batch, types, RowFormat.COMPACTED)
                payload = self.backend.encode_upsert(
                    table, _keys(table, batch), rows, None, [batch]
                )
                write = BucketWrite(place, payload)
                (ack,) = await self.backend.upsert(table, 0, [write], None, -1, 60_000)
                assert ack.error is None

        self.loop.run_until_complete(put())

    def lookup(self, table: TableInfo, keys: pa.Array) -> int:
        """How many of the keys have a row, asked in one call; the rows are decoded."""
        place = TableBucket(table.table_id, 0)
        asked = _encoded(table, keys)

        async def find() -> int:
            answers = await self.backend.lookup(table, 0, {place: asked})
            batch = await self.backend.decode_values(table, answers[place].values, None)
            return int(batch.num_rows)

        return self.loop.run_until_complete(find())

    def lookup_each(self, table: TableInfo, keys: pa.Array) -> int:
        """The same, one call per key."""
        place = TableBucket(table.table_id, 0)
        asked = _encoded(table, keys).to_list()

        async def find() -> int:
            found = 0
            for key in asked:
                (values,) = await self.backend.lookup_few(table, 0, [(place, key)], False)
                found += isinstance(values, list) and len(values)
            return found

        return self.loop.run_until_complete(find())


def _keys(table: TableInfo, batch: pa.RecordBatch) -> Blobs:
    return _encoded(table, batch.column(0))


def _encoded(table: TableInfo, keys: pa.Array) -> Blobs:
    (name,) = table.primary_keys
    return encode_keys([keys], [table.schema.column(name).type], [name], KeyEncoding.COMPACTED)
