"""The newer Python guide's programs, as they stand there but for the import and the address."""

# ruff: noqa: C420 (as the guide writes it)

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

import fluss_client as fluss
from tests.waiting import scaled


@pytest.mark.supports("Scan of a log", "Scan to the end", "Append of rows")
def test_writing_and_reading(address: str, database: str) -> None:
    async def main() -> None:
        conn = await fluss.FlussConnection.create(fluss.Config({"bootstrap.servers": address}))
        admin = await conn.get_admin()
        schema = fluss.Schema(
            pa.schema(
                [
                    pa.field("id", pa.int32()),
                    pa.field("name", pa.string()),
                    pa.field("score", pa.float32()),
                ]
            )
        )
        table_path = fluss.TablePath(database, "events")
        await admin.create_table(table_path, fluss.TableDescriptor(schema), ignore_if_exists=True)

        table = await conn.get_table(table_path)
        writer = table.new_append().create_writer()
        writer.append({"id": 1, "name": "Alice", "score": 95.5})
        writer.append([2, "Bob", 87.0])
        await writer.flush()
        handle = writer.append({"id": 3, "name": "Charlie", "score": 91.0})
        await handle.wait()

        num_buckets = (await admin.get_table_info(table_path)).num_buckets
        scanner = await table.new_scan().create_record_batch_log_scanner()
        scanner.subscribe_buckets({i: fluss.EARLIEST_OFFSET for i in range(num_buckets)})
        arrow_table = scanner.to_arrow()
        df = scanner.to_pandas()
        assert arrow_table.num_rows == 3
        assert df.to_dict("list") == arrow_table.to_pydict()

        scanner = await table.new_scan().create_log_scanner()
        scanner.subscribe_buckets({i: fluss.EARLIEST_OFFSET for i in range(num_buckets)})
        scan_records = scanner.poll(timeout_ms=5000)
        while len(scan_records) < 3:
            scan_records = scanner.poll(timeout_ms=5000)
        assert scan_records[0].offset == 0
        assert scan_records[-1].offset == 2
        assert [record.offset for record in scan_records[:5]] == [0, 1, 2]
        for bucket, records in scan_records.items():
            assert bucket in scan_records
            assert scan_records[bucket] == records == scan_records.records(bucket)
            for record in records:
                line = f"bucket={bucket.bucket_id}, offset={record.offset}, row={record.row}"
                assert line.startswith("bucket=0, offset=")
        assert [r.row["id"] for r in scan_records] == [1, 2, 3]
        assert scan_records.count() == len(scan_records) == 3
        assert scan_records.keys() == scan_records.buckets()
        assert [len(records) for records in scan_records.values()] == [3]
        assert not scan_records.is_empty()
        assert scan_records.records(fluss.TableBucket(table_id=1, bucket=99)) == []
        scanner.unsubscribe(bucket_id=0)

        offsets = await admin.list_offsets(table_path, [0], fluss.OffsetSpec.latest())
        latest = offsets[0]
        scanner = await table.new_scan().create_record_batch_log_scanner()
        scanner.subscribe(bucket_id=0, start_offset=latest)
        assert scanner.poll_arrow(timeout_ms=10).num_rows == 0
        writer.append({"id": 4, "name": "new", "score": 1.0})
        await writer.flush()
        batches = scanner.poll_record_batch(timeout_ms=5000)
        assert [(b.base_offset, b.last_offset, b.bucket.bucket_id) for b in batches] == [(3, 3, 0)]
        assert batches[0].batch["name"].to_pylist() == ["new"]
        conn.close()

    asyncio.run(main())


def test_admin_operations(address: str, database: str) -> None:
    async def main() -> None:
        conn = await fluss.FlussConnection.create(fluss.Config({"bootstrap.servers": address}))
        admin = await conn.get_admin()
        table_path = fluss.TablePath(database, "my_table")
        schema = fluss.Schema(pa.schema([("id", pa.int32()), ("region", pa.string())]))
        await admin.create_table(
            table_path,
            fluss.TableDescriptor(
                schema,
                bucket_count=2,
                properties={"table.replication.factor": "1"},
                custom_properties={"owner": "me"},
            ),
        )
        offsets = await admin.list_offsets(
            table_path, bucket_ids=[0, 1], offset_spec=fluss.OffsetSpec.latest()
        )
        assert offsets == {0: 0, 1: 0}
        offsets = await admin.list_offsets(
            table_path, bucket_ids=[0], offset_spec=fluss.OffsetSpec.timestamp(1704067200000)
        )
        assert offsets == {0: 0}
        with pytest.raises(fluss.FlussError) as raised:
            await admin.get_latest_lake_snapshot(table_path)
        assert raised.value.error_code == fluss.ErrorCode.LAKE_SNAPSHOT_NOT_EXIST
        for node in await admin.get_server_nodes():
            assert node.uid.startswith(("cs-", "ts-"))
        conn.close()

    asyncio.run(main())


def test_the_same_without_an_event_loop(address: str, database: str) -> None:
    config = fluss.Config({"bootstrap.servers": address})
    with fluss.FlussConnection.create(config).result() as connection:
        admin = connection.get_admin().result()
        path = fluss.TablePath(database, "blocking")
        schema = fluss.Schema(pa.schema([("id", pa.int64()), ("v", pa.string())]), ["id"])
        admin.create_table(path, fluss.TableDescriptor(schema)).result()
        table = connection.get_table(path).result()
        with table.new_upsert().create_writer() as writer:
            writer.upsert({"id": 1, "v": "a"}).wait().result()
        assert table.new_lookup().create_lookuper().lookup({"id": 1}).result(
            timeout=scaled(10)
        ) == {
            "id": 1,
            "v": "a",
        }
