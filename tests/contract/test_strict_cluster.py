"""What needs a cluster of its own: permissions, remote log, key snapshots, replicas, a crash."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client import errors
from fluss_client.aio.state import limit_scan
from fluss_client.engine import StateReader
from fluss_client.runtime import runtime
from fluss_client.testing import LocalCluster
from tests.contract.tables import Tables, done, eventually
from tests.waiting import let_pass, within

pytestmark = pytest.mark.cluster
ROW = {"id": pa.int64(), "text": pa.string()}


def _rows(start: int, stop: int, width: int = 100) -> pa.Table:
    ids = range(start, stop)
    # Text that does not compress, so that segments fill.
    text = [f"{i * 2654435761 % 2**64:016x}" * (width // 16) for i in ids]
    return pa.table({"id": pa.array(ids, pa.int64()), "text": text})


@pytest.mark.supports("Admin.createAcls", "Admin.listAcls", "Admin.dropAcls", "SASL/PLAIN")
def test_permissions_are_granted_listed_and_taken_back(
    strict_tables: Tables, strict: Callable[[str], fluss.Config]
) -> None:
    table = strict_tables.create({"id": pa.int32()})
    path = table.get_table_path()
    admin = strict_tables.admin
    with done(fluss.FlussConnection.create(strict("alice"))) as hers:
        with pytest.raises(errors.AuthorizationError) as raised:
            done(done(hers.get_admin()).create_database("alices"))
        assert raised.value.error_code == fluss.ErrorCode.AUTHORIZATION_EXCEPTION
        assert "alice" in raised.value.message

        grants = [
            fluss.Acl("table", str(path), "alice", operation)
            for operation in ("describe", "read", "write")
        ]
        done(admin.create_acls(grants))
        listed = done(admin.list_acls(principal="alice"))
        assert sorted(acl.operation for acl in listed) == ["describe", "read", "write"]
        assert set(listed) == set(grants)
        assert done(admin.list_acls(principal="alice", operation="read")) == [grants[1]]
        assert done(admin.list_acls(principal="nobody")) == []

        # The tablet servers hear of a grant a moment later.
        opened = eventually(lambda: _try(hers, path), lambda found: found is not None)
        assert opened is not None
        done(opened.new_append().create_writer().append((7,)).wait())
        assert strict_tables.log(table)["id"].to_pylist() == [7]

        dropped = done(admin.drop_acls([{"principal": "alice", "operation": "write"}]))
        assert dropped == [grants[2]]
        assert len(done(admin.list_acls(principal="alice"))) == 2
        done(admin.drop_acls([{"principal": "alice"}]))
        assert done(admin.list_acls()) == []


def test_more_partitions_than_the_cluster_allows(strict_tables: Tables) -> None:
    table = strict_tables.create(
        {"id": pa.int32(), "p": pa.string()},
        partition_keys=["p"],
        partitions=[{"p": str(i)} for i in range(4)],
    )
    path = table.get_table_path()
    with pytest.raises(errors.TooManyPartitionsError) as raised:
        done(strict_tables.admin.create_partition(path, {"p": "one-too-many"}))
    assert raised.value.error_code == fluss.ErrorCode.PARTITION_MAX_NUM_EXCEPTION
    assert "4" in raised.value.message
    done(strict_tables.admin.drop_partition(path, {"p": "0"}))
    done(strict_tables.admin.create_partition(path, {"p": "new"}))
    assert len(done(strict_tables.admin.list_partition_infos(path))) == 4


def _try(connection: fluss.FlussConnection, path: fluss.TablePath) -> fluss.FlussTable | None:
    try:
        table: fluss.FlussTable = done(connection.get_table(path))
        done(done(connection.get_admin()).list_offsets(path, [0], fluss.OffsetSpec.latest()))
    except (errors.AuthorizationError, errors.TableNotExistError):
        return None
    return table


@pytest.mark.supports("Scan of the remote log")
@pytest.mark.parametrize("columns", [None, ["text"], ["id"]])
def test_old_segments_are_read_from_where_they_went(
    strict_tables: Tables, columns: list[str] | None, remote: fluss.FlussTable
) -> None:
    before = strict_tables.connection.metrics().get("remote_log.bytes", 0)
    found = strict_tables.log(remote, columns)
    assert strict_tables.connection.metrics()["remote_log.bytes"] > before
    expected = _rows(0, REMOTE_ROWS)
    assert found.equals(expected if columns is None else expected.select(columns))


@pytest.mark.supports("Scan of the remote log")
def test_records_go_on_from_remote_to_local_segments(
    strict_tables: Tables, remote: fluss.FlussTable
) -> None:
    with done(remote.new_scan().create_log_scanner()) as scanner:
        scanner.subscribe(0, 1_234)
        following = 1_234
        while following < REMOTE_ROWS:
            for record in scanner.poll(5_000):
                assert (record.offset, record.row["id"]) == (following, following)
                following += 1


REMOTE_ROWS = 60_000


@pytest.fixture(scope="module")
def remote(strict_connection: fluss.FlussConnection) -> fluss.FlussTable:
    """A log whose older segments are not on its server any more."""
    tables = Tables(strict_connection, done(strict_connection.get_admin()), "strict")
    table = tables.create(
        ROW,
        properties={
            "table.log.tiered.local-segments": "1",
            "table.log.arrow.compression.type": "NONE",
        },
    )
    with table.new_append().create_writer() as writer:
        for start in range(0, REMOTE_ROWS, 4_000):
            writer.write_arrow(_rows(start, start + 4_000))
            done(writer.flush())

    def remote_bytes() -> float:
        before = strict_connection.metrics().get("remote_log.bytes", 0)
        with done(table.new_scan().create_record_batch_log_scanner()) as scanner:
            scanner.subscribe(0, 0)
            scanner.poll_arrow(2_000)
        return strict_connection.metrics().get("remote_log.bytes", 0) - before

    assert eventually(remote_bytes, lambda count: count > 0) > 0
    return table


@pytest.mark.supports("Admin.getLatestKvSnapshots")
def test_key_snapshots_show_when_they_are_taken(strict_tables: Tables) -> None:
    table = strict_tables.create(ROW, ["id"])
    strict_tables.upsert(table, _rows(0, 50))
    path = table.get_table_path()
    found = eventually(
        lambda: done(strict_tables.admin.list_kv_snapshots(path)),
        lambda snapshots: snapshots[0].log_offset == 50,
    )
    assert found[0].bucket == fluss.TableBucket(table.get_table_info().table_id, 0)
    assert found[0].snapshot_id is not None
    assert found[0].log_offset == 50


KEY_ROWS = 20_000


@pytest.fixture(scope="module")
def cut_off(strict_connection: fluss.FlussConnection) -> fluss.FlussTable:
    """A key table whose changelog has lost its beginning."""
    tables = Tables(strict_connection, done(strict_connection.get_admin()), "strict")
    properties = {
        "table.log.ttl": "1s",
        "table.log.tiered.local-segments": "1",
        "table.log.arrow.compression.type": "NONE",
    }
    table = tables.create(ROW, ["id"], buckets=1, properties=properties)
    for start in range(0, KEY_ROWS, 2_000):
        tables.upsert(table, _rows(start, start + 2_000, width=160))
    path = table.get_table_path()
    earliest = fluss.OffsetSpec.earliest()
    assert eventually(
        lambda: done(tables.admin.list_offsets(path, [0], earliest))[0], lambda first: first > 0
    )
    return table


def _state(
    connection: fluss.FlussConnection, table: fluss.FlussTable, **settings: str
) -> tuple[str, pa.Table]:
    """The rows of a bucket, and where they came from."""
    core, info = connection.core, table.get_table_info()
    config = fluss.Config({key.replace("_", "."): value for key, value in settings.items()})

    async def read() -> tuple[str, pa.Table]:
        bucket = fluss.TableBucket(info.table_id, 0)
        reader = await StateReader(core.backend, info, bucket, config).open()
        try:
            return reader.source.kind, pa.Table.from_batches([b async for b in reader.batches()])
        finally:
            await reader.close()

    return runtime().call(read())


@pytest.fixture
def no_rocksdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package of the extra `keys` is not installed."""
    monkeypatch.setitem(sys.modules, "rocksdict", None)


def test_a_small_bucket_is_collected_by_its_server(
    strict_connection: fluss.FlussConnection,
    strict_tables: Tables,
    cut_off: fluss.FlussTable,
    no_rocksdict: None,
) -> None:
    kind, found = _state(strict_connection, cut_off)
    assert kind == "limit-scan"
    assert found.sort_by("id").to_pydict() == _rows(0, KEY_ROWS, width=160).to_pydict()


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ({"scanner_state_limit-scan_rows-max": "1000"}, r"20000 rows, .* at most 1000 \("),
        (
            {"scanner_state_limit-scan_bytes-max": "100kb"},
            r"20000 rows of about [34]\d{6} bytes, .* at most 102400 bytes \(",
        ),
    ],
    ids=["rows", "bytes"],
)
def test_a_large_bucket_is_not_collected(
    strict_connection: fluss.FlussConnection,
    cut_off: fluss.FlussTable,
    no_rocksdict: None,
    setting: dict[str, str],
    why: str,
) -> None:
    with pytest.raises(errors.StateUnavailableError, match=why) as raised:
        _state(strict_connection, cut_off, **setting)
    assert raised.value.rows == KEY_ROWS
    assert "pip install 'fluss-orchestrate[keys]'" in raised.value.message


def test_rows_that_come_after_they_were_counted_are_not_cut_off(
    strict_connection: fluss.FlussConnection,
    cut_off: fluss.FlussTable,
    no_rocksdict: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def counted_before(*_: object) -> int:
        return 10

    monkeypatch.setattr(limit_scan, "_row_count", counted_before)
    with pytest.raises(errors.StateUnavailableError, match="1001 rows"):
        _state(strict_connection, cut_off, **{"scanner_state_limit-scan_rows-max": "1000"})


@pytest.mark.supports("Replication factor above 1")
def test_a_killed_server_is_replaced_where_there_are_replicas_and_named_where_not(
    strict_cluster: LocalCluster, strict_tables: Tables, strict: Callable[[str], fluss.Config]
) -> None:
    alone = strict_tables.create(ROW, ["id"])
    safe = strict_tables.create(ROW, ["id"], properties={"table.replication.factor": "3"})
    config = strict("admin")
    config.request_timeout_ms = config.retry_timeout_ms = 3_000
    with done(fluss.FlussConnection.create(config)) as connection:
        opened = [done(connection.get_table(t.get_table_path())) for t in (alone, safe)]
        writers = [table.new_upsert().create_writer() for table in opened]
        lookups = [table.new_lookup().create_lookuper() for table in opened]
        for writer in writers:
            writer.write_arrow(_rows(0, 100))
            done(writer.flush())
        scanner = done(opened[1].new_scan().create_log_scanner())
        scanner.subscribe(0, fluss.EARLIEST_OFFSET)
        assert not scanner.poll(5_000).is_empty()

        # A restarted server cuts a single replica back to the last checkpoint of its high
        # watermark (every 100 ms here, 5 s by default): rows acknowledged since are gone.
        let_pass(1, "the servers do not tell when they wrote the checkpoint")
        victim = _leader(connection, alone)
        # The table with replicas is led by the same server half of the time; both are fair.
        strict_cluster.kill(f"tablet-{victim}")
        try:
            _told_soon(lambda: done(lookups[0].lookup((1,))))
            _told_soon(lambda: done(lookups[0].lookup_many([(1,), (2,)])))
            path = alone.get_table_path()
            _told_soon(
                lambda: done(
                    done(connection.get_admin()).list_offsets(path, [0], fluss.OffsetSpec.latest())
                )
            )
            lost = writers[0].upsert((500, "lost"))
            error = _told_soon(lambda: done(lost.wait()))
            assert isinstance(error, errors.WriteError)
            assert "not written" in error.message

            found = eventually(lambda: _found(lookups[1]), lambda row: row is not None)
            assert found is not None
            writers.append(opened[1].new_upsert().create_writer())
            eventually(lambda: _written(writers[-1]), bool)
            while 101 not in {record.row["id"] for record in scanner.poll(5_000)}:
                pass
        finally:
            strict_cluster.start(f"tablet-{victim}")
        back = eventually(lambda: _found(lookups[0]), lambda row: row is not None)
        assert back == _rows(1, 2).to_pylist()[0]
        scanner.close()
        for writer in writers:
            with contextlib.suppress(errors.WriteError):  # rows that were told to be lost
                writer.close()


def _leader(connection: fluss.FlussConnection, table: fluss.FlussTable) -> int:
    info = table.get_table_info()
    bucket = fluss.TableBucket(info.table_id, 0)
    return runtime().call(connection.backend.locate(info, bucket))


def _told_soon(call: Callable[[], object]) -> fluss.FlussError:
    with within(30, "the error"), pytest.raises(fluss.FlussError) as raised:
        call()
    assert raised.value.message
    return raised.value


def _found(lookuper: fluss.Lookuper) -> dict[str, Any] | None:
    try:
        row: dict[str, Any] | None = done(lookuper.lookup((1,)))
    except fluss.FlussError:
        return None
    return row


def _written(writer: fluss.UpsertWriter) -> bool:
    try:
        done(writer.upsert((101, "after the crash")).wait())
    except errors.WriteError:
        return False
    return True
