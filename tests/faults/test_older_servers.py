"""A server that lacks a call: an error that says so, before anything is sent; hollow answers."""

from __future__ import annotations

import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client import errors
from fluss_client.wire import apis
from fluss_client.wire import fluss_pb2 as pb
from tests.contract.loopback import OneTable, _exactly, serving
from tests.waiting import client_limits, within

PATH = fluss.TablePath("db", "t")
NEEDED = {apis.API_VERSIONS.key, apis.GET_METADATA.key, apis.GET_TABLE_INFO.key}
SOON = {"request-timeout": "2s", "retry-timeout": "2s"}


class Older(OneTable):
    """Serves few calls and says so; some of its answers hold nothing. Counts what it is sent."""

    def __init__(self, served: set[int], versions: dict[int, tuple[int, int]] | None = None):
        super().__init__(apis.LIST_DATABASES, lambda connection: None)
        self._served = served
        self._versions = versions or {}
        self.sent: Counter[int] = Counter()

    def __call__(self, connection: socket.socket) -> None:
        self._address = connection.getsockname()
        while True:
            (length,) = struct.unpack(">i", _exactly(connection, 4))
            body = _exactly(connection, length)
            key, _, request_id = struct.unpack_from(">hhi", body)
            self.sent[key] += 1
            answer = self._answer(key).SerializeToString()
            connection.sendall(struct.pack(">ibi", len(answer) + 5, 0, request_id) + answer)

    def _answer(self, key: int) -> Any:
        if key == apis.API_VERSIONS.key:
            versions = pb.ApiVersionsResponse()
            for known in sorted(self._served):
                low, high = self._versions.get(known, (0, 0))
                versions.api_versions.add(api_key=known, min_version=low, max_version=high)
            return versions
        if key == apis.LIST_OFFSETS.key:
            return pb.ListOffsetsResponse()
        return super()._answer(key)


@contextmanager
def connected(server: Older) -> Iterator[fluss.FlussConnection]:
    with serving(server) as address:
        config = fluss.Config(
            {"bootstrap.servers": address, **SOON, **client_limits(connect_timeout=2000)}
        )
        with fluss.FlussConnection.create(config).result() as connection:
            yield connection


def _admin(connection: fluss.FlussConnection) -> fluss.FlussAdmin:
    admin: fluss.FlussAdmin = connection.get_admin().result()
    return admin


def _append(connection: fluss.FlussConnection) -> Any:
    writer = connection.get_table(PATH).result().new_append().create_writer()
    try:
        return writer.append((1,)).wait().result()
    finally:
        with suppress(errors.WriteError):
            writer.close()


def _scan(connection: fluss.FlussConnection) -> Any:
    scan = connection.get_table(PATH).result().new_scan()
    with scan.create_log_scanner().result() as scanner:
        scanner.subscribe(0, 0)
        for _ in range(20):
            scanner.poll(500)


def _limit(connection: fluss.FlussConnection) -> Any:
    table = connection.get_table(PATH).result()
    scanner = table.new_scan().limit(3).create_bucket_batch_scanner(fluss.TableBucket(7, 0))
    return scanner.to_arrow()


ABSENT: dict[str, tuple[apis.Api[Any, Any], Callable[[fluss.FlussConnection], Any]]] = {
    "list_databases": (apis.LIST_DATABASES, lambda c: _admin(c).list_databases().result()),
    "create_database": (
        apis.CREATE_DATABASE,
        lambda c: _admin(c).create_database("d").result(),
    ),
    "create_table": (
        apis.CREATE_TABLE,
        lambda c: (
            _admin(c)
            .create_table(
                PATH, fluss.TableDescriptor(fluss.Schema(pa.schema([("id", pa.int32())])))
            )
            .result()
        ),
    ),
    "get_table_stats": (apis.GET_TABLE_STATS, lambda c: _admin(c).get_table_stats(PATH).result()),
    "get_producer_offsets": (
        apis.GET_PRODUCER_OFFSETS,
        lambda c: _admin(c).get_producer_offsets("p").result(),
    ),
    "list_acls": (apis.LIST_ACLS, lambda c: _admin(c).list_acls().result()),
    "append": (apis.PRODUCE_LOG, _append),
    "scan": (apis.FETCH_LOG, _scan),
    "limit": (apis.LIMIT_SCAN, _limit),
}


@pytest.mark.parametrize("name", sorted(ABSENT))
@pytest.mark.parametrize("how", ["absent", "too new"])
def test_a_call_that_the_server_lacks_is_not_sent(name: str, how: str) -> None:
    api, call = ABSENT[name]
    served = set(apis.APIS) - {api.key} if how == "absent" else set(apis.APIS)
    server = Older(served, {api.key: (90, 99)})
    with connected(server) as connection:
        with within(10, "the error"), pytest.raises(errors.FlussError) as raised:
            call(connection)
        found: BaseException | None = raised.value
        while found is not None and not isinstance(found, errors.UnsupportedByServerError):
            found = found.__cause__
        assert found is not None, repr(raised.value)
        assert "not served by" in str(found)
        assert "nevertheless" not in str(raised.value), "nothing can be there"
        assert server.sent[api.key] == 0


def test_offsets_that_a_server_leaves_out_are_an_error() -> None:
    with (
        connected(Older(set(apis.APIS))) as connection,
        pytest.raises(errors.CorruptDataError, match=r"buckets \[0\] and answered for \[\]"),
    ):
        _admin(connection).list_offsets(PATH, [0], fluss.OffsetSpec.latest()).result()
