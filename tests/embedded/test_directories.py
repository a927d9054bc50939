"""Directories that cannot be used, cannot be written, are full, newer, foreign or damaged."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fluss_client.backend.embedded.maintenance import check
from fluss_client.backend.embedded.store import layout
from fluss_client.backend.embedded.store.database import Database, network_type
from fluss_client.backend.embedded.store.errors import (
    EmbeddedDamageError,
    EmbeddedFormatError,
    EmbeddedLocationError,
    EmbeddedReadOnlyError,
    EmbeddedStorageError,
)
from fluss_client.model.table import TablePath
from tests.embedded.helpers import (
    append,
    key_state,
    key_table,
    make_table,
    on_loop,
    opened,
    read_rows,
    upsert,
)

ROWS = [{"id": n, "name": f"n{n}"} for n in range(10)]


def file_of(path: Path) -> Path:
    return path / layout.FILE_NAME


def change(path: Path, *statements: str) -> None:
    """Change the database behind the engine's back."""
    connection = sqlite3.connect(file_of(path))
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


async def fill(path: Path) -> None:
    async with opened(path) as backend:
        table = await make_table(backend)
        await append(backend, table, ROWS)
        await append(backend, table, ROWS, writer_id=3, sequence=0)
        keys = await key_table(backend)
        await upsert(backend, keys, [{"k": n, "a": "x", "b": n} for n in range(5)])
        await upsert(backend, keys, [{"k": 1, "a": "y", "b": 7}])


async def open_and_close(path: Path) -> None:
    async with opened(path):
        pass


def test_a_newer_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    on_loop(open_and_close(tmp_path))
    newer = layout.FORMAT_VERSION + 1
    change(tmp_path, f"UPDATE meta SET value = {newer} WHERE name = 'format_version'")
    before = file_of(tmp_path).read_bytes()
    with pytest.raises(EmbeddedFormatError, match=f"version {newer}.*upgrade"):
        on_loop(open_and_close(tmp_path))
    assert file_of(tmp_path).read_bytes() == before


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    change(tmp_path, "CREATE TABLE meta (x)")
    with pytest.raises(EmbeddedFormatError, match="another program"):
        on_loop(open_and_close(tmp_path))


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    file_of(tmp_path).write_bytes(b"not a database at all" * 100)
    with pytest.raises(EmbeddedDamageError):
        on_loop(open_and_close(tmp_path))


def test_a_file_in_the_directorys_place(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    for name in ("f", "f/below"):
        with pytest.raises(EmbeddedLocationError):
            on_loop(open_and_close(tmp_path / name))


def test_network_file_systems_are_told_apart(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/sda / ext4 rw 0 0\n"
        f"server:/x {tmp_path}/far nfs4 rw 0 0\n"
        f"//server/y {tmp_path}/with\\040space cifs rw 0 0\n"
        f"/dev/sdb {tmp_path}/far/near ext4 rw 0 0\n"
    )
    assert network_type(tmp_path / "here", mounts) is None
    assert network_type(tmp_path / "far" / "away", mounts) == "nfs4"
    assert network_type(tmp_path / "with space", mounts) == "cifs"
    assert network_type(tmp_path / "far" / "near" / "x", mounts) is None
    assert network_type(tmp_path / "farther", mounts) is None
    assert network_type(tmp_path, tmp_path / "no such file") is None


def test_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "fluss_client.backend.embedded.store.database.network_type", lambda path: "nfs"
    )
    with pytest.raises(EmbeddedLocationError, match="network file system"):
        Database(tmp_path).prepare()


@contextmanager
def nobody() -> Iterator[None]:
    """Root may write everywhere, so give that up for a while."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


_KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from tests.embedded.helpers import opened
from tests.embedded.test_directories import fill

async def main(path):
    async with opened(path):
        await fill(path)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main(Path(sys.argv[1])))
"""


async def read_and_try_to_write(path: Path) -> None:
    async with opened(path) as backend:
        table = await backend.get_table_info(TablePath("fluss", "t"))
        assert len(await read_rows(backend, table)) == 20
        keys = await backend.get_table_info(TablePath("fluss", "k"))
        assert len(await key_state(backend, keys)) == 5
        with pytest.raises(EmbeddedReadOnlyError):
            await append(backend, table, ROWS)


@pytest.mark.parametrize("killed", [False, True])
def test_a_read_only_directory_can_be_read(tmp_path: Path, killed: bool) -> None:
    folder = tmp_path / "d"
    on_loop(fill(tmp_path / "warm up, so that nothing is imported later"))
    if killed:
        done = subprocess.run([sys.executable, "-c", _KILLED, folder], check=False)
        assert done.returncode == -signal.SIGKILL
        assert file_of(folder).with_name("fluss.db-wal").stat().st_size > 0
    else:
        on_loop(fill(folder))
    for above in (tmp_path, *tmp_path.parents[:3]):
        if above.stat().st_uid == os.getuid():
            above.chmod(above.stat().st_mode | 0o055)
    for file in folder.iterdir():
        file.chmod(0o444)
    folder.chmod(0o555)
    with nobody():
        on_loop(read_and_try_to_write(folder))
        assert check(folder) == []
    folder.chmod(0o755)


def test_a_full_disk_is_a_typed_error_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as backend:
            table = await make_table(backend)
            await append(backend, table, ROWS)
            limits = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, limits[1]))
            written = len(ROWS)

            async def fill_up() -> None:
                nonlocal written
                for _ in range(200):
                    await append(backend, table, [{"id": 1, "name": "x" * 200_000}])
                    written += 1

            try:
                with pytest.raises(EmbeddedStorageError):
                    await fill_up()
                assert len(await read_rows(backend, table)) == written
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            assert (await append(backend, table, ROWS)).offset == written

    on_loop(run())
    assert check(tmp_path) == []


def test_a_full_database_is_a_typed_error(tmp_path: Path) -> None:
    on_loop(fill(tmp_path))

    async def run() -> None:
        async with opened(tmp_path) as backend:
            table = await make_table(backend, "more")

            def shrink(connection: sqlite3.Connection) -> None:
                (pages,) = connection.execute("PRAGMA page_count").fetchone()
                connection.execute(f"PRAGMA max_page_count={pages + 20}").fetchone()

            await backend._write(shrink)
            with pytest.raises(EmbeddedStorageError, match="full"):
                await append(backend, table, [{"id": 1, "name": "x" * 1_000_000}])
            ack = await append(backend, table, ROWS)
            assert (ack.error, ack.offset) == (None, 0)
            keys = await backend.get_table_info(TablePath("fluss", "k"))
            assert len(await key_state(backend, keys)) == 5

    on_loop(run())
    assert check(tmp_path) == []


def _flip(path: Path) -> None:
    connection = sqlite3.connect(file_of(path))
    ((row, body),) = connection.execute("SELECT id, body FROM log LIMIT 1").fetchall()
    damaged = bytearray(body)
    damaged[len(body) // 2] ^= 0xFF
    connection.execute("UPDATE log SET body = ? WHERE id = ?", (bytes(damaged), row))
    connection.commit()
    connection.close()


def sql(*statements: str) -> Callable[[Path], None]:
    return lambda path: change(path, *statements)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_flip, "checksum"),
        (sql("DELETE FROM log WHERE id = (SELECT min(id) FROM log)"), "go on at offset"),
        (sql("UPDATE bucket SET log_end = log_end + 1 WHERE no = 0"), "batches end at"),
        (sql("UPDATE log SET row_count = 9, next_offset = 9 WHERE id = 0"), "instead of 9"),
        (sql("UPDATE log SET schema_id = 7 WHERE id = 0"), "no schema 7"),
        (sql("UPDATE log SET commit_time = 5 WHERE id = 10"), "commit time"),
        (sql("UPDATE bucket SET max_time = 5 WHERE no = 0"), "newest commit time"),
        (sql("DELETE FROM kv WHERE key = x'0000000101'"), "disagree on 1 keys"),
        (sql("DELETE FROM kv WHERE key = x'0000000101'"), "row count says 5"),
        (
            sql("UPDATE kv SET key = x'0000000170' WHERE key = x'0000000101'"),
            "does not belong to its row",
        ),
        (sql("UPDATE kv SET value = x'0100ff' WHERE key = x'0000000101'"), "cannot be read"),
        (sql("UPDATE log SET changes = x'0101010109' WHERE changes IS NOT NULL"), "change types"),
        (sql("UPDATE kv SET key = CAST(x'0000004d' || key AS BLOB)"), "bucket number 77"),
        (sql("DELETE FROM bucket WHERE no = 1"), "buckets instead of"),
        (sql("DELETE FROM tbl_schema"), "cannot be read"),
        (sql("UPDATE meta SET value = 1 WHERE name = 'next_table_id'"), "next_table_id"),
        (sql("UPDATE bucket SET log_end = 10 WHERE no = 0"), "has recorded offset 20"),
        (sql("INSERT INTO log_column VALUES (7, 0, x'00')"), "the batches refer to 0"),
        (sql("INSERT INTO lake_snapshot VALUES (1, 1, 5, 'gone')"), "lake snapshot 5"),
    ],
)
def test_the_check_finds_planted_damage(
    tmp_path: Path, damage: Callable[[Path], None], words: str
) -> None:
    on_loop(fill(tmp_path))
    assert check(tmp_path) == []
    damage(tmp_path)
    problems = check(tmp_path)
    assert any(words in problem for problem in problems), problems


def test_the_check_survives_a_torn_file(tmp_path: Path) -> None:
    on_loop(fill(tmp_path))
    file = file_of(tmp_path)
    data = bytearray(file.read_bytes())
    for at in range(layout.PAGE_BYTES * 2, len(data), 97):
        data[at] ^= 0x5A
    file.write_bytes(data)
    problems = check(tmp_path)
    assert problems
    assert len(problems) <= 101


def test_a_damaged_batch_is_an_error_when_it_is_read(tmp_path: Path) -> None:
    on_loop(fill(tmp_path))
    _flip(tmp_path)

    async def run() -> None:
        async with opened(tmp_path) as backend:
            table = await backend.get_table_info(TablePath("fluss", "t"))
            with pytest.raises(EmbeddedDamageError, match="offset 0"):
                await read_rows(backend, table)

    on_loop(run())


def test_read_only_errors_name_the_directory(tmp_path: Path) -> None:
    error = Database(tmp_path).wrap(sqlite3.OperationalError("x"))
    assert str(tmp_path) in str(error)
    assert not isinstance(error, EmbeddedReadOnlyError)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def open_umask() -> Iterator[None]:
    """A process that keeps nobody out by itself."""
    before = os.umask(0)
    yield
    os.umask(before)


def test_what_is_made_is_its_owners_alone(tmp_path: Path, open_umask: None) -> None:
    path = tmp_path / "parent" / "fluss"

    async def scenario() -> None:
        async with opened(path) as backend:
            table = await make_table(backend)
            await append(backend, table, ROWS)
            await make_table(backend, "lake", properties={"table.datalake.enabled": "true"})
            assert _mode(path) == 0o700
            files = {p.name: _mode(p) for p in path.iterdir() if p.is_file()}
            assert {layout.FILE_NAME, f"{layout.FILE_NAME}-wal", "fluss.lock"} <= files.keys()
            assert set(files.values()) == {0o600}, files
            folders = {p: _mode(p) for p in path.iterdir() if p.is_dir()}
            assert folders, "the lake"
            assert set(folders.values()) == {0o700}, folders

    on_loop(scenario())


def test_what_is_there_keeps_its_mode(tmp_path: Path, open_umask: None) -> None:
    """Directories of earlier versions, and those that somebody shares on purpose."""
    path = tmp_path / "shared"
    on_loop(fill(path))
    path.chmod(0o775)
    file_of(path).chmod(0o664)
    (path / "fluss.lock").unlink()
    on_loop(fill_again(path))
    assert (_mode(path), _mode(file_of(path))) == (0o775, 0o664)
    assert _mode(path / "fluss.lock") == 0o664, "who may write may also wait"


async def fill_again(path: Path) -> None:
    async with opened(path) as backend:
        table = await backend.get_table_info(TablePath("fluss", "t"))
        await append(backend, table, ROWS)
