"""A program that uses the client's whole API, for a type checker to read; it is never run."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import fluss_client as fluss
from fluss_client import aio


def blocking() -> None:
    config: fluss.Config = fluss.Config({"bootstrap.servers": "127.0.0.1:9123"})
    config.writer_batch_size = 1 << 20
    size: int = config.writer_batch_size
    acks: str = config.writer_acks
    print(size, acks)
    with fluss.FlussConnection.create(config).result(30) as connection:
        admin: fluss.FlussAdmin = connection.get_admin().result()
        path = fluss.TablePath("db", "t")
        schema = fluss.Schema(pa.schema([("id", pa.int32())]), primary_keys=["id"])
        descriptor = fluss.TableDescriptor(schema, bucket_count=3, properties={"a": "b"})
        created: None = admin.create_table(path, descriptor, ignore_if_exists=True).result()
        names: list[str] = admin.list_tables("db").result()
        info: fluss.TableInfo = admin.get_table_info(path).result()
        offsets: dict[int, int] = admin.list_offsets(path, [0], fluss.OffsetSpec.latest()).result()
        infos: list[fluss.PartitionInfo] = admin.list_partition_infos(path).result()
        stats: dict[fluss.TableBucket, int] = admin.get_table_stats(path).result()
        print(created, names, info.num_buckets, offsets, infos[0].partition_id, stats)

        table: fluss.FlussTable = connection.get_table(path).result()
        with table.new_append().create_writer() as appends:
            handle: fluss.WriteResultHandle = appends.append({"id": 1})
            waited: None = handle.wait().result(5)
            appends.write_arrow(pa.table({"id": [1]}))
        upserts: fluss.UpsertWriter = table.new_upsert(columns=["id"]).create_writer()
        upserts.upsert([1])
        upserts.delete((1,))
        upserts.flush().result()
        lookuper: fluss.Lookuper = table.new_lookup().create_lookuper()
        row: dict[str, Any] | None = lookuper.lookup({"id": 1}).result()
        prefix: fluss.PrefixLookuper = table.new_lookup().lookup_by(["id"]).create_lookuper()
        rows: list[dict[str, Any]] = prefix.lookup(("x",)).result()
        print(waited, row, rows)

        scanner: fluss.LogScanner = table.new_scan().project([0]).create_log_scanner().result()
        scanner.subscribe_buckets({0: fluss.EARLIEST_OFFSET})
        records: fluss.ScanRecords = scanner.poll(100)
        for record in records:
            offset: int = record.offset
            kind: fluss.ChangeType = record.change_type
            print(offset, kind.short_string(), record.row["id"])
        for bucket, found in records.items():
            number: int = bucket.bucket_id
            print(number, len(found))
        first: fluss.ScanRecord = records[0]
        some: list[fluss.ScanRecord] = records[0:2]
        print(first.timestamp, some)


async def awaiting() -> None:
    connection: fluss.FlussConnection = await fluss.FlussConnection.create(fluss.Config())
    admin = await connection.get_admin()
    exists: bool = await admin.database_exists("db")
    table = await connection.get_table(fluss.TablePath("db", "t"))
    scanner = await table.new_scan().create_record_batch_log_scanner()
    for batch in scanner.poll_record_batch(timeout_ms=10):
        base: int = batch.base_offset
        print(exists, base)


async def own_loop() -> None:
    async with await aio.FlussConnection.create(aio.Config()) as connection:
        admin: aio.FlussAdmin = connection.get_admin()
        names: list[str] = await admin.list_databases()
        table: aio.FlussTable = await connection.get_table(aio.TablePath("db", "t"))
        async with table.new_append().create_writer() as writer:
            await writer.append({"id": 1}).wait()
        scanner: aio.LogScanner = await table.new_scan().create_log_scanner()
        records: aio.ScanRecords = await scanner.poll(100)
        print(names, records.count())


def failing() -> None:
    try:
        blocking()
    except fluss.errors.TableNotExistError as error:
        message: str = error.message
        print(message)
    except fluss.FlussError as error:
        code: int = error.error_code
        if error.is_retriable and code != fluss.ErrorCode.TABLE_NOT_EXIST:
            raise
