"""Whole databases: every key table that matches, new ones too; one that fails stops no other."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest

from fluss_client import FlussConnection, Schema, TableDescriptor, TablePath
from fluss_client.errors import ConfigError
from fluss_orchestrate.core.mirror import databases
from fluss_orchestrate.core.mirror.databases import MirrorDatabaseError
from fluss_orchestrate.core.mirror.verification import verify_mirror
from fluss_orchestrate.core.sinks import FunctionSink
from fluss_orchestrate.core.sinks.base import Sink
from tests.orchestrate.mirror.memory_mirror import MemoryMirror
from tests.waiting import WAIT_S, scaled

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])


class Sinks:
    """One mirror per table; `opened` has those that were asked for."""

    def __init__(self, broken: str = "") -> None:
        self.broken = broken
        self.opened: dict[str, Any] = {}
        self.logged: list[int] = []

    def __call__(self, path: TablePath) -> Sink:
        if path.table_name == self.broken:
            raise RuntimeError("its disk is full")
        if path.table_name == "events":
            return FunctionSink(lambda rows: self.logged.append(rows.read_all().num_rows))
        return self.opened.setdefault(path.table_name, MemoryMirror(str(path)))


def make(connection: FlussConnection, database: str, name: str, *, keyed: bool = True) -> None:
    made = TableDescriptor(Schema(COLUMNS, primary_keys=["id"] if keyed else None), bucket_count=2)
    path = TablePath(database, name)
    connection.get_admin().result().create_table(path, made).result()
    table = connection.get_table(path).result()
    if keyed:
        with table.new_upsert().create_writer() as writer:
            for n in range(10):
                writer.upsert({"id": n, "name": name})
    else:
        with table.new_append().create_writer() as writer:
            for n in range(10):
                writer.append({"id": n, "name": name})


def test_all_key_tables_are_mirrored_and_new_ones_join(
    mirror_connection: FlussConnection, mirror_database: str
) -> None:
    for name in ("customers", "orders", "tmp_orders"):
        make(mirror_connection, mirror_database, name)
    make(mirror_connection, mirror_database, "events", keyed=False)
    sinks, seen = Sinks(), []

    def mirror(run: str, **options: Any) -> Any:
        return databases.mirror_database(
            mirror_connection, mirror_database, sinks, run, exclude="tmp_*", **options
        )

    found = mirror("one", done=lambda one: seen.append(str(one.table)))
    kinds = {one.table.table_name: one.kind for one in found.tables}
    assert kinds == {"customers": "mirror", "events": "skipped", "orders": "mirror"}
    assert found.rows == 20
    assert sorted(seen) == [f"{mirror_database}.{name}" for name in sorted(kinds)]
    assert found.to_json()["skipped"] == 1
    make(mirror_connection, mirror_database, "products")
    again = mirror("two", on_log_tables="append", tables_at_once=1)
    assert {one.table.table_name: one.result.rows for one in again.mirrored if one.result} == {
        "customers": 0,
        "events": 10,
        "orders": 0,
        "products": 10,
    }
    assert sinks.logged == [10]
    for name, sink in sinks.opened.items():
        path = f"{mirror_database}.{name}"
        assert verify_mirror(mirror_connection, path, sink, f"mirror/{path}").equal
    repeated = mirror("two", on_log_tables="append")
    assert repeated.rows == 0


def test_a_table_that_fails_stops_no_other(
    mirror_connection: FlussConnection, mirror_database: str
) -> None:
    for name in ("a", "b", "c"):
        make(mirror_connection, mirror_database, name)
    sinks = Sinks(broken="b")
    with pytest.raises(MirrorDatabaseError, match=r"1 of 3 tables .*\.b: its disk is full") as e:
        databases.mirror_database(mirror_connection, mirror_database, sinks, "one")
    summary = e.value.summary
    assert [one.table.table_name for one in summary.failed] == ["b"]
    assert [one.table.table_name for one in summary.mirrored] == ["a", "c"]
    assert "disk is full" in summary.to_json()["tables"][1]["error"]
    sinks.broken = ""
    mended = databases.mirror_database(mirror_connection, mirror_database, sinks, "one")
    assert not mended.failed
    assert mended.rows == 10, "those that were done are not done again"
    kept = databases.mirror_database(
        mirror_connection, mirror_database, Sinks(broken="a"), "two", on_failure="return"
    )
    assert [one.table.table_name for one in kept.failed][:1] == ["a"]


def test_what_cannot_be_meant_is_refused(
    mirror_connection: FlussConnection, mirror_database: str
) -> None:
    assert databases.mirror_database(mirror_connection, mirror_database, Sinks(), "x").tables == ()
    make(mirror_connection, mirror_database, "a")
    with pytest.raises(ConfigError, match="no table of"):
        databases.mirror_database(mirror_connection, mirror_database, Sinks(), "x", include="b*")
    with pytest.raises(ConfigError, match="on_log_tables"):
        databases.mirror_database(
            mirror_connection, mirror_database, Sinks(), "x", on_log_tables="all"
        )


def test_a_kill_lets_no_further_table_begin(
    mirror_connection: FlussConnection, mirror_database: str
) -> None:
    for name in ("a", "b", "c"):
        make(mirror_connection, mirror_database, name)
    begun: list[str] = []
    hold = threading.Event()

    def open_sink(path: TablePath) -> Sink:
        begun.append(path.table_name)
        if len(begun) > 1:
            hold.wait(scaled(WAIT_S))
        return MemoryMirror(str(path))

    def killed(_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        databases.mirror_database(
            mirror_connection, mirror_database, open_sink, "one", tables_at_once=1, done=killed
        )
    hold.set()
    assert begun[0] == "a"
    assert "c" not in begun
