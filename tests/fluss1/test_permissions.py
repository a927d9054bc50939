"""A scripted 1.0 server that tells users without permission that there is nothing."""

from __future__ import annotations

from typing import Any

import pytest

import fluss_client as fluss
from fluss_client import errors
from fluss_client.wire import apis
from fluss_client.wire import fluss_pb2 as pb
from tests.contract.tables import done
from tests.fluss1.server import ScriptedServer, scripted
from tests.fluss1.test_bucket_counts import LOG, PATH, opened


def hidden(server: ScriptedServer, error: errors.FlussError | None) -> None:
    """Say that nothing exists; descriptions are answered with an error."""
    absent: Any = {
        apis.TABLE_EXISTS: pb.TableExistsResponse(exists=False),
        apis.DATABASE_EXISTS: pb.DatabaseExistsResponse(exists=False),
    }
    for api, answer in absent.items():
        server.on(api, lambda _, answer=answer: answer)
    for api in (apis.GET_TABLE_INFO, apis.GET_DATABASE_INFO):
        server.on(api, lambda _: error)


def both(admin: fluss.FlussAdmin) -> list[bool]:
    return [done(admin.table_exists(PATH)), done(admin.database_exists("shop"))]


def test_what_may_not_be_seen_is_not_said_to_be_absent() -> None:
    with scripted(LOG, {"a": 2}) as server, opened(server) as connection:
        admin = done(connection.get_admin())
        hidden(server, errors.AuthorizationError("no DESCRIBE"))
        for ask in (admin.table_exists(PATH), admin.database_exists("shop")):
            with pytest.raises(errors.AuthorizationError, match="no DESCRIBE"):
                done(ask)


def test_what_does_not_exist_is_absent() -> None:
    with scripted(LOG, {"a": 2}) as server, opened(server) as connection:
        admin = done(connection.get_admin())
        hidden(server, errors.DatabaseNotExistError("none"))
        assert both(admin) == [False, False]
    with scripted(LOG, {"a": 2}) as server, opened(server) as connection:
        hidden(server, errors.TableNotExistError("none"))
        assert done(done(connection.get_admin()).table_exists(PATH)) is False


def test_servers_before_1_0_are_asked_once() -> None:
    with scripted(LOG, {"a": 2}, old=True) as server, opened(server) as connection:
        admin = done(connection.get_admin())
        hidden(server, errors.AuthorizationError("no DESCRIBE"))
        assert both(admin) == [False, False]
        assert not server.sent(apis.GET_TABLE_INFO)
