"""Tables: made with every option, described as they were made, refused with reasons."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

import fluss_client as fluss
from fluss_client import errors
from tests.contract.tables import Tables, done
from tests.waiting import within

LOG = pa.schema([("id", pa.int32()), ("name", pa.string()), ("score", pa.float32())])


def _keyed(*keys: str) -> fluss.Schema:
    return fluss.Schema(LOG, primary_keys=list(keys))


@pytest.mark.supports("Admin.createTable", "Admin.getTableInfo", "Connection.getTable")
def test_a_log_table_is_described_as_it_was_made(tables: Tables) -> None:
    before_ms = time.time() * 1000
    schema = pa.schema(
        [
            pa.field("id", pa.int32(), nullable=False, metadata={"comment": "who"}),
            pa.field("name", pa.string()),
        ]
    )
    table = tables.create(
        schema,
        buckets=3,
        bucket_keys=["id"],
        comment="clicks: ü",
        log_format="arrow",
        properties={"table.log.ttl": "2d", "table.log.arrow.compression.type": "lz4_frame"},
        custom_properties={"team": "web", "on": True},
    )
    info = table.get_table_info()
    assert info.table_path == table.get_table_path()
    assert info.table_id >= 0
    assert info.schema_id == 1
    assert info.num_buckets == 3
    assert info.comment == "clicks: ü"
    assert info.get_primary_keys() == []
    assert info.get_bucket_keys() == ["id"]
    assert info.get_partition_keys() == []
    assert not info.has_primary_key()
    assert not table.has_primary_key()
    assert not info.is_partitioned()
    assert info.get_column_names() == ["id", "name"]
    assert info.get_column_count() == 2
    assert info.get_schema().get_columns() == [("id", "int NOT NULL"), ("name", "string")]
    assert info.get_schema().columns[0].comment == "who"
    assert info.get_custom_properties() == {"team": "web", "on": "true"}
    properties = info.get_properties()
    assert properties["table.log.ttl"] == "2d"
    assert properties["table.log.arrow.compression.type"].upper() == "LZ4_FRAME"
    assert properties["table.log.format"] == "ARROW"
    assert before_ms - 1000 < info.created_time <= info.modified_time < time.time() * 1000 + 1000


def test_a_key_table_is_described_as_it_was_made(tables: Tables, key_of_lake: bool) -> None:
    table = tables.create(_keyed("id"), buckets=2, kv_format="indexed", log_format="INDEXED")
    info = table.get_table_info()
    assert info.has_primary_key()
    assert table.has_primary_key()
    assert info.get_primary_keys() == ["id"]
    assert info.get_bucket_keys() == ["id"]
    assert info.get_schema().get_column_types() == ["int NOT NULL", "string", "float"]
    assert info.get_schema().get_primary_keys() == ["id"]
    assert info.get_properties()["table.kv.format"] == "INDEXED"
    assert table.arrow_schema.field("id").nullable is False


def test_partition_columns_leave_the_default_bucket_key(tables: Tables) -> None:
    table = tables.create(_keyed("id", "name"), partition_keys=["name"], buckets=2)
    info = table.get_table_info()
    assert info.is_partitioned()
    assert info.get_partition_keys() == ["name"]
    assert info.get_primary_keys() == ["id", "name"]
    assert info.get_bucket_keys() == ["id"]


@pytest.mark.supports("Admin.listTables", "Admin.tableExists", "Admin.dropTable")
def test_a_table_is_listed_until_it_is_dropped(tables: Tables) -> None:
    admin, path = tables.admin, tables.create(LOG).get_table_path()
    assert path.table_name in done(admin.list_tables(path.database_name))
    assert done(admin.table_exists(path))
    done(admin.drop_table(path))
    assert path.table_name not in done(admin.list_tables(path.database_name))
    assert not done(admin.table_exists(path))
    done(admin.drop_table(path, ignore_if_not_exists=True))


def test_a_table_made_again_is_another_one(tables: Tables) -> None:
    admin, first = tables.admin, tables.create(LOG)
    path = first.get_table_path()
    done(admin.drop_table(path))
    done(admin.create_table(path, fluss.TableDescriptor(_keyed("id"), bucket_count=1)))
    second = tables.open(path)
    assert second.get_table_info().table_id > first.get_table_info().table_id
    assert second.has_primary_key()


def test_creating_twice_is_an_error_unless_ignored(tables: Tables) -> None:
    path = tables.create(LOG).get_table_path()
    other = fluss.TableDescriptor(_keyed("id"), bucket_count=1)
    with pytest.raises(errors.TableAlreadyExistError) as raised:
        done(tables.admin.create_table(path, other))
    assert raised.value.error_code == fluss.ErrorCode.TABLE_ALREADY_EXIST
    assert path.table_name in raised.value.message
    done(tables.admin.create_table(path, other, ignore_if_exists=True))
    assert not tables.open(path).has_primary_key()


Call = Callable[[Tables, fluss.TablePath], Any]
ON_A_TABLE: dict[str, Call] = {
    "info": lambda t, path: t.admin.get_table_info(path),
    "open": lambda t, path: t.connection.get_table(path),
    "drop": lambda t, path: t.admin.drop_table(path),
    "schema": lambda t, path: t.admin.get_table_schema(path),
    "schemas": lambda t, path: t.admin.list_table_schemas(path),
    "alter": lambda t, path: t.admin.alter_table(path, set_options={"a": "b"}),
    "partitions": lambda t, path: t.admin.list_partition_infos(path),
    "create partition": lambda t, path: t.admin.create_partition(path, {"name": "x"}),
    "drop partition": lambda t, path: t.admin.drop_partition(path, {"name": "x"}),
    "offsets": lambda t, path: t.admin.list_offsets(path, [0], fluss.OffsetSpec.latest()),
    "stats": lambda t, path: t.admin.get_table_stats(path),
    "kv snapshots": lambda t, path: t.admin.list_kv_snapshots(path),
    "lake snapshot": lambda t, path: t.admin.get_latest_lake_snapshot(path),
}


def test_many_who_create_a_table_at_once_all_have_it(
    tables: Tables, settings: dict[str, Any]
) -> None:
    """As the first tasks of a new deployment do."""
    count = 8
    with contextlib.ExitStack() as opened, ThreadPoolExecutor(count) as pool:
        connections = [
            opened.enter_context(done(fluss.FlussConnection.create(fluss.Config(settings))))
            for _ in range(count)
        ]
        admins = [done(connection.get_admin()) for connection in connections]
        for _ in range(5):
            path, descriptor = tables.path(), fluss.TableDescriptor(fluss.Schema(LOG))
            start = threading.Barrier(count)

            def create(
                admin: fluss.FlussAdmin,
                path: fluss.TablePath = path,
                descriptor: fluss.TableDescriptor = descriptor,
                start: threading.Barrier = start,
            ) -> int:
                start.wait()
                done(admin.create_table(path, descriptor, ignore_if_exists=True))
                return int(done(admin.get_table_info(path)).table_id)

            assert len(set(pool.map(create, admins))) == 1
            done(admins[0].drop_table(path))


@pytest.mark.parametrize("call", ON_A_TABLE)
def test_a_missing_table_is_a_typed_error_at_once(tables: Tables, call: str) -> None:
    path = tables.path()
    with within(10, "the error"), pytest.raises(errors.TableNotExistError) as raised:
        done(ON_A_TABLE[call](tables, path))
    assert raised.value.error_code == fluss.ErrorCode.TABLE_NOT_EXIST
    assert path.table_name in raised.value.message
    assert not raised.value.is_retriable


def test_the_older_guides_name_reads_a_table_too(tables: Tables) -> None:
    path = tables.create(LOG).get_table_path()
    assert done(tables.admin.get_table(path)) == done(tables.admin.get_table_info(path))


@pytest.mark.parametrize("bad", ["a b", "x.y", "__hidden", "n" * 201, "ü"])
def test_a_name_that_fluss_cannot_hold_is_refused(tables: Tables, bad: str) -> None:
    path = fluss.TablePath(tables.database, bad)
    with pytest.raises(errors.InvalidTableError) as raised:
        done(tables.admin.create_table(path, fluss.TableDescriptor(fluss.Schema(LOG))))
    assert raised.value.error_code == fluss.ErrorCode.INVALID_TABLE_EXCEPTION
    assert not done(tables.admin.table_exists(path))


REFUSED: dict[str, tuple[Callable[[], fluss.TableDescriptor], tuple[type[Exception], ...]]] = {
    "unknown option": (
        lambda: fluss.TableDescriptor(fluss.Schema(LOG), properties={"table.no-such": "1"}),
        (errors.InvalidConfigError,),
    ),
    "value of an option": (
        lambda: fluss.TableDescriptor(fluss.Schema(LOG), properties={"table.log.ttl": "soon"}),
        (errors.InvalidConfigError, errors.InvalidTableError),
    ),
    "log format": (
        lambda: fluss.TableDescriptor(fluss.Schema(LOG), log_format="csv"),
        (errors.SchemaError,),
    ),
    "kv format": (
        lambda: fluss.TableDescriptor(_keyed("id"), kv_format="csv"),
        (errors.SchemaError,),
    ),
    "compacted keys over an indexed log": (
        lambda: fluss.TableDescriptor(_keyed("id"), kv_format="COMPACTED", log_format="INDEXED"),
        (errors.InvalidConfigError, errors.InvalidTableError),
    ),
    "partition column of a wrong type": (
        lambda: fluss.TableDescriptor(
            fluss.Schema(pa.schema([("d", pa.decimal128(5, 2)), ("v", pa.int32())])),
            partition_keys=["d"],
        ),
        (errors.InvalidTableError,),
    ),
    "unknown merge engine": (
        lambda: fluss.TableDescriptor(_keyed("id"), properties={"table.merge-engine": "newest"}),
        (errors.InvalidConfigError, errors.UnknownServerError),
    ),
    "bucket key outside the primary key": (
        lambda: fluss.TableDescriptor(_keyed("id"), bucket_keys=["name"]),
        (errors.SchemaError,),
    ),
    "partition key outside the primary key": (
        lambda: fluss.TableDescriptor(_keyed("id"), partition_keys=["name"]),
        (errors.SchemaError,),
    ),
    "no buckets": (
        lambda: fluss.TableDescriptor(fluss.Schema(LOG), bucket_count=0),
        (errors.SchemaError,),
    ),
    "auto partition without a partition key": (
        lambda: fluss.TableDescriptor(
            fluss.Schema(LOG), properties={"table.auto-partition.enabled": "true"}
        ),
        (errors.InvalidConfigError, errors.InvalidTableError),
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_table_that_cannot_be_is_refused(tables: Tables, what: str) -> None:
    describe, expected = REFUSED[what]
    path = tables.path()
    with pytest.raises(expected) as raised:
        done(tables.admin.create_table(path, describe()))
    assert "\n" not in str(raised.value), "a message, not a stack trace"
    assert not done(tables.admin.table_exists(path))


def test_more_buckets_than_the_cluster_allows(tables: Tables, offers: fluss.Capabilities) -> None:
    path = tables.path()
    made = fluss.TableDescriptor(fluss.Schema(LOG), bucket_count=200_000)
    with pytest.raises(errors.TooManyBucketsError) as raised:
        done(tables.admin.create_table(path, made))
    assert raised.value.error_code == fluss.ErrorCode.BUCKET_MAX_NUM_EXCEPTION


def test_more_replicas_than_servers(tables: Tables, offers: fluss.Capabilities) -> None:
    path = tables.path()
    made = fluss.TableDescriptor(
        fluss.Schema(LOG), bucket_count=1, properties={"table.replication.factor": "9"}
    )
    if not offers.replication:
        expected: type[Exception] = fluss.FlussError
    else:
        expected = errors.InvalidReplicationFactorError
    with pytest.raises(expected):
        done(tables.admin.create_table(path, made))
    assert not done(tables.admin.table_exists(path))


@pytest.mark.parametrize("path", ["db.table", ("db", "table"), None])
def test_something_else_than_a_path_is_a_typed_error(tables: Tables, path: Any) -> None:
    for call in (
        tables.admin.table_exists,
        tables.admin.get_table_info,
        tables.connection.get_table,
    ):
        with pytest.raises(errors.SchemaError, match="TablePath"):
            done(call(path))


def test_a_table_is_whole_or_not_there_while_another_creates_it(
    tables: Tables, connection: fluss.FlussConnection
) -> None:
    admin = done(connection.get_admin())
    for _ in range(5):
        path = tables.path()
        made = admin.create_table(path, fluss.TableDescriptor(fluss.Schema(LOG)))
        while not made.done():
            # One after another: many at once would keep a busy server from creating it.
            error = admin.get_table_info(path).exception()
            assert error is None or isinstance(error, errors.TableNotExistError)
        done(made)
        assert done(admin.get_table_info(path)).table_path == path
