"""What expires, what is kept, and how room is given back."""

from __future__ import annotations

from pathlib import Path

import pytest

from fluss_client.backend.embedded.backend import EmbeddedBackend
from fluss_client.backend.embedded.maintenance import check, vacuum
from fluss_client.backend.embedded.store.errors import EmbeddedFormatError
from fluss_client.errors import LogOffsetOutOfRangeError
from fluss_client.model.cluster import BucketCommit, OffsetSpec
from fluss_client.model.table import TableInfo, TablePath
from tests.embedded.helpers import (
    append,
    key_state,
    key_table,
    make_table,
    on_loop,
    opened,
    place_of,
    read_log,
    read_rows,
    upsert,
)
from tests.waiting import moment_between

SHORT = {"table.log.ttl": "1 ms"}


async def earliest(backend: EmbeddedBackend, table: TableInfo) -> int:
    return (await backend.list_offsets(table, None, [0], OffsetSpec.earliest()))[0]


def test_vacuum_drops_expired_batches_and_the_log_starts_later(tmp_path: Path) -> None:
    async def fill() -> TableInfo:
        async with opened(tmp_path) as backend:
            table = await make_table(backend, properties=SHORT)
            kept = await make_table(backend, "kept")
            for n in range(3):
                await append(backend, table, [{"id": n, "name": "x" * 100_000}])
                await append(backend, kept, [{"id": n, "name": "x"}])
            return table

    async def look(table: TableInfo) -> None:
        async with opened(tmp_path) as backend:
            assert await earliest(backend, table) == 3
            with pytest.raises(LogOffsetOutOfRangeError):
                await read_log(backend, table)
            ack = await append(backend, table, [{"id": 9, "name": "x"}])
            assert ack.offset == 3
            kept = await backend.get_table_info(TablePath("fluss", "kept"))
            assert len(await read_rows(backend, kept)) == 3

    table = on_loop(fill())
    moment_between()
    done = vacuum(tmp_path)
    assert done.batches_expired == 3
    assert done.bytes_after < done.bytes_before
    assert check(tmp_path) == []
    on_loop(look(table))


def test_writing_drops_what_has_expired(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            table = await make_table(backend, properties=SHORT)
            await append(backend, table, [{"id": 1, "name": "x"}])
        moment_between()
        async with opened(tmp_path) as backend:
            await append(backend, table, [{"id": 2, "name": "y"}])
            assert await earliest(backend, table) >= 1

    on_loop(run())
    assert check(tmp_path) == []


def test_a_ttl_of_zero_keeps_rows_for_ever(tmp_path: Path) -> None:
    """As a server does: `table.log.ttl` of 0 switches retention off."""

    async def fill() -> TableInfo:
        async with opened(tmp_path) as backend:
            table = await make_table(backend, properties={"table.log.ttl": "0 s"})
            await append(backend, table, [{"id": 1, "name": "x"}])
            return table

    async def look(table: TableInfo) -> None:
        async with opened(tmp_path) as backend:
            await append(backend, table, [{"id": 2, "name": "y"}])
            assert await earliest(backend, table) == 0
            assert len(await read_rows(backend, table)) == 2

    table = on_loop(fill())
    moment_between()
    assert vacuum(tmp_path).batches_expired == 0
    on_loop(look(table))


def test_an_expired_changelog_leaves_the_key_state_alone(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            table = await key_table(backend, properties=SHORT)
            await upsert(backend, table, [{"k": 1, "a": "x", "b": 1}])
        moment_between()
        vacuum(tmp_path)
        async with opened(tmp_path) as backend:
            assert await key_state(backend, table) == [{"k": 1, "a": "x", "b": 1}]
            assert await earliest(backend, table) == 1

    on_loop(run())
    assert check(tmp_path) == []


def test_nothing_expires_before_the_lake_has_it(tmp_path: Path) -> None:
    properties = SHORT | {"table.datalake.enabled": "true"}

    async def run() -> None:
        async with opened(tmp_path) as backend:
            table = await make_table(backend, properties=properties)
            for n in range(4):
                await append(backend, table, [{"id": n, "name": "x"}])
        moment_between()
        assert vacuum(tmp_path).batches_expired == 0
        async with opened(tmp_path) as backend:
            place = place_of(table)
            path = await backend.prepare_lake_snapshot(table, {place: 2}, False)
            await backend.commit_lake_snapshot(table, 1, path, [BucketCommit(place, 2)], None)
        assert vacuum(tmp_path).batches_expired == 2
        async with opened(tmp_path) as backend:
            assert await earliest(backend, table) == 2

    on_loop(run())


def test_dropped_tables_give_their_room_back(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            table = await key_table(backend)
            await upsert(backend, table, [{"k": n, "a": "x" * 50, "b": n} for n in range(5000)])
            log = await make_table(backend)
            await append(backend, log, [{"id": n, "name": "x" * 50} for n in range(20_000)])
            for path in (table.table_path, log.table_path):
                await backend.drop_table(path, False)

    on_loop(run())
    assert check(tmp_path) == []
    done = vacuum(tmp_path)
    assert done.bytes_after < 400_000
    assert check(tmp_path) == []


def test_tools_make_no_directories(tmp_path: Path) -> None:
    for tool in (vacuum, check):
        with pytest.raises(EmbeddedFormatError, match="no embedded database"):
            tool(tmp_path / "nothing")
    assert list(tmp_path.iterdir()) == []
