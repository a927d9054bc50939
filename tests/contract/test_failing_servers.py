"""Servers that die or fall silent in the middle of a call: typed errors, and no false success."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client import errors
from fluss_client.runtime import runtime
from fluss_client.wire import apis
from tests.contract.loopback import OneTable, closes, is_silent, serving
from tests.contract.tables import Tables
from tests.waiting import client_limits, within

PATH = fluss.TablePath("db", "t")
SOON = {"request-timeout": "600ms", "retry-timeout": "600ms"}


def half_a_frame(connection: socket.socket) -> None:
    connection.sendall(struct.pack(">ib", 1000, 0) + bytes(20))


def another_ones_answer(connection: socket.socket) -> None:
    """A frame for a request that nobody made, then nothing."""
    connection.sendall(struct.pack(">ibi", 5, 0, 123_456))
    is_silent(connection)


def unreadable(connection: socket.socket) -> None:
    connection.sendall(struct.pack(">ib", 3, 9) + b"??")
    is_silent(connection)


HOW = [closes, is_silent, half_a_frame, another_ones_answer, unreadable]


@contextmanager
def _connected(api: Any, how: Any) -> Iterator[tuple[fluss.FlussConnection, OneTable]]:
    server = OneTable(api, how)
    with serving(server) as address:
        config = fluss.Config(
            {"bootstrap.servers": address} | SOON | client_limits(connect_timeout=1000)
        )
        with fluss.FlussConnection.create(config).result() as connection:
            yield connection, server


def _raised(call: Any, *kinds: type[Exception]) -> fluss.FlussError:
    with within(12, "the error"), pytest.raises(kinds) as raised:
        call()
    error = raised.value
    assert isinstance(error, fluss.FlussError)
    assert error.message
    return error


LINE = (errors.NetworkError, errors.TimedOutError, errors.ConnectError, errors.CorruptDataError)


@pytest.mark.parametrize("how", HOW)
def test_a_question_without_an_answer(how: Any) -> None:
    with _connected(apis.LIST_DATABASES, how) as (connection, server):
        admin = connection.get_admin().result()
        _raised(lambda: admin.list_databases().result(), *LINE)
        assert server.asked >= 1


@pytest.mark.parametrize("how", HOW)
def test_a_change_without_an_answer_is_not_sent_twice(how: Any) -> None:
    with _connected(apis.DROP_TABLE, how) as (connection, server):
        admin = connection.get_admin().result()
        error = _raised(lambda: admin.drop_table(PATH).result(), *LINE)
        assert server.asked == 1, "it may have been done: asking again could undo another's work"
        assert not isinstance(error, errors.ConnectError)


@pytest.mark.parametrize("how", HOW)
def test_a_write_without_an_answer_is_never_a_success(how: Any) -> None:
    with _connected(apis.PRODUCE_LOG, how) as (connection, server):
        table = connection.get_table(PATH).result()
        writer = table.new_append().create_writer()
        handle = writer.append((1,))
        error = _raised(lambda: handle.wait().result(), errors.WriteError)
        assert "may be there" in error.message, "the client cannot know, and says so"
        assert isinstance(error.__cause__, LINE)
        writer.append((2,))
        _raised(lambda: writer.flush().result(), errors.WriteError)
        assert server.asked >= 1
        assert writer.metrics()["rows"] == 0
        assert writer.metrics()["rows_failed"] == 2


@pytest.mark.parametrize("how", [closes, is_silent, unreadable])
def test_a_scan_without_an_answer(how: Any) -> None:
    with _connected(apis.FETCH_LOG, how) as (connection, server):
        table = connection.get_table(PATH).result()
        scanner = table.new_scan().create_log_scanner().result()
        scanner.subscribe(0, 0)

        def poll_until_told() -> None:
            while True:
                assert scanner.poll(500).is_empty()

        _raised(poll_until_told, *LINE)
        assert server.asked >= 1
        scanner.close()


def test_a_connection_that_was_closed() -> None:
    with _connected(apis.LIST_DATABASES, is_silent) as (connection, _):
        admin = connection.get_admin().result()
        table = connection.get_table(PATH).result()
        pending = admin.list_databases()
        writer = table.new_append().create_writer()
        connection.close()
        connection.close()
        _raised(lambda: pending.result(), errors.ClosedError, errors.NetworkError)
        for call in (
            lambda: admin.list_databases().result(),
            lambda: connection.get_table(PATH).result(),
            lambda: connection.get_admin().result(),
            lambda: table.new_append(),
            lambda: writer.append((1,)),
        ):
            assert "make a new" in _raised(call, errors.ClosedError).message


def test_closing_a_connection_flushes_its_writers(tables: Tables, config: fluss.Config) -> None:
    table = tables.create({"id": pa.int32()})
    for rows in ([(1,), (2,)], []):
        with fluss.FlussConnection.create(config).result() as connection:
            writer = connection.get_table(table.get_table_path()).result().new_append()
            made = writer.create_writer()
            for row in rows:
                made.append(row)
    assert tables.log(table)["id"].to_pylist() == [1, 2]


def test_a_line_that_was_cut_is_opened_again(tables: Tables, offers: fluss.Capabilities) -> None:
    """Servers close lines that were idle for ten minutes; the next call finds out."""
    if offers.local_directory is not None:
        return  # there is no line
    table = tables.create({"id": pa.int32()}, ["id"])
    writer = table.new_upsert().create_writer()
    lookuper = table.new_lookup().create_lookuper()
    scanner = table.new_scan().create_log_scanner().result()
    scanner.subscribe(0, fluss.EARLIEST_OFFSET)

    async def cut() -> None:
        for line in list(tables.connection.backend.pool._open.values()):  # type: ignore[attr-defined]
            line.close()

    for number in range(3):
        writer.upsert((number,)).wait().result()
        assert lookuper.lookup((number,)).result() == {"id": number}
        assert [r.row["id"] for r in scanner.poll(10_000)] == [number]
        runtime().call(cut())
        assert tables.database in tables.admin.list_databases().result()
        runtime().call(cut())
    scanner.close()
    writer.close()


def test_a_row_that_no_request_can_hold(tables: Tables, offers: fluss.Capabilities) -> None:
    if offers.local_directory is not None:
        return  # nothing is sent
    table = tables.create({"id": pa.int32(), "raw": pa.binary()}, ["id"])
    with table.new_upsert().create_writer() as writer:
        error = _raised(
            lambda: writer.upsert((1, bytes(101 << 20))).wait().result(), errors.WriteError
        )
        assert error.error_code == fluss.ErrorCode.RECORD_TOO_LARGE_EXCEPTION
        assert "nevertheless" not in error.message, "nothing was sent"
        writer.flush().result()
        writer.upsert((2, b"small")).wait().result()
    assert tables.lookup(table, (1,)) is None


def test_rows_that_are_lost_at_the_close_are_said_to_be() -> None:
    with serving(OneTable(apis.PRODUCE_LOG, closes)) as address:
        config = fluss.Config(
            {"bootstrap.servers": address} | SOON | client_limits(connect_timeout=1000)
        )
        connection = fluss.FlussConnection.create(config).result()
        connection.get_table(PATH).result().new_append().create_writer().append((1,))
        _raised(connection.close, errors.WriteError)
        _raised(lambda: connection.get_table(PATH).result(), errors.ClosedError)
