"""Limit scans, which a server answers from its memory: asked within bounds, and only once."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client.errors import ScanLostError, ScanTooLargeError
from fluss_client.testing import LocalCluster
from fluss_client.wire import apis
from fluss_orchestrate import IncrementalScan, SqlCheckpointStore, read_table
from tests.contract.tables import Tables, done
from tests.fix_proxy import Fault, FaultyLines

ROWS = 60
SCHEMA = {"id": pa.int64(), "word": pa.string()}


class Place:
    """A cluster behind lines that are watched, and tables with `ROWS` rows in one bucket."""

    def __init__(self, cluster: LocalCluster, lines: FaultyLines, folder: str) -> None:
        self.lines = lines
        self.folder = folder
        self.database = f"limits_{os.getpid()}_{id(self)}"
        self.direct = connect(cluster.info.bootstrap_servers)
        self.admin = done(self.direct.get_admin())
        done(self.admin.create_database(self.database))
        self.tables = Tables(self.direct, self.admin, self.database)

    def table(self, image: str = "FULL") -> fluss.TablePath:
        properties = {"table.changelog.image": image}
        table = self.tables.create(SCHEMA, ["id"], properties=properties)
        self.tables.upsert(table, [{"id": i, "word": f"w{i}"} for i in range(ROWS)])
        return table.get_table_path()

    def connection(self, rows_max: int = 1000, timeout: str = "5s") -> fluss.FlussConnection:
        more = {"scanner.limit.rows-max": str(rows_max), "request-timeout": timeout}
        return connect(self.lines.bootstrap_servers, **more)

    def calls(self) -> Counter[int]:
        return Counter(call for line in self.lines.histories for call in line)

    def close(self) -> None:
        done(self.admin.drop_database(self.database, cascade=True))
        self.direct.close()


def connect(address: str, **more: str) -> fluss.FlussConnection:
    config = fluss.Config({"bootstrap.servers": address, **more})
    connection: fluss.FlussConnection = done(fluss.FlussConnection.create(config))
    return connection


@pytest.fixture
def place(
    plain_cluster: LocalCluster, make_lines: Callable[..., FaultyLines], tmp_path: Any
) -> Iterator[Place]:
    made = Place(plain_cluster, make_lines(plain_cluster.info.bootstrap_servers), str(tmp_path))
    yield made
    made.close()


def limited(connection: fluss.FlussConnection, path: fluss.TablePath, limit: int) -> pa.Table:
    table = done(connection.get_table(path))
    bucket = fluss.TableBucket(table.get_table_info().table_id, 0)
    return table.new_scan().limit(limit).create_bucket_batch_scanner(bucket).to_arrow()


def whole_bucket(connection: fluss.FlussConnection, path: fluss.TablePath) -> int:
    return limited(connection, path, (1 << 31) - 1).num_rows


def whole_table(place: Place, connection: fluss.FlussConnection, path: fluss.TablePath) -> int:
    return read_table(connection, path).read_all().num_rows


def as_of(place: Place, connection: fluss.FlussConnection, path: fluss.TablePath) -> int:
    return read_table(connection, path, as_of={0: ROWS}).read_all().num_rows


def first_state(place: Place, connection: fluss.FlussConnection, path: fluss.TablePath) -> int:
    with SqlCheckpointStore(f"sqlite:///{place.folder}/store.db") as store:
        scan = IncrementalScan(connection, str(path), "state", store, start="state")
        return scan.read(scan.plan("one")).read_all().num_rows


@pytest.mark.parametrize(
    ("caller", "image"),
    [(whole_table, "FULL"), (as_of, "FULL"), (first_state, "FULL"), (whole_table, "WAL")],
)
def test_the_state_is_not_asked_for_at_once(place: Place, caller: Any, image: str) -> None:
    """However small the bound is: the changelog and KV snapshots give a state in parts."""
    path = place.table(image)
    with place.connection(rows_max=1) as connection:
        assert caller(place, connection, path) == ROWS
        assert place.calls()[apis.LIMIT_SCAN.key] == 0


def test_what_was_sent_is_not_sent_again(place: Place) -> None:
    """Each repetition would have gone to a new leader, and have stopped that one, too."""
    path = place.table()
    with place.connection() as connection:
        assert whole_bucket(connection, path) == ROWS
        asked = place.calls()
        assert asked[apis.GET_TABLE_STATS.key] == asked[apis.LIMIT_SCAN.key] == 1
        place.lines.inject(Fault("cut", apis.LIMIT_SCAN.key, times=None))
        with pytest.raises(ScanLostError, match="not asked again") as raised:
            whole_bucket(connection, path)
        assert not raised.value.is_retriable
        assert place.calls()[apis.LIMIT_SCAN.key] == 2
        place.lines.restore()
        assert whole_bucket(connection, path) == ROWS


def test_an_answer_that_does_not_come_is_not_asked_for_again(place: Place) -> None:
    path = place.table()
    with place.connection(timeout="1s") as connection:
        place.lines.inject(Fault("drop", apis.LIMIT_SCAN.key, times=None))
        with pytest.raises(ScanLostError):
            limited(connection, path, 10)
        assert place.calls()[apis.LIMIT_SCAN.key] == 1


def test_a_bucket_with_too_many_rows_is_not_asked_for_all(place: Place) -> None:
    path = place.table()
    with place.connection(rows_max=ROWS - 1) as connection:
        with pytest.raises(ScanTooLargeError, match=r"holds 60 rows.*limit.*buckets") as raised:
            whole_bucket(connection, path)
        assert (raised.value.rows, raised.value.rows_max) == (ROWS, ROWS - 1)
        assert place.calls()[apis.LIMIT_SCAN.key] == 0
        # A limit within the bound goes to the server as it is, without a question before it.
        assert limited(connection, path, ROWS - 1).num_rows == ROWS - 1
        assert place.calls()[apis.GET_TABLE_STATS.key] == 1


def test_rows_that_nobody_counts_are_bounded_by_offsets(place: Place) -> None:
    path = place.table(image="WAL")
    with place.connection(rows_max=ROWS) as connection:
        assert whole_bucket(connection, path) == ROWS
    with place.connection(rows_max=ROWS - 1) as connection:
        with pytest.raises(ScanTooLargeError, match="up to 60 rows"):
            whole_bucket(connection, path)
        assert place.calls()[apis.LIMIT_SCAN.key] == 1


def test_a_log_is_bounded_too(place: Place) -> None:
    table = place.tables.create(SCHEMA)
    place.tables.append(table, [{"id": i, "word": "w"} for i in range(ROWS)])
    with place.connection(rows_max=ROWS - 1) as connection:
        with pytest.raises(ScanTooLargeError):
            whole_bucket(connection, table.get_table_path())
        assert limited(connection, table.get_table_path(), 5).num_rows == 5
