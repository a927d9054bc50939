"""A coordinator that is slow, or has missed a table: what `create_table` may drop, and what never.

That the coordinator does not know a table is pretended here, by the answers to the client's own
question for it; the tables, rows and drops are real.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client import errors
from fluss_client.backend.cluster import coordinator_faults
from fluss_client.net.connection import Connection
from fluss_client.testing import LocalCluster
from fluss_client.wire import apis
from tests.contract.tables import Tables, done

pytestmark = pytest.mark.cluster
ROW = {"id": pa.int32(), "day": pa.string()}
Unknown = Callable[[int], Awaitable[bool]]
Pretend = Callable[[Unknown], None]


@pytest.fixture(scope="module")
def tables(plain_cluster: LocalCluster) -> Iterator[Tables]:
    """Makes tables on the cluster, in a database that is empty in the end."""
    config = fluss.Config({"bootstrap.servers": plain_cluster.info.bootstrap_servers})
    with done(fluss.FlussConnection.create(config)) as connection:
        admin = done(connection.get_admin())
        name = f"missed_{os.getpid()}"
        done(admin.create_database(name))
        yield Tables(connection, admin, name)
        markers = [t for t in done(admin.list_tables(name)) if "marker" in t]
        done(admin.drop_database(name, ignore_if_not_exists=True, cascade=True))
        assert not markers


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Pretend:
    """Let the coordinator say that it does not know the tables whose ids a function picks."""
    call = Connection.call
    monkeypatch.setattr(coordinator_faults, "KNOWN_SOON_MS", 100)

    def install(unknown: Unknown) -> None:
        async def answered(self: Connection, api: Any, request: Any, *rest: Any) -> Any:
            asks = api is apis.RELEASE_KV_SNAPSHOT_LEASE
            if asks and await unknown(request.buckets_to_release[0].table_id):
                raise errors.UnknownTableOrBucketError("pretended")
            return await call(self, api, request, *rest)

        monkeypatch.setattr(Connection, "call", answered)

    return install


def _descriptor(partitioned: bool, **properties: str) -> fluss.TableDescriptor:
    return fluss.TableDescriptor(
        fluss.Schema(pa.schema(list(ROW.items()))),
        bucket_count=1,
        partition_keys=["day"] if partitioned else None,
        properties=properties,
    )


async def _always(table_id: int) -> bool:
    return True


def test_a_slow_coordinator_costs_no_row(tables: Tables, pretend: Pretend) -> None:
    """Rows are acknowledged while `create_table` is still asking whether the table is known."""
    path = tables.path()
    asked: concurrent.futures.Future[None] = concurrent.futures.Future()
    written: concurrent.futures.Future[None] = concurrent.futures.Future()

    async def slow(table_id: int) -> bool:
        if not asked.done():
            asked.set_result(None)
        await asyncio.shield(asyncio.wrap_future(written))
        return True

    pretend(slow)
    creating = tables.admin.create_table(path, _descriptor(partitioned=False))
    asked.result()
    table = tables.open(path)
    tables.append(table, [(number, "a") for number in range(100)])
    written.set_result(None)
    done(creating)
    assert tables.open(path).get_table_info().table_id == table.get_table_info().table_id
    assert tables.log(table)["id"].to_pylist() == list(range(100))


def test_what_may_only_be_slow_is_not_dropped(
    tables: Tables, pretend: Pretend, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tables.path()
    pretend(_always)
    monkeypatch.setattr(coordinator_faults, "MARKER_WAIT_MS", 100)
    with pytest.raises(errors.TableNotReadyError, match="knows neither it nor") as raised:
        done(tables.admin.create_table(path, _descriptor(partitioned=True)))
    assert "Nothing was dropped" in str(raised.value)
    assert raised.value.table_id == tables.open(path).get_table_info().table_id
    assert str(raised.value.table_path) == str(path)


def test_a_table_that_was_surely_missed_is_made_again(tables: Tables, pretend: Pretend) -> None:
    path = tables.path()
    asked: list[int] = []

    async def first_one(table_id: int) -> bool:
        asked.append(table_id)
        return table_id == asked[0]

    pretend(first_one)
    done(tables.admin.create_table(path, _descriptor(partitioned=True)))
    assert tables.open(path).get_table_info().table_id == asked[-1] != asked[0]


def test_a_table_of_another_client_at_the_same_path_is_not_dropped(
    tables: Tables, pretend: Pretend
) -> None:
    path = tables.path()
    calls: Any = tables.connection.backend
    ours: list[int] = []
    theirs: list[int] = []

    async def replaced_meanwhile(table_id: int) -> bool:
        if not ours:
            ours.append(table_id)
            await calls.drop_table(path, False)
            await calls.send_create_table(path, _descriptor(partitioned=False), False)
            theirs.append((await calls.get_table_info(path)).table_id)
        return table_id == ours[0]

    pretend(replaced_meanwhile)
    with pytest.raises(errors.TableNotReadyError, match="by another client"):
        done(tables.admin.create_table(path, _descriptor(partitioned=True)))
    assert [tables.open(path).get_table_info().table_id] == theirs


def test_a_lake_table_is_not_made_again(lake_cluster: LocalCluster, pretend: Pretend) -> None:
    """Its second creation would fail: the table in the lake is there already."""
    config = fluss.Config({"bootstrap.servers": lake_cluster.info.bootstrap_servers})
    with done(fluss.FlussConnection.create(config)) as connection:
        admin = done(connection.get_admin())
        name = f"missed_lake_{os.getpid()}"
        done(admin.create_database(name))
        lake_tables = Tables(connection, admin, name)
        path = lake_tables.path()
        pretend(_always)
        lake = {"table.datalake.enabled": "true"}
        with pytest.raises(errors.TableNotReadyError, match="lake"):
            done(admin.create_table(path, _descriptor(partitioned=True, **lake)))
        assert lake_tables.open(path).get_table_info().is_partitioned()
        done(admin.drop_database(name, ignore_if_not_exists=True, cascade=True))
