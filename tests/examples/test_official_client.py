"""One program, written for the official client, run with that client and with ours."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

import pyarrow as pa
import pytest

from tests.needs import unavailable


@pytest.mark.parametrize("module", ["fluss", "fluss_client.aio"])
def test_one_changed_import(module: str, address: str, database: str) -> None:
    try:
        fluss = importlib.import_module(module)
    except ImportError:
        unavailable("the official client (pyfluss 1.0.0)")
    asyncio.run(_program(fluss, address, database))


async def _program(fluss: Any, address: str, database: str) -> None:
    config = fluss.Config({"bootstrap.servers": address})
    config.writer_batch_timeout_ms = 10
    async with await fluss.FlussConnection.create(config) as conn:
        admin = conn.get_admin()
        await _log_table(fluss, conn, admin, fluss.TablePath(database, "events"))
        await _key_table(fluss, conn, admin, fluss.TablePath(database, "users"))
        await _partitions(fluss, conn, admin, fluss.TablePath(database, "days"))
        await _failures(fluss, conn, admin, database)
        nodes = await admin.get_server_nodes()
        assert {node.server_type for node in nodes} == {"CoordinatorServer", "TabletServer"}


async def _log_table(fluss: Any, conn: Any, admin: Any, path: Any) -> None:
    arrow = pa.schema([("id", pa.int32()), ("name", pa.string()), ("score", pa.float64())])
    await admin.create_table(
        path, fluss.TableDescriptor(fluss.Schema(arrow), bucket_count=1, comment="events")
    )
    info = await admin.get_table_info(path)
    assert (info.num_buckets, info.comment, info.has_primary_key()) == (1, "events", False)
    table = await conn.get_table(path)
    async with table.new_append().create_writer() as writer:
        writer.append({"id": 1, "name": "a", "score": 0.5})
        handle = writer.append((2, "b", None))
        await handle.wait()
        writer.write_arrow(pa.table({"id": [3, 4], "name": ["c", "d"], "score": [1.5, 2.5]}, arrow))
        await writer.flush()

    scanner = await table.new_scan().create_record_batch_log_scanner()
    scanner.subscribe(bucket_id=0, start_offset=fluss.EARLIEST_OFFSET)
    whole = await scanner.to_arrow()
    assert whole.to_pylist() == [
        {"id": 1, "name": "a", "score": 0.5},
        {"id": 2, "name": "b", "score": None},
        {"id": 3, "name": "c", "score": 1.5},
        {"id": 4, "name": "d", "score": 2.5},
    ]
    scanner = await table.new_scan().project_by_name(["score", "id"]).create_log_scanner()
    scanner.subscribe_buckets({0: 1})
    rows = []
    while len(rows) < 3:
        records = await scanner.poll(5000)
        rows += [(record.offset, record.change_type, record.row) for record in records]
    assert rows[0] == (1, fluss.ChangeType.AppendOnly, {"score": None, "id": 2})
    offsets = await admin.list_offsets(path, [0], fluss.OffsetSpec.latest())
    assert offsets == {0: 4}

    bucket = fluss.TableBucket(info.table_id, 0)
    limited = table.new_scan().limit(2).create_bucket_batch_scanner(bucket)
    assert (await limited.to_arrow()).num_rows == 2


async def _key_table(fluss: Any, conn: Any, admin: Any, path: Any) -> None:
    schema = fluss.Schema(
        pa.schema([("id", pa.int64()), ("name", pa.string()), ("age", pa.int32())]),
        primary_keys=["id"],
    )
    await admin.create_table(path, fluss.TableDescriptor(schema, bucket_count=1))
    table = await conn.get_table(path)
    writer = table.new_upsert().create_writer()
    writer.upsert({"id": 1, "name": "Alice", "age": 25})
    writer.upsert([2, "Bob", 30])
    await writer.flush()
    await writer.delete({"id": 2}).wait()
    partial = table.new_upsert().partial_update_by_name(["id", "age"]).create_writer()
    await partial.upsert({"id": 1, "age": 26}).wait()

    lookuper = table.new_lookup().create_lookuper()
    assert await lookuper.lookup({"id": 1}) == {"id": 1, "name": "Alice", "age": 26}
    assert await lookuper.lookup({"id": 2}) is None

    scanner = await table.new_scan().create_log_scanner()
    scanner.subscribe(0, fluss.EARLIEST_OFFSET)
    changes = []
    while len(changes) < 5:
        changes += [
            (r.change_type.short_string(), r.row["id"], r.row["age"])
            for r in await scanner.poll(5000)
        ]
    assert changes == [
        ("+I", 1, 25),
        ("+I", 2, 30),
        ("-D", 2, 30),
        ("-U", 1, 25),
        ("+U", 1, 26),
    ]


async def _partitions(fluss: Any, conn: Any, admin: Any, path: Any) -> None:
    schema = fluss.Schema(pa.schema([("id", pa.int32()), ("day", pa.string())]))
    await admin.create_table(
        path, fluss.TableDescriptor(schema, partition_keys=["day"], bucket_count=1)
    )
    for day in ("monday", "tuesday"):
        await admin.create_partition(path, {"day": day})
    infos = await admin.list_partition_infos(path)
    assert sorted(info.partition_name for info in infos) == ["monday", "tuesday"]
    table = await conn.get_table(path)
    writer = table.new_append().create_writer()
    writer.append({"id": 1, "day": "monday"})
    writer.append({"id": 2, "day": "tuesday"})
    await writer.flush()
    scanner = await table.new_scan().create_record_batch_log_scanner()
    scanner.subscribe_partition_buckets(
        {(info.partition_id, 0): fluss.EARLIEST_OFFSET for info in infos}
    )
    found = await scanner.to_arrow()
    assert sorted(found["id"].to_pylist()) == [1, 2]
    assert await admin.list_partition_offsets(path, "monday", [0], fluss.OffsetSpec.latest()) == {
        0: 1
    }


async def _failures(fluss: Any, conn: Any, admin: Any, database: str) -> None:
    with pytest.raises(fluss.FlussError) as raised:
        await admin.get_table_info(fluss.TablePath(database, "missing"))
    assert raised.value.error_code == fluss.ErrorCode.TABLE_NOT_EXIST
    assert "missing" in raised.value.message
    assert not raised.value.is_retriable
    with pytest.raises(fluss.FlussError) as raised:
        await admin.create_database(database)
    assert raised.value.error_code == fluss.ErrorCode.DATABASE_ALREADY_EXIST
