"""Lake snapshots, the tiering rounds, producer offsets, and the Iceberg table beside a table."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from fluss_client.backend.contract import TableChange
from fluss_client.backend.embedded.backend import EmbeddedBackend
from fluss_client.backend.embedded.lake import tiering
from fluss_client.errors import (
    FencedTieringEpochError,
    InvalidAlterTableError,
    InvalidCoordinatorError,
    InvalidProducerIdError,
    InvalidTableError,
    LakeSnapshotNotExistError,
    LakeTableAlreadyExistError,
    MissingExtraError,
    TableNotExistError,
    UnknownServerError,
)
from fluss_client.model.cluster import BucketCommit, HeartbeatResult, TieringTable
from fluss_client.model.schema import Column, Schema
from fluss_client.model.table import TableBucket, TableDescriptor, TableInfo, TablePath
from fluss_client.model.types import DataTypes
from tests.embedded.helpers import make_table, on_loop, opened, place_of
from tests.waiting import moment_between, wait_until_async

LAKE = {"table.datalake.enabled": "true", "table.datalake.freshness": "10 ms"}


async def beat(
    backend: EmbeddedBackend,
    *,
    tiering: list[TieringTable] | None = None,
    finished: list[TieringTable] | None = None,
    failed: list[TieringTable] | None = None,
    ask: bool = False,
    forced: list[int] | None = None,
) -> HeartbeatResult:
    return await backend.lake_tiering_heartbeat(
        tiering or [], finished or [], failed or [], ask, forced or []
    )


async def given(backend: EmbeddedBackend) -> TieringTable | None:
    return (await beat(backend, ask=True)).table


async def given_soon(backend: EmbeddedBackend) -> TieringTable:
    """A table as soon as its freshness has passed."""
    table = await wait_until_async("a table", lambda: given(backend), pause_s=0.01)
    assert table is not None
    return table


def test_a_table_is_handed_out_when_its_freshness_has_passed(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            table = await make_table(backend, properties=LAKE)
            slow = LAKE | {"table.datalake.freshness": "1 d"}
            await make_table(backend, "slow", properties=slow)
            first = await given_soon(backend)
            assert (first.table_id, first.tiering_epoch) == (table.table_id, 1)
            assert first.table_path == table.table_path
            assert await given(backend) is None
            assert (await beat(backend, tiering=[first])).errors == {}
            assert (await beat(backend, finished=[first])).errors == {}
            second = await given_soon(backend)
            assert second.tiering_epoch == 2
            # A round that failed, or that was cut short, is due again at once.
            await beat(backend, failed=[second])
            third = await given(backend)
            assert third is not None
            await beat(backend, finished=[third], forced=[table.table_id])
            fourth = await given(backend)
            assert fourth is not None
            assert (third.tiering_epoch, fourth.tiering_epoch) == (3, 4)

    on_loop(run())


def test_a_worker_that_was_given_up_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            table = await make_table(backend, properties=LAKE)
            await given_soon(backend)
            monkeypatch.setattr(tiering, "WORKER_TIMEOUT_MS", 0)
            taken = await given(backend)
            assert taken is not None
            assert taken.tiering_epoch == 2
            monkeypatch.undo()

            async def error_of(table_id: int, epoch: int, coordinator: int) -> object:
                said = TieringTable(table_id, epoch, coordinator)
                return type((await beat(backend, tiering=[said])).errors[table_id])

            assert await error_of(table.table_id, 1, 0) is FencedTieringEpochError
            assert await error_of(table.table_id, 2, 7) is InvalidCoordinatorError
            assert await error_of(999, 1, 0) is TableNotExistError
            await beat(backend, finished=[taken])
            assert await error_of(table.table_id, 2, 0) is UnknownServerError
            await backend.drop_table(table.table_path, False)
            assert await error_of(table.table_id, 2, 0) is TableNotExistError

    on_loop(run())


def test_snapshots_are_laid_over_each_other_and_kept_as_told(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            table = await make_table(backend, bucket_count=2, properties=LAKE)
            zero, one = place_of(table, 0), place_of(table, 1)

            async def commit(
                snapshot: int, offsets: dict[TableBucket, int], keep: int | None, ignore: bool
            ) -> None:
                path = await backend.prepare_lake_snapshot(table, offsets, ignore)
                buckets = [BucketCommit(b, end, 5) for b, end in offsets.items()]
                await backend.commit_lake_snapshot(table, snapshot, path, buckets, keep)

            async def seen(
                snapshot: int | None = None, readable: bool = False
            ) -> tuple[int, dict[int, int]]:
                found = await backend.get_lake_snapshot(table.table_path, snapshot, readable)
                offsets = found.table_buckets_offset
                return found.snapshot_id, {b.bucket_id: end for b, end in offsets.items()}

            with pytest.raises(LakeSnapshotNotExistError):
                await seen()
            await commit(11, {zero: 5}, None, False)
            await commit(22, {one: 7}, -1, False)
            assert await seen() == await seen(readable=True) == (22, {0: 5, 1: 7})
            assert await seen(11) == (11, {0: 5})
            await commit(33, {one: 9}, 22, True)
            assert await seen() == (33, {1: 9})
            with pytest.raises(LakeSnapshotNotExistError):
                await seen(11)
            await commit(44, {}, None, False)
            with pytest.raises(LakeSnapshotNotExistError):
                await seen(33)
            with pytest.raises(UnknownServerError):
                await seen(44, readable=True)
            with pytest.raises(UnknownServerError, match="prepared"):
                await backend.commit_lake_snapshot(table, 55, "made-up", [], None)

    on_loop(run())


def test_producer_offsets_belong_to_the_first(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            offsets = {TableBucket(1, 0): 5, TableBucket(2, 1, partition_id=4): 9}
            assert await backend.get_producer_offsets("p") is None
            made = await asyncio.gather(
                *(backend.register_producer_offsets("p", offsets, None) for _ in range(8))
            )
            assert sorted(made) == [False] * 7 + [True]
            found = await backend.get_producer_offsets("p")
            assert found is not None
            assert dict(found.offsets) == offsets
            await backend.delete_producer_offsets("p")
            assert await backend.get_producer_offsets("p") is None
            assert await backend.register_producer_offsets("p", {}, 1)
            moment_between()  # longer than the 1 ms that they are kept
            assert await backend.get_producer_offsets("p") is not None
            assert await backend.register_producer_offsets("p", offsets, 1)
            for bad in ("", "a.b", "x" * 201):
                with pytest.raises(InvalidProducerIdError):
                    await backend.get_producer_offsets(bad)

    on_loop(run())


def iceberg_table(table: TableInfo) -> object:
    """The lake's table, found by what the table shows about the catalog."""
    from pyiceberg.catalog.sql import SqlCatalog

    shown = {
        key.removeprefix("table.datalake.iceberg."): value
        for key, value in table.properties.items()
        if key.startswith("table.datalake.iceberg.")
    }
    assert shown["type"] == "jdbc"
    catalog = SqlCatalog(
        "fluss-iceberg-catalog",
        uri="sqlite:///" + shown["uri"].removeprefix("jdbc:sqlite:"),
        warehouse=shown["warehouse"],
    )
    return catalog.load_table((table.table_path.database_name, table.table_path.table_name))


def test_the_lake_table_is_made_as_a_coordinator_makes_it(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            pa.field("a", pa.int32(), metadata={"comment": "the key"}),
            ("s", pa.struct([("x", pa.int8()), ("y", pa.list_(pa.int64()))])),
            ("m", pa.map_(pa.string(), pa.float32())),
            ("p", pa.string()),
            ("d", pa.decimal128(10, 2)),
            ("t", pa.timestamp("us", tz="UTC")),
        ]
    )

    async def run() -> TableInfo:
        async with opened(tmp_path / "with space") as backend:
            return await make_table(
                backend,
                schema=schema,
                partition_keys=["p"],
                bucket_count=3,
                properties=LAKE,
                custom_properties={"mine": "x", "iceberg.write.format.default": "parquet"},
            )

    made = iceberg_table(on_loop(run()))
    assert str(made.schema()) == "\n".join(  # type: ignore[attr-defined]
        (
            "table {",
            "  1: a: optional int (the key)",
            "  2: s: optional struct<10: x: optional int, 11: y: optional list<long>>",
            "  3: m: optional map<string, float>",
            "  4: p: optional string",
            "  5: d: optional decimal(10, 2)",
            "  6: t: optional timestamptz",
            "  7: __bucket: required int",
            "  8: __offset: required long",
            "  9: __timestamp: required timestamptz",
            "}",
        )
    )
    spec = [(f.name, str(f.transform), f.source_id) for f in made.spec().fields]  # type: ignore[attr-defined]
    assert spec == [("p", "identity", 4), ("__bucket", "identity", 7)]
    order = [(f.source_id, str(f.direction)) for f in made.sort_order().fields]  # type: ignore[attr-defined]
    assert order == [(8, "ASC")]
    properties = made.properties  # type: ignore[attr-defined]
    assert properties["fluss.mine"] == "x"
    assert properties["fluss.table.datalake.format"] == "iceberg"
    assert properties["write.format.default"] == "parquet"


def test_a_key_table_in_the_lake(tmp_path: Path) -> None:
    schema = Schema(pa.schema([("k", pa.int64()), ("v", pa.string())]), primary_keys=["k"])

    async def run() -> TableInfo:
        async with opened(tmp_path) as backend:
            return await make_table(backend, schema=schema, bucket_count=4, properties=LAKE)

    made = iceberg_table(on_loop(run()))
    assert made.schema().identifier_field_ids == [1]  # type: ignore[attr-defined]
    assert [(f.name, str(f.transform)) for f in made.spec().fields] == [  # type: ignore[attr-defined]
        ("k_bucket", "bucket[4]")
    ]
    assert made.properties["write.merge.mode"] == "merge-on-read"  # type: ignore[attr-defined]


def test_what_iceberg_cannot_hold(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.int32()), ("b", pa.bool_()), ("c", pa.string())])

    async def run() -> None:
        async with opened(tmp_path) as backend:

            async def refused(error: type[Exception], **details: object) -> None:
                with pytest.raises(error):
                    await make_table(backend, "r", schema, properties=LAKE, **details)

            await refused(UnknownServerError, bucket_keys=["a", "c"])
            await refused(UnknownServerError, bucket_keys=["b"])
            await refused(InvalidTableError, partition_keys=["a"])
            table = await make_table(backend, schema=schema, properties=LAKE)
            more = TableChange(add_columns=(Column("n", DataTypes.int()),))
            with pytest.raises(UnknownServerError):
                await backend.alter_table(table.table_path, more, False)
            await backend.drop_table(table.table_path, False)
            await refused_again(backend, table)

    async def refused_again(backend: EmbeddedBackend, table: TableInfo) -> None:
        # As on a cluster, the lake's table stays behind when its table goes.
        with pytest.raises(LakeTableAlreadyExistError):
            await make_table(backend, schema=schema, properties=LAKE)
        assert not await backend.table_exists(table.table_path)

    on_loop(run())


def test_the_lake_can_be_turned_on_later_where_the_format_was_set(tmp_path: Path) -> None:
    turn_on = TableChange(set_options={"table.datalake.enabled": "true"})

    async def run() -> None:
        async with opened(tmp_path) as backend:
            plain = await make_table(backend, "plain")
            with pytest.raises(InvalidAlterTableError):
                await backend.alter_table(plain.table_path, turn_on, False)
            ready = await make_table(
                backend, "ready", properties={"table.datalake.format": "iceberg"}
            )
            await backend.alter_table(ready.table_path, turn_on, False)
            iceberg_table(await backend.get_table_info(ready.table_path))

    on_loop(run())


def test_a_lake_needs_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.split(".")[0] == "pyiceberg"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyiceberg", None)

    async def run() -> None:
        async with opened(tmp_path) as backend:
            descriptor = TableDescriptor(
                Schema(pa.schema([("a", pa.int32())])), properties=dict(LAKE)
            )
            with pytest.raises(MissingExtraError, match="lake"):
                await backend.create_table(TablePath("fluss", "t"), descriptor, False)
            assert await backend.list_tables("fluss") == []

    on_loop(run())
