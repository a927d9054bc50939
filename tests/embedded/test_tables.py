"""Databases and tables: ids, defaults, what is refused and what is not offered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fluss_client.backend.contract import TableChange
from fluss_client.backend.embedded.backend import directory_of
from fluss_client.errors import (
    ConfigError,
    DatabaseNotEmptyError,
    InvalidConfigError,
    InvalidReplicationFactorError,
    SchemaNotExistError,
    SecurityDisabledError,
    TableNotExistError,
    UnknownServerError,
    UnsupportedError,
)
from fluss_client.model.schema import Column, Schema
from fluss_client.model.table import TablePath
from fluss_client.model.types import DataTypes, Field
from tests.embedded.helpers import (
    KEY_SCHEMA,
    append,
    key_table,
    make_table,
    on_loop,
    opened,
    read_rows,
)


def test_the_directory_outlives_its_backends(tmp_path: Path) -> None:
    async def run() -> list[Any]:
        async with opened(tmp_path / "new" / "dir") as backend:
            table = await make_table(backend)
            await append(backend, table, [{"id": 1, "name": "x"}])
        async with opened(tmp_path / "new" / "dir") as backend:
            assert await backend.list_databases() == ["fluss"]
            return await read_rows(backend, await backend.get_table_info(TablePath("fluss", "t")))

    assert on_loop(run()) == [{"id": 1, "name": "x"}]


def test_ids_are_never_given_again(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            first = await make_table(backend)
            await backend.drop_table(first.table_path, False)
            second = await make_table(backend)
            assert second.table_id > first.table_id
            await backend.drop_database("fluss", False, True)
            await backend.create_database("fluss", None, False)
            third = await make_table(backend)
            assert third.table_id > second.table_id
            assert await read_rows(backend, third) == []

    on_loop(run())


def test_a_new_table_gets_what_the_server_fills_in(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            log = await make_table(backend)
            assert (log.num_buckets, log.bucket_keys) == (1, ())
            assert log.properties == {"table.replication.factor": "1"}
            table = await key_table(backend, properties={"table.merge-engine": "first_row"})
            assert table.bucket_keys == ("k",)
            assert table.properties == {
                "table.merge-engine": "first_row",
                "table.replication.factor": "1",
                "table.delete.behavior": "IGNORE",
                "table.kv.format-version": "2",
            }

    on_loop(run())


@pytest.mark.parametrize(
    ("properties", "error"),
    [
        ({"table.merge-engine": "versioned"}, InvalidConfigError),
        (
            {"table.merge-engine": "versioned", "table.merge-engine.versioned.ver-column": "b"},
            UnsupportedError,
        ),
        ({"table.merge-engine": "aggregation"}, UnsupportedError),
        ({"table.replication.factor": "3"}, InvalidReplicationFactorError),
        ({"table.datalake.enabled": "true", "table.datalake.format": "paimon"}, UnsupportedError),
        ({"table.unheard-of": "1"}, InvalidConfigError),
    ],
)
def test_what_is_not_offered_is_refused_before_anything_is_written(
    tmp_path: Path, properties: dict[str, str], error: type[Exception]
) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            with pytest.raises(error):
                await key_table(backend, properties=properties)
            assert await backend.list_tables("fluss") == []

    on_loop(run())


def test_auto_increment_is_not_offered(tmp_path: Path) -> None:
    schema = Schema.of(
        [Column("k", DataTypes.int()), Column("n", DataTypes.bigint())], ["k"], ["n"]
    )

    async def run() -> None:
        async with opened(tmp_path) as backend:
            with pytest.raises(UnsupportedError, match="auto-increment"):
                await make_table(backend, schema=schema)

    on_loop(run())


def test_capabilities_say_no_where_the_calls_do(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            capabilities = backend.capabilities
            assert capabilities.name == "embedded"
            assert capabilities.local_directory == str(tmp_path)
            table = await key_table(backend)
            with pytest.raises(UnsupportedError):
                await backend.list_kv_snapshots(table, None)
            with pytest.raises(UnsupportedError):
                await backend.alter_cluster_configs({"a": "b"}, [])
            with pytest.raises(SecurityDisabledError):
                await backend.list_acls({})
            kinds = {node.server_type for node in await backend.get_server_nodes()}
            assert kinds == {"CoordinatorServer", "TabletServer"}

    on_loop(run())


def test_columns_are_added_with_ids_above_all_others(tmp_path: Path) -> None:
    nested = DataTypes.row([Field("x", DataTypes.int()), Field("y", DataTypes.string())])

    async def run() -> None:
        async with opened(tmp_path) as backend:
            table = await make_table(backend)
            await append(backend, table, [{"id": 1, "name": "old"}])
            change = TableChange(
                add_columns=(Column("r", nested, "a row"), Column("n", DataTypes.bigint()))
            )
            await backend.alter_table(table.table_path, change, False)
            newer = await backend.get_table_info(table.table_path)
            assert newer.schema_id == 2
            assert [(c.name, c.id, c.comment) for c in newer.schema.columns[2:]] == [
                ("r", 2, "a row"),
                ("n", 5, None),
            ]
            await append(backend, newer, [{"id": 2, "name": "new", "r": {"x": 1}, "n": 9}])
            rows = await read_rows(backend, newer)
            assert [row["n"] for row in rows] == [None, 9]
            assert await read_rows(backend, table) == [
                {"id": 1, "name": "old"},
                {"id": 2, "name": "new"},
            ]
            assert (await backend.get_schema(table.table_path, 1))[1] == table.schema
            with pytest.raises(SchemaNotExistError):
                await backend.get_schema(table.table_path, 3)
            refused = TableChange(add_columns=(Column("z", DataTypes.int().with_nullable(False)),))
            with pytest.raises(UnknownServerError):
                await backend.alter_table(table.table_path, refused, False)

    on_loop(run())


def test_a_change_that_fails_leaves_no_trace(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            table = await make_table(backend)
            both = TableChange(
                add_columns=(Column("name", DataTypes.int()),), set_options={"mine": "x"}
            )
            with pytest.raises(Exception, match="exists already"):
                await backend.alter_table(table.table_path, both, False)
            again = await backend.get_table_info(table.table_path)
            assert (again.schema_id, again.custom_properties) == (1, {})

    on_loop(run())


def test_databases_are_emptied_on_request_only(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            await backend.create_database("d", None, False)
            table = await make_table(backend, database="d", schema=KEY_SCHEMA, keys=["k"])
            with pytest.raises(DatabaseNotEmptyError):
                await backend.drop_database("d", False, False)
            await backend.drop_database("d", False, True)
            with pytest.raises(TableNotExistError):
                await backend.get_table_info(table.table_path)

    on_loop(run())


def test_an_address_becomes_an_absolute_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert directory_of("embedded:~/data") == Path("/home/somebody/data")
    assert directory_of("embedded:a/../b") == Path.cwd() / "b"
    with pytest.raises(ConfigError, match="names no directory"):
        directory_of("embedded:")


def test_names_never_become_paths(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path / "d") as backend:
            for name in ("../x", "a/b", "..", "a\x00b"):
                with pytest.raises(Exception, match="cannot name"):
                    await backend.create_database(name, None, False)
                with pytest.raises(Exception, match="cannot name"):
                    await make_table(backend, name, pa.schema([("a", pa.int32())]))

    on_loop(run())
    assert {file.name for file in tmp_path.iterdir()} == {"d"}
