"""The older Python guide's programs, as they stand there but for the import and the address."""

# ruff: noqa: C420 (as the guide writes it)

from __future__ import annotations

import asyncio
import datetime as dt
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import fluss_client as fluss


def test_quick_start(address: str, database: str) -> None:
    async def main() -> Any:
        config = fluss.Config({"bootstrap.servers": address})
        conn = await fluss.FlussConnection.connect(config)
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
        table_path = fluss.TablePath(database, "quick_start")
        await admin.create_table(table_path, fluss.TableDescriptor(schema), ignore_if_exists=True)

        table = await conn.get_table(table_path)
        writer = await table.new_append_writer()
        writer.append({"id": 1, "name": "Alice", "score": 95.5})
        writer.append({"id": 2, "name": "Bob", "score": 87.0})
        await writer.flush()

        num_buckets = (await admin.get_table(table_path)).num_buckets
        scanner = await table.new_scan().create_batch_scanner()
        scanner.subscribe_buckets({i: fluss.EARLIEST_OFFSET for i in range(num_buckets)})
        frame = scanner.to_pandas()

        await admin.drop_table(table_path, ignore_if_not_exists=True)
        conn.close()
        return frame

    frame = asyncio.run(main())
    assert isinstance(frame, pd.DataFrame)
    assert sorted(frame["name"]) == ["Alice", "Bob"]
    assert sorted(frame["score"]) == [87.0, 95.5]


def test_connection_in_a_with_statement_and_admin(address: str, database: str) -> None:
    async def main() -> None:
        config = fluss.Config(
            {
                "bootstrap.servers": address,
                "request.max.size": "10485760",
                "writer.acks": "all",
                "writer.retries": "2147483647",
                "writer.batch.size": "2097152",
            }
        )
        with await fluss.FlussConnection.connect(config) as conn:
            admin = await conn.get_admin()
            name = f"{database}_more"
            await admin.create_database(name, ignore_if_exists=True)
            databases = await admin.list_databases()
            assert name in databases
            assert await admin.database_exists(name)
            await admin.drop_database(name, ignore_if_not_exists=True, cascade=True)
            assert not await admin.database_exists(name)

            table_path = fluss.TablePath(database, "my_table")
            schema = fluss.Schema(
                pa.schema(
                    [
                        pa.field("id", pa.int32()),
                        pa.field("name", pa.string()),
                        pa.field("amount", pa.int64()),
                    ]
                )
            )
            await admin.create_table(
                table_path, fluss.TableDescriptor(schema, bucket_count=2), ignore_if_exists=True
            )
            table_info = await admin.get_table(table_path)
            assert table_info.num_buckets == 2
            assert await admin.list_tables(database) == ["my_table"]

            offsets = await admin.list_offsets(table_path, bucket_ids=[0, 1], offset_type="latest")
            assert offsets == {0: 0, 1: 0}
            offsets = await admin.list_offsets(
                table_path, bucket_ids=[0], offset_type="timestamp", timestamp=1704067200000
            )
            assert offsets == {0: 0}
            await admin.drop_table(table_path, ignore_if_not_exists=True)

    asyncio.run(main())


def test_log_tables(address: str, database: str) -> None:
    async def main() -> None:
        conn = await fluss.FlussConnection.connect(fluss.Config({"bootstrap.servers": address}))
        admin = await conn.get_admin()
        table_path = fluss.TablePath(database, "events")
        arrow_schema = pa.schema(
            [
                pa.field("id", pa.int32()),
                pa.field("name", pa.string()),
                pa.field("score", pa.float32()),
            ]
        )
        await admin.create_table(table_path, fluss.TableDescriptor(fluss.Schema(arrow_schema)))
        num_buckets = (await admin.get_table(table_path)).num_buckets

        table = await conn.get_table(table_path)
        newest = await table.new_scan().create_batch_scanner()
        newest.subscribe(bucket_id=0, start_offset=fluss.LATEST_OFFSET)
        writer = await table.new_append_writer()

        writer.append({"id": 1, "name": "Alice", "score": 95.5})
        writer.append([2, "Bob", 87.0])
        await writer.flush()
        handle = writer.append({"id": 3, "name": "Charlie", "score": 91.0})
        await handle.wait()

        pa_table = pa.table({"id": [4, 5], "name": ["D", "E"], "score": [1.0, 2.0]}, arrow_schema)
        record_batch = pa_table.to_batches()[0]
        df = pa_table.to_pandas()
        writer.write_arrow(pa_table)
        writer.write_arrow_batch(record_batch)
        writer.write_pandas(df)
        await writer.flush()

        scanner = await table.new_scan().create_batch_scanner()
        scanner.subscribe_buckets({i: fluss.EARLIEST_OFFSET for i in range(num_buckets)})
        arrow_table = scanner.to_arrow()
        assert arrow_table["id"].to_pylist() == [1, 2, 3, 4, 5, 4, 5, 4, 5]

        scanner = await table.new_scan().create_batch_scanner()
        scanner.subscribe(bucket_id=0, start_offset=fluss.EARLIEST_OFFSET)
        rows = 0
        while rows < 9:
            result = scanner.poll_arrow(timeout_ms=5000)
            rows += result.num_rows
            assert result.num_rows > 0
        assert newest.poll_arrow(timeout_ms=5000).num_rows > 0

        scanner = await table.new_scan().create_log_scanner()
        scanner.subscribe_buckets({i: fluss.EARLIEST_OFFSET for i in range(num_buckets)})
        lines: list[str] = []
        while len(lines) < 9:
            polled = scanner.poll(timeout_ms=5000)
            lines += [
                f"offset={record.offset}, change={record.change_type.short_string()}, "
                f"row={record.row}"
                for record in polled
            ]
        assert lines[0] == "offset=0, change=+A, row={'id': 1, 'name': 'Alice', 'score': 95.5}"

        scanner = await table.new_scan().project([0, 2]).create_batch_scanner()
        scanner.subscribe(bucket_id=0, start_offset=fluss.EARLIEST_OFFSET)
        assert scanner.to_arrow().column_names == ["id", "score"]
        scanner = await table.new_scan().project_by_name(["id", "score"]).create_batch_scanner()
        scanner.subscribe(bucket_id=0, start_offset=7)
        assert scanner.to_pandas()["id"].tolist() == [4, 5]
        batches = scanner.poll_batches(timeout_ms=0)
        assert batches == []
        conn.close()

    asyncio.run(main())


def test_primary_key_tables(address: str, database: str) -> None:
    async def main() -> None:
        conn = await fluss.FlussConnection.connect(fluss.Config({"bootstrap.servers": address}))
        admin = await conn.get_admin()
        schema = fluss.Schema(
            pa.schema(
                [
                    pa.field("id", pa.int32()),
                    pa.field("name", pa.string()),
                    pa.field("age", pa.int64()),
                ]
            ),
            primary_keys=["id"],
        )
        table_path = fluss.TablePath(database, "users")
        await admin.create_table(
            table_path, fluss.TableDescriptor(schema, bucket_count=3), ignore_if_exists=True
        )
        table = await conn.get_table(table_path)

        writer = table.new_upsert()
        writer.upsert({"id": 1, "name": "Alice", "age": 25})
        writer.upsert({"id": 2, "name": "Bob", "age": 30})
        await writer.flush()
        handle = writer.upsert({"id": 3, "name": "Charlie", "age": 35})
        await handle.wait()
        handle = writer.delete({"id": 2})
        await handle.wait()

        lookuper = table.new_lookup()
        result = await lookuper.lookup({"id": 1})
        assert result
        assert f"Found: name={result['name']}, age={result['age']}" == "Found: name=Alice, age=25"
        assert await lookuper.lookup({"id": 2}) is None

        partial_writer = table.new_upsert(columns=["id", "age"])
        partial_writer.upsert({"id": 1, "age": 27})
        await partial_writer.flush()
        assert await lookuper.lookup({"id": 1}) == {"id": 1, "name": "Alice", "age": 27}
        conn.close()

    asyncio.run(main())


@pytest.mark.supports("Scan of a partitioned table")
def test_partitioned_tables(address: str, database: str) -> None:
    async def main() -> None:
        conn = await fluss.FlussConnection.connect(fluss.Config({"bootstrap.servers": address}))
        admin = await conn.get_admin()
        schema = fluss.Schema(
            pa.schema(
                [
                    pa.field("id", pa.int32()),
                    pa.field("region", pa.string()),
                    pa.field("value", pa.int64()),
                ]
            )
        )
        table_path = fluss.TablePath(database, "partitioned_events")
        await admin.create_table(
            table_path,
            fluss.TableDescriptor(schema, partition_keys=["region"], bucket_count=1),
            ignore_if_exists=True,
        )
        await admin.create_partition(table_path, {"region": "US"}, ignore_if_exists=True)
        await admin.create_partition(table_path, {"region": "EU"}, ignore_if_exists=True)
        partition_infos = await admin.list_partition_infos(table_path)

        table = await conn.get_table(table_path)
        writer = await table.new_append_writer()
        writer.append({"id": 1, "region": "US", "value": 100})
        writer.append({"id": 2, "region": "EU", "value": 200})
        await writer.flush()
        offsets = await admin.list_partition_offsets(
            table_path, partition_name="US", bucket_ids=[0], offset_type="latest"
        )
        assert offsets == {0: 1}

        scanner = await table.new_scan().create_batch_scanner()
        for p in partition_infos:
            scanner.subscribe_partition(
                partition_id=p.partition_id, bucket_id=0, start_offset=fluss.EARLIEST_OFFSET
            )
        scanner.subscribe_partition_buckets(
            {(p.partition_id, 0): fluss.EARLIEST_OFFSET for p in partition_infos}
        )
        assert sorted(scanner.to_pandas()["value"]) == [100, 200]

        schema = fluss.Schema(
            pa.schema(
                [
                    pa.field("user_id", pa.int32()),
                    pa.field("region", pa.string()),
                    pa.field("score", pa.int64()),
                ]
            ),
            primary_keys=["user_id", "region"],
        )
        table_path = fluss.TablePath(database, "partitioned_users")
        await admin.create_table(
            table_path,
            fluss.TableDescriptor(schema, partition_keys=["region"]),
            ignore_if_exists=True,
        )
        await admin.create_partition(table_path, {"region": "US"}, ignore_if_exists=True)
        table = await conn.get_table(table_path)
        upserts = table.new_upsert()
        upserts.upsert({"user_id": 1, "region": "US", "score": 1234})
        await upserts.flush()
        result = await table.new_lookup().lookup({"user_id": 1, "region": "US"})
        assert result == {"user_id": 1, "region": "US", "score": 1234}
        conn.close()

    asyncio.run(main())


def test_errors_and_types(address: str, database: str) -> None:
    async def main() -> None:
        conn = await fluss.FlussConnection.connect(fluss.Config({"bootstrap.servers": address}))
        admin = await conn.get_admin()
        table_path = fluss.TablePath(database, "typed")
        fields = [
            ("b", pa.bool_()),
            ("i8", pa.int8()),
            ("i16", pa.int16()),
            ("i32", pa.int32()),
            ("i64", pa.int64()),
            ("f32", pa.float32()),
            ("f64", pa.float64()),
            ("s", pa.string()),
            ("raw", pa.binary()),
            ("d", pa.date32()),
            ("t", pa.time32("ms")),
            ("ts", pa.timestamp("us")),
            ("ltz", pa.timestamp("us", tz="UTC")),
            ("dec", pa.decimal128(10, 2)),
        ]
        descriptor = fluss.TableDescriptor(fluss.Schema(pa.schema(fields)))
        await admin.create_table(table_path, descriptor)
        with pytest.raises(fluss.FlussError) as raised:
            await admin.create_table(table_path, descriptor)
        assert "typed" in raised.value.message

        row = {
            "b": True,
            "i8": 1,
            "i16": 2,
            "i32": 3,
            "i64": 4,
            "f32": 0.5,
            "f64": 0.25,
            "s": "text",
            "raw": b"bytes",
            "d": dt.date(2024, 1, 2),
            "t": dt.time(3, 4, 5, 678000),
            "ts": dt.datetime(2024, 1, 2, 3, 4, 5, 678901),
            "ltz": dt.datetime(2024, 1, 2, 3, 4, 5, 678901, tzinfo=dt.UTC),
            "dec": Decimal("12.50"),
        }
        table = await conn.get_table(table_path)
        writer = await table.new_append_writer()
        writer.append(row)
        await writer.flush()
        scanner = await table.new_scan().create_log_scanner()
        scanner.subscribe(0, fluss.EARLIEST_OFFSET)
        assert scanner.poll(timeout_ms=5000)[0].row == row
        conn.close()

    asyncio.run(main())
