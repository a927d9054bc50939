"""Tables with known content on a real cluster, and every call of the client over them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import fluss_client as fluss
from fluss_client.wire import apis
from tests.contract.tables import Tables, done

ROWS = 200
KEYS = 50
PARTITIONS = ("eu", "us")
SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
_names = itertools.count()


def rows(ids: range) -> pa.Table:
    """Rows whose text tells whether a byte of them was changed."""
    return pa.table({"id": list(ids), "text": [f"{i:08}" * 20 for i in ids]}, schema=SCHEMA)


class Ground:
    """A database with a log table, a key table and a partitioned one; `direct` has whole lines."""

    def __init__(self, direct: fluss.FlussConnection, database: str) -> None:
        self.direct = direct
        self.admin = done(direct.get_admin())
        self.database = database
        done(self.admin.create_database(database))
        self.tables = Tables(direct, self.admin, database)
        self.log = self.tables.create(SCHEMA)
        self.tables.append(self.log, rows(range(ROWS)))
        self.keys = self.tables.create(
            {"id": pa.int64(), "part": pa.int32(), "text": pa.string()},
            ["id", "part"],
            bucket_keys=["id"],
        )
        self.tables.upsert(self.keys, [(i, i % 3, f"{i:08}" * 20) for i in range(KEYS)])
        self.parted = self.tables.create(
            {"id": pa.int64(), "region": pa.string()},
            partition_keys=["region"],
            partitions=[{"region": name} for name in PARTITIONS],
        )
        self.nodes = len(done(self.admin.get_server_nodes()))

    @property
    def log_path(self) -> fluss.TablePath:
        return self.log.get_table_path()

    @property
    def keys_path(self) -> fluss.TablePath:
        return self.keys.get_table_path()

    @property
    def parted_path(self) -> fluss.TablePath:
        return self.parted.get_table_path()

    def name(self, kind: str) -> str:
        """A name that nothing has."""
        return f"{self.database}_{kind}{next(_names)}"

    def drop(self) -> None:
        done(self.admin.drop_database(self.database, ignore_if_not_exists=True, cascade=True))


@dataclass(frozen=True)
class Call:
    """One call: what it is on the wire, how it is made, and whether its answer is right.

    `make` runs on whole lines first and gives the call itself; `right` looks at its answer, on
    whole lines again.
    """

    name: str
    api: apis.Api[Any, Any]
    make: Callable[[Ground, fluss.FlussConnection], Callable[[], Any]]
    right: Callable[[Ground, Any], bool]
    changes: bool = False
    summed: bool = False
    """Whether a checksum covers the content."""


def _admin(connection: fluss.FlussConnection) -> fluss.FlussAdmin:
    admin: fluss.FlussAdmin = done(connection.get_admin())
    return admin


def _asks(
    name: str,
    api: apis.Api[Any, Any],
    ask: Callable[[Ground, fluss.FlussAdmin], fluss.Handle[Any]],
    right: Callable[[Ground, Any], bool],
) -> Call:
    def make(ground: Ground, connection: fluss.FlussConnection) -> Callable[[], Any]:
        admin = _admin(connection)
        return lambda: ask(ground, admin).result()

    return Call(name, api, make, right)


def _connect(g: Ground, connection: fluss.FlussConnection) -> Callable[[], Any]:
    def call() -> int:
        with fluss.FlussConnection.create(connection.config).result() as another:
            return len(_admin(another).get_server_nodes().result())

    return call


QUESTIONS = [
    Call("connect", apis.API_VERSIONS, _connect, lambda g, got: got == g.nodes),
    _asks(
        "list_databases",
        apis.LIST_DATABASES,
        lambda g, a: a.list_databases(),
        lambda g, got: g.database in got,
    ),
    _asks(
        "database_exists",
        apis.DATABASE_EXISTS,
        lambda g, a: a.database_exists(g.database),
        lambda g, got: got is True,
    ),
    _asks(
        "get_database_info",
        apis.GET_DATABASE_INFO,
        lambda g, a: a.get_database_info(g.database),
        lambda g, got: got.database_name == g.database,
    ),
    _asks(
        "list_tables",
        apis.LIST_TABLES,
        lambda g, a: a.list_tables(g.database),
        lambda g, got: g.log_path.table_name in got,
    ),
    _asks(
        "table_exists",
        apis.TABLE_EXISTS,
        lambda g, a: a.table_exists(g.log_path),
        lambda g, got: got is True,
    ),
    _asks(
        "get_table_info",
        apis.GET_TABLE_INFO,
        lambda g, a: a.get_table_info(g.log_path),
        lambda g, got: got.table_id == g.log.get_table_info().table_id,
    ),
    _asks(
        "get_table_schema",
        apis.GET_TABLE_SCHEMA,
        lambda g, a: a.get_table_schema(g.log_path),
        lambda g, got: got[1].get_column_names() == SCHEMA.names,
    ),
    _asks(
        "list_partition_infos",
        apis.LIST_PARTITION_INFOS,
        lambda g, a: a.list_partition_infos(g.parted_path),
        lambda g, got: set(PARTITIONS) <= {p.partition_name for p in got},
    ),
    _asks(
        "get_server_nodes",
        apis.GET_METADATA,
        lambda g, a: a.get_server_nodes(),
        lambda g, got: len(got) == g.nodes,
    ),
    _asks(
        "list_offsets",
        apis.LIST_OFFSETS,
        lambda g, a: a.list_offsets(g.log_path, [0], fluss.OffsetSpec.latest()),
        lambda g, got: got == {0: ROWS},
    ),
    _asks(
        "get_table_stats",
        apis.GET_TABLE_STATS,
        lambda g, a: a.get_table_stats(g.keys_path),
        lambda g, got: got is not None,
    ),
    _asks(
        "describe_cluster_configs",
        apis.DESCRIBE_CLUSTER_CONFIGS,
        lambda g, a: a.describe_cluster_configs(),
        lambda g, got: isinstance(got, list),
    ),
    _asks(
        "get_producer_offsets",
        apis.GET_PRODUCER_OFFSETS,
        lambda g, a: a.get_producer_offsets("nobody"),
        lambda g, got: got is None,
    ),
]


def _create_database(g: Ground, connection: fluss.FlussConnection) -> Callable[[], Any]:
    admin, name = _admin(connection), g.name("d")

    def call() -> str:
        admin.create_database(name).result()
        return name

    return call


def _drop_database(g: Ground, connection: fluss.FlussConnection) -> Callable[[], Any]:
    admin, name = _admin(connection), g.name("d")
    done(g.admin.create_database(name))

    def call() -> str:
        admin.drop_database(name).result()
        return name

    return call


def _create_table(g: Ground, connection: fluss.FlussConnection) -> Callable[[], Any]:
    admin, path = _admin(connection), fluss.TablePath(g.database, g.name("t"))

    def call() -> fluss.TablePath:
        described = fluss.TableDescriptor(fluss.Schema(SCHEMA), bucket_count=1)
        admin.create_table(path, described).result()
        return path

    return call


def _drop_table(g: Ground, connection: fluss.FlussConnection) -> Callable[[], Any]:
    admin, path = _admin(connection), g.tables.create(SCHEMA).get_table_path()

    def call() -> fluss.TablePath:
        admin.drop_table(path).result()
        return path

    return call


def _alter_table(g: Ground, connection: fluss.FlussConnection) -> Callable[[], Any]:
    admin, path = _admin(connection), g.tables.create(SCHEMA).get_table_path()

    def call() -> fluss.TablePath:
        admin.alter_table(path, add_columns=[pa.field("more", pa.int32())]).result()
        return path

    return call


def _create_partition(g: Ground, connection: fluss.FlussConnection) -> Callable[[], Any]:
    admin, name = _admin(connection), g.name("p")

    def call() -> str:
        admin.create_partition(g.parted_path, {"region": name}).result()
        return name

    return call


def _drop_partition(g: Ground, connection: fluss.FlussConnection) -> Callable[[], Any]:
    admin, name = _admin(connection), g.name("p")
    done(g.admin.create_partition(g.parted_path, {"region": name}))

    def call() -> str:
        admin.drop_partition(g.parted_path, {"region": name}).result()
        return name

    return call


def _partitions(g: Ground) -> set[str]:
    return {p.partition_name for p in done(g.admin.list_partition_infos(g.parted_path))}


CHANGES = [
    Call(
        "create_database",
        apis.CREATE_DATABASE,
        _create_database,
        lambda g, name: bool(done(g.admin.database_exists(name))),
        changes=True,
    ),
    Call(
        "drop_database",
        apis.DROP_DATABASE,
        _drop_database,
        lambda g, name: not done(g.admin.database_exists(name)),
        changes=True,
    ),
    Call(
        "create_table",
        apis.CREATE_TABLE,
        _create_table,
        lambda g, path: bool(done(g.admin.table_exists(path))),
        changes=True,
    ),
    Call(
        "drop_table",
        apis.DROP_TABLE,
        _drop_table,
        lambda g, path: not done(g.admin.table_exists(path)),
        changes=True,
    ),
    Call(
        "alter_table",
        apis.ALTER_TABLE,
        _alter_table,
        lambda g, path: "more" in done(g.admin.get_table_info(path)).get_column_names(),
        changes=True,
    ),
    Call(
        "create_partition",
        apis.CREATE_PARTITION,
        _create_partition,
        lambda g, name: name in _partitions(g),
        changes=True,
    ),
    Call(
        "drop_partition",
        apis.DROP_PARTITION,
        _drop_partition,
        lambda g, name: name not in _partitions(g),
        changes=True,
    ),
]


def _lookup(g: Ground, connection: fluss.FlussConnection) -> Callable[[], Any]:
    lookuper = done(connection.get_table(g.keys_path)).new_lookup().create_lookuper()
    return lambda: lookuper.lookup((7, 1)).result()


def _prefix_lookup(g: Ground, connection: fluss.FlussConnection) -> Callable[[], Any]:
    table = done(connection.get_table(g.keys_path))
    lookuper = table.new_lookup().lookup_by(["id"]).create_lookuper()
    return lambda: lookuper.lookup((7,)).result()


def _limit_scan(g: Ground, connection: fluss.FlussConnection) -> Callable[[], Any]:
    table = done(connection.get_table(g.keys_path))
    bucket = fluss.TableBucket(table.get_table_info().table_id, 0)
    return lambda: table.new_scan().limit(KEYS).create_bucket_batch_scanner(bucket).to_arrow()


def _poll(g: Ground, connection: fluss.FlussConnection) -> Callable[[], Any]:
    table = done(connection.get_table(g.log_path))

    def call() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        with done(table.new_scan().create_log_scanner()) as scanner:
            scanner.subscribe(0, fluss.EARLIEST_OFFSET)
            while len(found) < ROWS:
                found += [record.row for record in scanner.poll(300)]
        return found

    return call


def _read_whole(g: Ground, connection: fluss.FlussConnection) -> Callable[[], Any]:
    table = done(connection.get_table(g.log_path))

    def call() -> pa.Table:
        with done(table.new_scan().create_record_batch_log_scanner()) as scanner:
            scanner.subscribe(0, fluss.EARLIEST_OFFSET)
            return scanner.to_arrow()

    return call


READS = [
    Call("lookup", apis.LOOKUP, _lookup, lambda g, got: got["text"] == f"{7:08}" * 20),
    Call(
        "prefix_lookup",
        apis.PREFIX_LOOKUP,
        _prefix_lookup,
        lambda g, got: [row["text"] for row in got] == [f"{7:08}" * 20],
    ),
    Call(
        "limit_scan",
        apis.LIMIT_SCAN,
        _limit_scan,
        lambda g, got: sorted(got["id"].to_pylist()) == list(range(KEYS)),
    ),
    Call(
        "poll",
        apis.FETCH_LOG,
        _poll,
        lambda g, got: got == rows(range(ROWS)).to_pylist(),
        summed=True,
    ),
    Call(
        "to_arrow",
        apis.FETCH_LOG,
        _read_whole,
        lambda g, got: got.select(SCHEMA.names).equals(rows(range(ROWS))),
        summed=True,
    ),
]

CALLS = [*QUESTIONS, *CHANGES, *READS]
